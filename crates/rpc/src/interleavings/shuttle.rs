//! Two whole connections over small pipes, in random interleavings.
//!
//! Reader, writer, handlers and callers are tasks that can be preempted at every lock, atomic and await, as
//! on a runtime with many threads. The pipes split reads and writes anywhere. In one model the clock stands
//! still, so that no timer hides a lost wake-up. In the other it jumps at random moments, so that a timer
//! fires before or after any other event. A deadlock fails the schedule.
//!
//! `DUOLOGUE_RUNS` sets the number of schedules of each model and `DUOLOGUE_SEED` the first seed. A failing
//! schedule is printed as a string. `DUOLOGUE_SCHEDULE` replays it.

mod pipe;
mod service;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner, future};

use self::pipe::pipe;
use self::service::{ModelService, NoteLedger};
use crate::connection::PeerBuilder;
use crate::error::Error;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::transport::Transport;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The clock stands still, so nothing may depend on a timer.
    Stands,
    /// Timers fire at random moments.
    Runs,
}

/// Plays a model `DUOLOGUE_RUNS` times. Most schedules are random. Some have few preemptions, which delays
/// a task for long.
#[allow(clippy::print_stdout, reason = "what was measured")]
fn many_orders(name: &str, clock: Clock, model: fn()) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    // The runtime only provides the clock.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime: &'static tokio::runtime::Runtime = Box::leak(Box::new(runtime.expect("a runtime")));
    let _entered = runtime.enter();
    let model = move || {
        let over = Arc::new(AtomicBool::new(false));
        if clock == Clock::Runs {
            let over = over.clone();
            drop(future::spawn(async move {
                while !over.load(Relaxed) {
                    let step = Duration::from_millis(thread_rng().gen_range(10..500));
                    runtime.block_on(tokio::time::advance(step));
                    future::yield_now().await;
                }
            }));
        }
        model();
        over.store(true, Relaxed);
    };
    if let Ok(schedule) = std::env::var("DUOLOGUE_SCHEDULE") {
        play(ReplayScheduler::new_from_encoded(&schedule), model);
        return;
    }
    let runs = number("DUOLOGUE_RUNS").unwrap_or(200);
    let seed = number("DUOLOGUE_SEED")
        .or_else(|| number("DUOLOGUE_FIRST_SEED"))
        .unwrap_or_else(|| std::process::id().into());
    println!("DUOLOGUE_SEED={seed}");
    let held_back = usize::try_from(runs / 5).expect("fewer");
    let random = usize::try_from(runs).expect("fewer") - held_back;
    let played = play(RandomScheduler::new_from_seed(seed, random), model)
        + play(PctScheduler::new_from_seed(seed, 3, held_back), model);
    println!("measured: {name}: {played} schedules");
}

fn play(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model)
}

/// Small limits.
fn tight() -> Limits {
    Limits {
        queue_bytes: 300,
        queue_bytes_hard: 1 << 20,
        output_bytes: 200,
        in_flight: 8,
        // Longer than the clock ever runs, so nothing stalls.
        stall_timeout: Duration::from_secs(1 << 20),
        ..Limits::default()
    }
}

/// Two connections with the ledger of their messages.
struct Pair {
    peers: [Peer; 2],
    ledger: Arc<NoteLedger>,
    gentle: bool,
    /// Set before a side is closed. Calls may fail after it.
    ending: Arc<AtomicBool>,
}

impl Pair {
    fn start(gentle: bool) -> Self {
        let ledger = Arc::new(NoteLedger::new(gentle));
        let (there, from_here) = pipe(64);
        let (here, from_there) = pipe(64);
        let start = |transport, side| {
            let ledger = ledger.clone();
            PeerBuilder::new(transport).limits(tight()).start(|peer| ModelService::new(peer, side, ledger))
        };
        let peers = [
            start(Transport::new(here, from_here).writes_at_once(), 0),
            start(Transport::new(there, from_there), 1),
        ];
        Pair { peers, ledger, gentle, ending: Arc::default() }
    }

    /// Waits for the end of both sides and checks that nothing is left.
    async fn end(self) {
        for peer in &self.peers {
            peer.closed().await;
            if !self.gentle {
                // The clock may have jumped over the remaining time of a handler.
                peer.shared.tasks.wait().await;
            }
            assert_eq!(peer.shared.tasks.len(), 0);
            assert_eq!(peer.pending_requests(), 0);
            assert_eq!(peer.shared.in_flight.lock().expect("a lock").bytes, 0);
            assert_eq!(peer.shared.budget.used.load(Relaxed), 0);
        }
        self.ledger.check_all_ended();
    }
}

