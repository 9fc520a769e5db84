//! Seeded stories of sessions: order, outcomes and permissions, with ends at any time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::Server;
use duologue_client::{Client, Connection, Error, Session};
use duologue_rpc::Limits;
use duologue_schema::StopReason;
use fastrand::Rng;
use tokio::task::JoinHandle;

use super::actors::{Books, Scripted, User, Witness, plan, update_numbers};
use super::random_delay::random_delays;
use super::wire::{SimulatedPipe, wire};
use super::{Campaign, EventCounts, play};

/// Half of what happens in a hundred stories, or less.
const CAMPAIGN: Campaign = Campaign {
    test: "duologue-tests --test it simulation::story",
    schedules: 300,
    minimum: &[
        ("sessions", 170),
        ("turns", 290),
        ("turns ended", 25),
        ("turns cancelled", 19),
        ("updates", 160),
        ("permissions", 14),
        ("cancelled permissions", 6),
        ("file reads", 18),
        ("loads", 5),
        ("replayed updates", 8),
        ("closes", 18),
    ],
    shown: ": 0 turns without outcome, 0 updates out of order, 0 behind their turn's answer",
};

#[test]
fn updates_keep_their_order_and_every_turn_has_its_outcome() {
    CAMPAIGN.play(|seed, steps| play(story(seed, steps, None)));
}

#[test]
fn an_agent_that_refuses_requests_fails_the_campaign() {
    for (refused, missing) in [
        ("session/new", "sessions, turns ended, turns cancelled, updates, permissions, loads, closes"),
        ("session/prompt", "turns ended, updates, permissions, file reads"),
        ("session/load", "loads"),
        ("session/close", "closes"),
    ] {
        let missing: Vec<&str> = missing.split(", ").collect();
        CAMPAIGN.misses(&missing, |seed, steps| play(story(seed, steps, Some(refused))));
    }
}

#[test]
fn a_story_is_a_function_of_its_seed() {
    for seed in 0..10 {
        let played = || play(story(seed, usize::MAX, None)).expect("no fault");
        assert_eq!(played(), played(), "seed {seed}");
    }
}

/// A task of somebody in the story, and what came of it.
type Task = JoinHandle<Result<EventCounts, String>>;

struct Story {
    client: Connection,
    books: Arc<Books>,
    sessions: Arc<Mutex<Vec<Session>>>,
    tasks: Vec<Task>,
    turns: u64,
}

/// Takes as many steps as its seed wants, and `most` at most. The agent answers all requests of the method
/// `refused` with an error.
async fn story(seed: u64, most: usize, refused: Option<&'static str>) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let (ours, theirs, pipes) = wire(&mut rng, 30);
    let books = Arc::new(Books::default());
    let agent = Scripted { books: books.clone(), seed: Mutex::new(rng.fork()), refused };
    let server = Server::new(agent).tap(Arc::new(Witness(books.clone()))).limits(limits(&mut rng));
    let served = tokio::spawn(server.serve(theirs));
    let client = Client::new(User(Mutex::new(rng.fork()))).limits(limits(&mut rng));
    let client = client.connect(ours).await.map_err(|error| error.to_string())?;
    let mut story = Story { client, books, sessions: Arc::default(), tasks: Vec::new(), turns: 0 };
    for _ in 0..rng.usize(3..25).min(most) {
        story.step(&mut rng);
        random_delays(rng.fork(), 25).await;
    }
    let cut = rng.u8(0..4) == 0;
    if !cut {
        // Longer than a cancelled turn may take. What runs then, runs until it is cancelled.
        tokio::time::sleep(Duration::from_secs(30)).await;
        story.sessions.lock().expect("no panic").iter().for_each(Session::cancel);
        story.all_over().await?;
    }
    match rng.u8(0..2) {
        0 if cut => pipes.iter().for_each(SimulatedPipe::cut),
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
                let mut tally = EventCounts::default();
                tokio::select! {
                    biased;
                    () = gives_up(rng) => {}
                    made = client.new_session("/tmp") => {
                        if let Ok(session) = made {
                            tally.add("sessions", 1);
                            sessions.lock().expect("no panic").push(session);
                        }
                    }
                }
                Ok(tally)
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
                    let mut tally = EventCounts::default();
                    let Ok(mut replay) = client.load_session(session.id().clone(), "/tmp") else {
                        return Ok(tally);
                    };
                    let mut next = 0;
                    let told = async {
                        while let Some(Ok(update)) = replay.next().await {
                            match numbers_of(&update) {
                                Some((0, number)) if number == next => next += 1,
                                // Updates in flight when the session was loaded.
                                Some((1.., _)) | None => {}
                                other => return Err(format!("{other:?} came in a replay after {next}")),
                            }
                        }
                        Ok(())
                    };
                    tokio::select! {
                        biased;
                        () = gives_up(rng) => {}
                        told = told => {
                            told?;
                            tally.add("loads", u64::from(replay.outcome().await.is_ok()));
                            tally.add("replayed updates", next);
                        }
                    }
                    Ok(tally)
                }));
            }
            14 => {
                let rng = rng.fork();
                self.tasks.push(tokio::spawn(async move {
                    let mut tally = EventCounts::default();
                    tokio::select! {
                        biased;
                        () = gives_up(rng) => {}
                        closed = session.close() => tally.add("closes", u64::from(closed.is_ok())),
                    }
                    Ok(tally)
                }));
            }
            _ => {
                let mut updates = session.updates();
                let rng = rng.fork();
                self.tasks.push(tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = random_delays(rng, 30) => Ok(EventCounts::default()),
                        result = in_order(&mut updates) => result,
                    }
                }));
            }
        }
    }

    /// Nobody waits any more, though the connection is there.
    async fn all_over(&mut self) -> Result<(), String> {
        tokio::time::sleep(Duration::from_secs(30)).await;
        if self.client.peer().is_closing() {
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
    ) -> Result<EventCounts, String> {
        let mut tally = EventCounts::default();
        tally.add("turns", self.turns);
        for task in self.tasks {
            let over = tokio::time::timeout(Duration::from_secs(60), task).await;
            tally += over
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
            None => {
                tally.add("permissions", known.permissions);
                tally.add("cancelled permissions", known.cancelled_permissions);
                tally.add("file reads", known.reads);
                Ok(tally)
            }
        })
    }
}

