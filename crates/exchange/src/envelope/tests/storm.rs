//! Two sides over a wire that delays, reorders and repeats the messages of both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{PeerBuilder, Transport};
use duologue_schema::DuologueCapabilities;
use fastrand::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use crate::envelope::*;
use crate::in_memory::InMemoryService;
use crate::{Error, Exchange, ExchangeConnector, PeerAgent};
use duologue_rpc::Lock as _;

const LIMIT: u32 = 3;

fn connect(transport: Transport, own: &str, other: &str, handler: impl EnvelopeHandler) -> PeerAgent {
    let mut meta = None;
    let mut capabilities = DuologueCapabilities::new();
    (capabilities.agent_id, capabilities.envelope) = (Some(other.into()), vec![VERSION]);
    capabilities.write_to(&mut meta);
    let mut agent = None;
    PeerBuilder::new(transport).start(|peer| {
        let exchange = Exchange::new().agent_id(own).envelope_handler(handler);
        let service = ExchangeConnector::new(Some(exchange)).start(peer, |_| true, ());
        service.set_peer_capabilities(meta.as_ref());
        agent = Some(service.peer_agent().in_session("s"));
        InMemoryService(service)
    });
    agent.unwrap()
}

/// The events of one side's tasks, by their names.
#[derive(Default)]
struct Log {
    /// The number of starts of each task's handler.
    begun: Mutex<HashMap<String, u32>>,
    /// Tasks whose handler returned an outcome.
    done: Mutex<Vec<String>>,
    /// Outcomes that arrived at the delegation handle or at the handler.
    claimed: Mutex<Vec<String>>,
    /// The notifications that were sent.
    sent: Mutex<Vec<String>>,
    received: Mutex<Vec<String>>,
    active: AtomicU32,
}

/// Performs the tasks of the other side (`theirs`) and records the unclaimed results of its own
/// (`ours`).
struct Worker {
    theirs: Arc<Log>,
    ours: Arc<Log>,
    rng: Mutex<Rng>,
}

/// Counts a running handler, however it ends.
struct Active<'a>(&'a Log);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

impl EnvelopeHandler for Worker {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("worker").max_concurrent_tasks(LIMIT)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        let pause = self.rng.lock_unpoisoned().u64(0..200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        Ok(QueryResponse::new(query.question.as_str()))
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        let (pause, refuses) = {
            let mut rng = self.rng.lock_unpoisoned();
            (rng.u64(0..50), rng.u8(0..8) == 0)
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if refuses { Err(EnvelopeError::not_authorized(&*task.task)) } else { Ok(Ack::new(true)) }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        *self.theirs.begun.lock_unpoisoned().entry(task.task.clone()).or_default() += 1;
        assert!(self.theirs.active.fetch_add(1, Relaxed) <= LIMIT);
        let _active = Active(&self.theirs);
        let (pause, way) = {
            let mut rng = self.rng.lock_unpoisoned();
            (rng.u64(0..300), rng.u8(0..10))
        };
        let pause = tokio::time::sleep(Duration::from_millis(pause));
        match way {
            // A panic without a message.
            0 => std::panic::resume_unwind(Box::new(())),
            1 => return Err(EnvelopeError::unknown_domain("anything")),
            2 => std::future::pending::<()>().await,
            3 => tokio::select! {
                () = pause => {}
                () = task.cancelled() => return Err(EnvelopeError::internal("stopped")),
            },
            _ => pause.await,
        }
        let _ = task.progress(json!(1)).await;
        self.theirs.done.lock_unpoisoned().push(task.task.clone());
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(&*task.task))
    }

    async fn notify(&self, notification: Received<Notify>) {
        if notification.topic != PROGRESS {
            self.theirs.received.lock_unpoisoned().push(notification.topic.clone());
        }
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.ours.claimed.lock_unpoisoned().push(result.outcome.clone());
    }
}