/// Runs a caller, which sends requests in several ways in random order.
async fn call(peer: Peer, ledger: Arc<NoteLedger>, ending: Arc<AtomicBool>, from: usize, caller: u64) {
    for _ in 0..thread_rng().gen_range(1..4) {
        let fails_rightly = |error: &Error| match error {
            Error::Closed(_) => assert!(ending.load(Relaxed), "{error}"),
            Error::Response(_) => {}
            other => panic!("{other}"),
        };
        match thread_rng().gen_range(0..6) {
            0 => match peer.call::<_, u64>("_echo", &[caller]).await {
                Ok(echoed) => assert_eq!(echoed, caller),
                Err(error) => fails_rightly(&error),
            },
            // The handler sends a request back before it responds.
            1 => match peer.call::<_, u64>("_back", &[caller]).await {
                Ok(echoed) => assert_eq!(echoed, caller),
                Err(error) => fails_rightly(&error),
            },
            // The future is dropped at once or a little later.
            2 => {
                let asked = peer.call::<_, u64>("_wait", &[caller]);
                if thread_rng().gen_bool(0.5) {
                    future::yield_now().await;
                }
                drop(asked);
            }
            // The request is cancelled and its response is awaited.
            3 => {
                let asked = peer.call::<_, u64>("_wait", &[caller]);
                asked.cancel();
                if let Err(error) = asked.await {
                    fails_rightly(&error);
                }
            }
            4 => {
                let number = ledger.next(from, caller);
                match peer.notify_raw("_note", &[caller, number]).await {
                    Ok(()) => ledger.sent(from, caller),
                    Err(error) => fails_rightly(&error),
                }
            }
            _ => {
                if let Err(error) = peer.flush().await {
                    fails_rightly(&error);
                }
            }
        }
    }
}

/// Runs a queue that the reader feeds and that ends with the response of a request, like a turn.
async fn turn(peer: Peer, ending: Arc<AtomicBool>, streams: service::ItemStream) {
    let (sender, mut queue) = peer.queue::<u64>();
    streams.register(&sender);
    let cancelled = Arc::new(AtomicBool::new(false));
    let shortened = {
        let cancelled = cancelled.clone();
        move || cancelled.load(Relaxed) || ending.load(Relaxed)
    };
    let answers = Arc::new(AtomicU64::new(0));
    let deliver = {
        let (answers, sender, shortened) = (answers.clone(), sender.clone(), shortened.clone());
        move |answer: Result<u64, Error>| {
            assert!(matches!(answer, Ok(5)) || shortened(), "{answer:?}");
            answers.fetch_add(1, Relaxed);
            sender.finish();
        }
    };
    let asked = match peer.request_into(&service::ItemsRequest { items: 5 }, Some(sender.id()), deliver) {
        Ok(asked) => asked,
        Err(error) => return assert!(shortened(), "{error}"),
    };
    let patience = thread_rng().gen_range(0..8);
    let mut expected = 1;
    while let Some(item) = queue.next().await {
        match item {
            Ok(item) => assert_eq!(item, expected, "out of order"),
            Err(error) => {
                assert!(matches!(error, Error::Closed(_)) && shortened(), "{error}");
                return;
            }
        }
        if expected == patience {
            match thread_rng().gen_range(0..3) {
                0 => {
                    cancelled.store(true, Relaxed);
                    asked.cancel();
                }
                1 => return drop(queue),
                // The consumer sends a request while its queue is full.
                _ => drop(peer.call::<_, u64>("_echo", &[0]).await),
            }
        }
        expected += 1;
    }
    assert_eq!(answers.load(Relaxed), 1);
    assert!(expected == 6 || shortened(), "{expected} items");
}

/// Runs callers on both sides until they finish, then closes one side.
fn a_conversation() {
    future::block_on(async {
        let pair = Pair::start(true);
        let mut callers = Vec::new();
        for (side, peer) in pair.peers.iter().enumerate() {
            for caller in 0..2 {
                let (ledger, ending) = (pair.ledger.clone(), pair.ending.clone());
                callers.push(future::spawn(call(peer.clone(), ledger, ending, side, caller)));
            }
        }
        let streams = pair.ledger.streams(0);
        callers.push(future::spawn(turn(pair.peers[0].clone(), pair.ending.clone(), streams)));
        for caller in callers {
            caller.await.expect("no panic");
        }
        // After a request and its response in each direction, all messages have arrived.
        for peer in &pair.peers {
            let echoed = peer.call::<_, u64>("_echo", &[7]).await;
            assert!(matches!(echoed, Ok(7)), "{echoed:?}");
        }
        pair.ledger.check_all_received();
        pair.ending.store(true, Relaxed);
        pair.peers[thread_rng().gen_range(0..2)].close();
        pair.end().await;
    });
}

/// Runs callers and ends the connection at any moment: closed or finished by either side, or a broken pipe.
fn an_end_at_any_moment() {
    future::block_on(async {
        let pair = Pair::start(false);
        let mut callers = Vec::new();
        for (side, peer) in pair.peers.iter().enumerate() {
            let (ledger, ending) = (pair.ledger.clone(), pair.ending.clone());
            callers.push(future::spawn(call(peer.clone(), ledger, ending, side, 0)));
        }
        let streams = pair.ledger.streams(1);
        callers.push(future::spawn(turn(pair.peers[1].clone(), pair.ending.clone(), streams)));
        for _ in 0..thread_rng().gen_range(0..12) {
            future::yield_now().await;
        }
        pair.ending.store(true, Relaxed);
        let peer = &pair.peers[thread_rng().gen_range(0..2)];
        match thread_rng().gen_range(0..3) {
            0 => peer.finish(),
            1 => peer.shared.outbox.close(crate::error::Closed::Local),
            _ => {}
        }
        peer.close();
        for caller in callers {
            caller.await.expect("no panic");
        }
        pair.end().await;
    });
}

#[test]
fn conversations() {
    many_orders("two connections, closed when all is said", Clock::Stands, a_conversation);
}

#[test]
fn ends() {
    many_orders("two connections, closed at any moment", Clock::Runs, an_end_at_any_moment);
}