/// Sooner or later, mostly never.
async fn gives_up(mut rng: Rng) {
    if rng.u8(0..8) > 0 {
        return std::future::pending().await;
    }
    random_delays(rng, 8).await;
}

fn numbers_of(update: &duologue_schema::SessionUpdate) -> Option<(u64, u64)> {
    update_numbers(&serde_json::to_value(update).ok()?)
}

/// Takes updates to their end; those of each turn come in order.
async fn in_order(updates: &mut duologue_client::Updates) -> Result<EventCounts, String> {
    let mut last = std::collections::BTreeMap::new();
    let mut tally = EventCounts::default();
    while let Some(Ok(update)) = updates.next().await {
        let Some((turn, number)) = numbers_of(&update) else { continue };
        if number == u64::MAX || turn == 0 {
            continue;
        }
        tally.add("updates between turns", 1);
        if last.insert(turn, number).is_some_and(|last| last >= number) {
            return Err(format!("update {number} of turn {turn} came out of order"));
        }
    }
    Ok(tally)
}

/// One turn, by somebody who takes it all, cancels, drops or leaves it.
async fn turn(session: Session, books: Arc<Books>, number: u64, mut rng: Rng) -> Result<EventCounts, String> {
    let mut tally = EventCounts::default();
    let prompt = plan(number, rng.u64(..));
    let begun = tokio::select! {
        biased;
        () = gives_up(rng.fork()) => return Ok(tally),
        begun = session.prompt(prompt) => begun,
    };
    let Ok(mut turn) = begun else { return Ok(tally) };
    let policy = rng.u8(0..6);
    let mut cancelled = false;
    let mut updates = 0;
    if policy > 1 {
        // Takes some of it first, slowly.
        for _ in 0..rng.u8(0..4) {
            random_delays(rng.fork(), 4).await;
            tokio::select! {
                biased;
                update = turn.next() => match update.and_then(Result::ok).as_ref().and_then(numbers_of) {
                    Some((_, u64::MAX)) => {}
                    Some((of, at)) if of == number && at == updates => updates += 1,
                    Some(other) => return Err(format!("{other:?} came in turn {number} after {updates}")),
                    None => {}
                },
                () = random_delays(rng.fork(), 8) => {}
            }
        }
    }
    match policy {
        2 => {
            tally.add("updates", updates);
            return Ok(tally);
        }
        3 => {
            turn.detach();
            tally.add("updates", updates);
            return Ok(tally);
        }
        4 => {
            turn.cancel();
            cancelled = true;
        }
        _ => {}
    }
    while let Some(update) = turn.next().await {
        let Ok(update) = update else {
            tally.add("updates", updates);
            return Ok(tally);
        };
        match numbers_of(&update) {
            Some((of, at)) if of == number && at == updates => updates += 1,
            Some((_, u64::MAX)) | None => {}
            other => return Err(format!("{other:?} came in turn {number} after {updates}")),
        }
    }
    tally.add("updates", updates);
    match turn.outcome().await {
        Ok(answer) if answer.stop_reason != StopReason::EndTurn => tally.add("turns cancelled", 1),
        Ok(_) if cancelled => {}
        Ok(_) => {
            tally.add("turns ended", 1);
            let sent = books.with(|known| known.sent.get(&number).copied().unwrap_or_default());
            if sent != updates {
                return Err(format!("turn {number} sent {sent} updates, {updates} came"));
            }
        }
        Err(Error::CancelIgnored { .. }) => return Err(format!("turn {number} ignored its cancellation")),
        Err(_) => {}
    }
    Ok(tally)
}
