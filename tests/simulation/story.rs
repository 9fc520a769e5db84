//! Seeded stories of sessions: order, outcomes and permissions, whoever leaves when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::Server;
use duologue_client::{Client, Connection, Error, Session};
use duologue_rpc::Limits;
use duologue_schema::StopReason;
use fastrand::Rng;
use tokio::task::JoinHandle;

use super::actors::{Books, Scripted, User, Witness, plan, update_numbers};
use super::whim::dawdle;
use super::wire::{Pipe, wire};
use super::{campaign, play};

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    turns: u64,
    updates: u64,
    permissions: u64,
    cancelled: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.updates += other.updates;
        self.permissions += other.permissions;
        self.cancelled += other.cancelled;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { turns, updates, permissions, cancelled } = self;
        write!(
            f,
            "{turns} turns, {updates} updates, {permissions} permissions ({cancelled} cancelled): \
             0 without outcome, 0 out of order, 0 behind their turn's answer"
        )
    }
}

#[test]
fn updates_keep_their_order_and_every_turn_has_its_outcome() {
    let test = "duologue-tests --test simulation story";
    campaign(test, 300, |seed, steps| play(story(seed, steps)));
}

#[test]
fn a_story_is_a_function_of_its_seed() {
    for seed in 0..10 {
        let played = || play(story(seed, usize::MAX)).expect("no fault");
        assert_eq!(played(), played(), "seed {seed}");
    }
}

/// What somebody in the story was up to, and how many updates came of it.
type Task = JoinHandle<Result<u64, String>>;

struct Story {
    client: Connection,
    books: Arc<Books>,
    sessions: Arc<Mutex<Vec<Session>>>,
    tasks: Vec<Task>,
    turns: u64,
}

/// Takes as many steps as its seed wants, and `most` at most.
async fn story(seed: u64, most: usize) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed);
    let (ours, theirs, pipes) = wire(&mut rng, 30);
    let books = Arc::new(Books::default());
    let agent = Scripted { books: books.clone(), seed: Mutex::new(rng.fork()) };
    let server = Server::new(agent).tap(Arc::new(Witness(books.clone()))).limits(limits(&mut rng));
    let served = tokio::spawn(server.serve(theirs));
    let client = Client::new(User(Mutex::new(rng.fork()))).limits(limits(&mut rng));
    let client = client.connect(ours).await.map_err(|error| error.to_string())?;
    let mut story = Story { client, books, sessions: Arc::default(), tasks: Vec::new(), turns: 0 };
    for _ in 0..rng.usize(3..25).min(most) {
        story.step(&mut rng);
        dawdle(rng.fork(), 25).await;
    }
    let cut = rng.u8(0..4) == 0;
    if !cut {
        // Longer than a cancelled turn may take. What runs then, runs until it is cancelled.
        tokio::time::sleep(Duration::from_secs(30)).await;
        story.sessions.lock().expect("no panic").iter().for_each(Session::cancel);
        story.all_over().await?;
    }
    match rng.u8(0..2) {
        0 if cut => pipes.iter().for_each(Pipe::cut),
        _ => {
            let _ = story.client.close().await;
        }
    }
    story.finish(served, cut).await
}

fn limits(rng: &mut Rng) -> Limits {
    let mut limits = Limits::default();
    limits.queue_bytes = *rng.choice(&[300, 100_000]).unwrap_or(&300);
    limits.output_bytes = *rng.choice(&[1, 100_000]).unwrap_or(&1);
    limits
}

impl Story {
    fn session(&self, rng: &mut Rng) -> Option<Session> {
        rng.choice(&*self.sessions.lock().expect("no panic")).cloned()
    }