/// Carries the lines of one direction: delayed, reordered and repeated. A repeated request gets a
/// JSON-RPC id of its own, whose response is dropped on the way back.
async fn carry(from: DuplexStream, mut to: DuplexStream, mut rng: Rng) {
    let (sender, mut arriving) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(line) = arriving.recv().await {
            if to.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(from).lines();
    let mut copies = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        // The last line of a closed connection may be incomplete.
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { return };
        if message["id"].as_str().is_some_and(|id| id.starts_with("again")) && message["method"].is_null() {
            continue;
        }
        send_later(&sender, line, &mut rng);
        if rng.u8(0..3) > 0 {
            continue;
        }
        if message["method"].is_string() && !message["id"].is_null() {
            copies += 1;
            message["id"] = json!(format!("again {copies}"));
        }
        send_later(&sender, message.to_string(), &mut rng);
    }
}

fn send_later(sender: &mpsc::UnboundedSender<String>, line: String, rng: &mut Rng) {
    let (sender, delay) = (sender.clone(), Duration::from_millis(rng.u64(0..60)));
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let _ = sender.send(line + "\n");
    });
}

fn wire(rng: &mut Rng) -> [Transport; 2] {
    let mut ends = Vec::new();
    let mut middle = Vec::new();
    for _ in 0..2 {
        let ((input, into), (output, out)) = (tokio::io::duplex(1 << 16), tokio::io::duplex(1 << 16));
        ends.push(Transport::new(input, output));
        middle.push((out, into));
    }
    let [(out_of_a, into_a), (out_of_b, into_b)] = <[_; 2]>::try_from(middle).ok().unwrap();
    tokio::spawn(carry(out_of_a, into_b, rng.fork()));
    tokio::spawn(carry(out_of_b, into_a, rng.fork()));
    <[_; 2]>::try_from(ends).ok().unwrap()
}

/// One action of one side, with its possible outcomes.
async fn act(peer: PeerAgent, name: String, log: Arc<Log>, mut rng: Rng, closes: bool) {
    let pause = |rng: &mut Rng| tokio::time::sleep(Duration::from_millis(rng.u64(0..400)));
    pause(&mut rng).await;
    match rng.u8(0..6) {
        0 => {
            let deadline = Duration::from_millis(rng.u64(50..500));
            match peer.query(&*name).deadline(deadline).await {
                Ok(answer) => assert_eq!(answer.summary, name),
                Err(Error::Timeout { .. }) => {}
                Err(error) => assert!(is_lost(closes, &error), "{error}"),
            }
            return;
        }
        1 => {
            log.sent.lock_unpoisoned().push(name.clone());
            if let Err(error) = peer.notify(&*name, json!({})).await {
                assert!(is_lost(closes, &error), "{error}");
            }
            return;
        }
        _ => {}
    }
    let mut task = peer.delegate(&*name);
    if rng.bool() {
        task = task.urgent();
    }
    // A task that never ends by itself needs a deadline.
    task = task.deadline(Duration::from_millis(rng.u64(100..2_000)));
    if rng.u8(0..4) == 0 {
        task = task.ack_timeout(Duration::from_millis(rng.u64(10..150)));
    }
    let task = match task.await {
        Ok(task) => task,
        Err(Error::Declined(fault)) => return assert_eq!(fault.message, name),
        Err(error) => {
            // The end of a task may overtake its `ack`.
            let expected = matches!(error.code(), EnvelopeErrorCode::Overloaded) || ends_badly(&error);
            return assert!(expected || is_lost(closes, &error), "{error}");
        }
    };
    let cancels = match rng.u8(0..4) {
        0 => {
            if rng.bool() {
                pause(&mut rng).await;
            }
            return drop(task);
        }
        1 => {
            pause(&mut rng).await;
            if let Err(error) = task.cancel("on purpose").await {
                assert!(is_lost(closes, &error), "{error}");
            }
            true
        }
        _ => false,
    };
    match task.result().await {
        Ok(outcome) => {
            assert_eq!(outcome.outcome, name);
            log.claimed.lock_unpoisoned().push(name);
        }
        Err(error) => {
            let cancelled = cancels && error.code() == EnvelopeErrorCode::Cancelled;
            assert!(cancelled || ends_badly(&error) || is_lost(closes, &error), "{error}");
        }
    }
}

fn ends_badly(error: &Error) -> bool {
    matches!(
        error.code(),
        EnvelopeErrorCode::Internal | EnvelopeErrorCode::UnknownDomain | EnvelopeErrorCode::Timeout
    )
}

/// Returns true for failures caused by the end of the connection. The side that closes it cancels
/// its own calls.
fn is_lost(closes: bool, error: &Error) -> bool {
    closes && matches!(error.code(), EnvelopeErrorCode::Unreachable | EnvelopeErrorCode::Cancelled)
}

/// With `closes`, one side closes the connection in the middle.
async fn storm(seed: u64, closes: bool) {
    let mut rng = Rng::with_seed(seed);
    let logs = [Arc::new(Log::default()), Arc::new(Log::default())];
    let mut worker = |ours: usize| Worker {
        ours: logs[ours].clone(),
        theirs: logs[1 - ours].clone(),
        rng: Mutex::new(rng.fork()),
    };
    let workers = [worker(0), worker(1)];
    let [a, b] = wire(&mut rng);
    let [first, second] = workers;
    let peers = [connect(a, "a", "b", first), connect(b, "b", "a", second)];
    if closes {
        let (peer, after) = (peers[rng.usize(0..2)].clone(), Duration::from_millis(rng.u64(0..800)));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            peer.rpc().close();
        });
    }
    let acts = (0..24).map(|number| {
        let side = number % 2;
        let name = format!("{side}.{number}");
        tokio::spawn(act(peers[side].clone(), name, logs[side].clone(), rng.fork(), closes))
    });
    for act in futures::future::join_all(acts).await {
        act.unwrap();
    }
    // Longer than all deadlines, grace periods and delays.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for (peer, log) in peers.iter().zip(&logs) {
        let envelopes = &peer.link.envelopes;
        assert_eq!(envelopes.with(|machine| machine.tasks.count()), 0, "slots are free");
        assert!(envelopes.with(|machine| machine.pending.is_empty()), "nobody waits");
        assert_eq!(peer.rpc().pending_requests(), 0);
        assert!(log.begun.lock_unpoisoned().values().all(|times| *times == 1), "nothing is done twice");
        assert_eq!(peer.exchange_stats().dropped, 0, "what has come is handed on");
        assert_eq!(log.active.load(Relaxed), 0);
        if closes {
            assert!(is_part(&log.claimed, &log.done), "no result is claimed twice, or to somebody else");
            assert!(is_part(&log.received, &log.sent), "no notification are received twice");
            continue;
        }
        // A result within the grace period after the deadline counts.
        assert_eq!(sorted(&log.done), sorted(&log.claimed), "each result is claimed once, to somebody");
        assert_eq!(sorted(&log.sent), sorted(&log.received), "notification are received once");
    }
}

/// Returns true if every item of `some` is in `all`, without duplicates.
fn is_part(some: &Mutex<Vec<String>>, all: &Mutex<Vec<String>>) -> bool {
    let (some, all) = (sorted(some), sorted(all));
    some.windows(2).all(|two| two[0] != two[1]) && some.iter().all(|name| all.contains(name))
}

fn sorted(names: &Mutex<Vec<String>>) -> Vec<String> {
    let mut names = names.lock_unpoisoned().clone();
    names.sort();
    names
}

fn run(storm: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(storm);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_message_is_lost_repeated_or_misrouted(seed in any::<u64>()) {
        run(storm(seed, false));
    }

    #[test]
    fn received_messages_survive_the_end_of_the_connection(seed in any::<u64>()) {
        run(storm(seed, true));
    }
}