    fn step(&mut self, rng: &mut Rng) {
        let Some(session) = self.session(rng).filter(|_| rng.u8(0..10) > 0) else {
            let (client, sessions, rng) = (self.client.clone(), self.sessions.clone(), rng.fork());
            return self.tasks.push(tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = gives_up(rng) => {}
                    made = client.new_session("/tmp") => {
                        if let Ok(session) = made {
                            sessions.lock().expect("no panic").push(session);
                        }
                    }
                }
                Ok(0)
            }));
        };
        match rng.u8(0..16) {
            0..=11 => {
                self.turns += 1;
                let turn = turn(session, self.books.clone(), self.turns, rng.fork());
                self.tasks.push(tokio::spawn(turn));
            }
            12 => session.cancel(),
            13 => {
                let (client, rng) = (self.client.clone(), rng.fork());
                self.tasks.push(tokio::spawn(async move {
                    let Ok(mut replay) = client.load_session(session.id().clone(), "/tmp") else {
                        return Ok(0);
                    };
                    let mut next = 0;
                    let told = async {
                        while let Some(Ok(update)) = replay.next().await {
                            match numbers_of(&update) {
                                Some((0, number)) if number == next => next += 1,
                                // What was on its way when the session was loaded.
                                Some((1.., _)) | None => {}
                                other => return Err(format!("{other:?} came in a replay after {next}")),
                            }
                        }
                        Ok(next)
                    };
                    tokio::select! {
                        biased;
                        () = gives_up(rng) => Ok(0),
                        told = told => told,
                    }
                }));
            }
            14 => {
                let rng = rng.fork();
                self.tasks.push(tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = gives_up(rng) => {}
                        _ = session.close() => {}
                    }
                    Ok(0)
                }));
            }
            _ => {
                let mut updates = session.updates();
                let rng = rng.fork();
                self.tasks.push(tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = dawdle(rng, 30) => Ok(0),
                        result = in_order(&mut updates) => result,
                    }
                }));
            }
        }
    }

    /// Nobody waits any more, though the connection is there.
    async fn all_over(&mut self) -> Result<(), String> {
        tokio::time::sleep(Duration::from_secs(30)).await;
        if self.client.peer().is_closed() {
            return Err("the connection has ended".into());
        }
        if self.tasks.iter().any(|task| !task.is_finished()) {
            return Err("a turn or a request has no end".into());
        }
        let unanswered = self.books.with(|known| known.unanswered());
        if unanswered > 0 {
            return Err(format!("{unanswered} requests were not answered"));
        }
        Ok(())
    }

    async fn finish(
        self,
        served: JoinHandle<duologue_agent::Result<()>>,
        cut: bool,
    ) -> Result<Tally, String> {
        let mut updates = 0;
        for task in self.tasks {
            let over = tokio::time::timeout(Duration::from_secs(60), task).await;
            updates += over
                .map_err(|_| "a turn does not end with the connection")?
                .map_err(|error| error.to_string())??;
        }
        self.client.closed().await;
        let pending = self.client.peer().pending_requests();
        drop((self.client, self.sessions));
        let served = tokio::time::timeout(Duration::from_secs(60), served).await;
        let served = served.map_err(|_| "the agent does not end")?.map_err(|error| error.to_string())?;
        if !cut {
            served.map_err(|error| error.to_string())?;
        }
        if pending > 0 {
            return Err(format!("{pending} requests are left in the table"));
        }
        self.books.with(|known| match known.faults.pop() {
            Some(fault) => Err(fault),
            None => Ok(Tally {
                turns: self.turns,
                updates,
                permissions: known.permissions,
                cancelled: known.cancelled_permissions,
            }),
        })
    }
}

/// Sooner or later, mostly never.
async fn gives_up(mut rng: Rng) {
    if rng.u8(0..8) > 0 {
        return std::future::pending().await;
    }
    dawdle(rng, 8).await;
}

fn numbers_of(update: &duologue_schema::SessionUpdate) -> Option<(u64, u64)> {
    update_numbers(&serde_json::to_value(update).ok()?)
}

/// Takes updates to their end; those of each turn come in order.
async fn in_order(updates: &mut duologue_client::Updates) -> Result<u64, String> {
    let mut last = std::collections::BTreeMap::new();
    let mut count = 0;
    while let Some(Ok(update)) = updates.next().await {
        let Some((turn, number)) = numbers_of(&update) else { continue };
        if number == u64::MAX || turn == 0 {
            continue;
        }
        count += 1;
        if last.insert(turn, number).is_some_and(|last| last >= number) {
            return Err(format!("update {number} of turn {turn} came out of order"));
        }
    }
    Ok(count)
}

/// One turn, by somebody who takes it all, cancels, drops or leaves it.
async fn turn(session: Session, books: Arc<Books>, number: u64, mut rng: Rng) -> Result<u64, String> {
    let prompt = plan(number, rng.u64(..));
    let begun = tokio::select! {
        biased;
        () = gives_up(rng.fork()) => return Ok(0),
        begun = session.prompt(prompt) => begun,
    };
    let Ok(mut turn) = begun else { return Ok(0) };
    let policy = rng.u8(0..6);
    let mut cancelled = false;
    let mut updates = 0;
    if policy > 1 {
        // Takes some of it first, slowly.
        for _ in 0..rng.u8(0..4) {
            dawdle(rng.fork(), 4).await;
            tokio::select! {
                biased;
                update = turn.next() => match update.and_then(Result::ok).as_ref().and_then(numbers_of) {
                    Some((_, u64::MAX)) => {}
                    Some((of, at)) if of == number && at == updates => updates += 1,
                    Some(other) => return Err(format!("{other:?} came in turn {number} after {updates}")),
                    None => {}
                },
                () = dawdle(rng.fork(), 8) => {}
            }
        }
    }
    match policy {
        2 => return Ok(updates),
        3 => {
            turn.detach();
            return Ok(updates);
        }
        4 => {
            turn.cancel();
            cancelled = true;
        }
        _ => {}
    }
    while let Some(update) = turn.next().await {
        let Ok(update) = update else { return Ok(updates) };
        match numbers_of(&update) {
            Some((of, at)) if of == number && at == updates => updates += 1,
            Some((_, u64::MAX)) | None => {}
            other => return Err(format!("{other:?} came in turn {number} after {updates}")),
        }
    }
    match turn.outcome().await {
        Ok(answer) if cancelled || answer.stop_reason != StopReason::EndTurn => {}
        Ok(_) => {
            let sent = books.with(|known| known.sent.get(&number).copied().unwrap_or_default());
            if sent != updates {
                return Err(format!("turn {number} sent {sent} updates, {updates} came"));
            }
        }
        Err(Error::CancelIgnored { .. }) => return Err(format!("turn {number} ignored its cancellation")),
        Err(_) => {}
    }
    Ok(updates)
}
