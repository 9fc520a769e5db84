//! Two peers that send requests and notifications, cancel, stall and close at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;

use super::caller::{CallEnd, CallerAction, RunningCall, ask};
use super::random_delay::random_delays;
use super::side::{EndFlag, HandlerAction, ROOMY, SimulatedSide, TestMessage, notification};
use super::wire::{SimulatedPipe, wire};
use super::{Campaign, EventCounts, play};
use crate::connection::PeerBuilder;
use crate::error::Error;
use crate::limits::Limits;

/// At most half of the usual counts in a hundred schedules.
const CAMPAIGN: Campaign = Campaign {
    test: "duologue-rpc simulation::pair",
    schedules: 700,
    minimum: &[
        ("requests", 700),
        ("results", 65),
        ("errors", 110),
        ("refused", 20),
        ("given up", 270),
        ("heard", 880),
        ("streamed", 200),
        ("withdrawn", 170),
    ],
    shown: ": the rest told of the end",
};

#[test]
fn every_request_gets_one_answer_and_order_is_kept() {
    CAMPAIGN.play(|seed, steps| play(story(seed, steps, None)).map(|(tally, _)| tally));
}

#[test]
fn a_peer_that_refuses_every_request_fails_the_campaign() {
    let refused = |seed, steps| play(story(seed, steps, Some(0))).map(|(tally, _)| tally);
    CAMPAIGN.misses(&["results", "errors"], refused);
}

/// Without a pending request the reader can pause. Then the senders of its peer wait.
#[test]
fn a_stream_that_nobody_takes_holds_its_sender_back() {
    for seed in 0..8 {
        play(held_back(seed)).unwrap_or_else(|why| panic!("{why}, seed {seed}"));
    }
}

async fn held_back(seed: u64) -> Result<(), String> {
    const MESSAGES: u64 = 300;
    let mut rng = Rng::with_seed(seed);
    let (left, right, pipes) = wire(&mut rng, 1);
    let tight = Limits { queue_bytes: 4000, output_bytes: 700, ..Limits::default() };
    let ending: EndFlag = Arc::new(AtomicBool::new(false));
    let left = SimulatedSide::start(PeerBuilder::new(left).limits(tight.clone()), &mut rng, ending.clone());
    let right = SimulatedSide::start(PeerBuilder::new(right).limits(tight), &mut rng, ending);
    right.taken.send_replace(false);
    let (peer, ledger, mut says) = (left.peer.clone(), left.ledger.clone(), rng.fork());
    let sending = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            let mut order = TestMessage::new(ledger.serial(false), HandlerAction::Streamed, &mut says);
            // All messages together exceed the capacity of any simulated wire.
            order.padding = "x".repeat(600);
            peer.notify_raw("tell", &order).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    });
    while !right.peer.is_paused() && !sending.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let queued = right.peer.shared.budget.used.load(Relaxed);
    if queued > 4000 + 4096 || sending.is_finished() {
        return Err(format!("{queued} bytes are queued and no sender waits"));
    }
    right.taken.send_replace(true);
    sending.await.map_err(|error| error.to_string())??;
    drop(pipes);
    Ok(())
}

#[test]
fn a_schedule_is_a_function_of_its_seed() {
    for seed in 0..50 {
        let played = || play(story(seed, usize::MAX, None)).expect("no fault");
        assert_eq!(played(), played(), "seed {seed}");
    }
}

/// Returns random limits, with `in_flight` if it is set.
fn limits(rng: &mut Rng, in_flight: Option<usize>) -> Limits {
    let limits = Limits {
        frame_bytes: 4096,
        queue_bytes: *rng.choice(&[500, 4000]).unwrap_or(&500),
        queue_bytes_hard: *rng.choice(&[8000, ROOMY]).unwrap_or(&ROOMY),
        in_flight: *rng.choice(&[2, 6, 1000]).unwrap_or(&2),
        output_bytes: *rng.choice(&[1, 700, 1 << 20]).unwrap_or(&1),
        ..Limits::default()
    };
    Limits { in_flight: in_flight.unwrap_or(limits.in_flight), ..limits }
}

/// Runs a schedule. Returns the counts of its events and a hash of everything that was sent.
async fn story(seed: u64, most: usize, in_flight: Option<usize>) -> Result<(EventCounts, u64), String> {
    let mut rng = Rng::with_seed(seed);
    let (left, right, pipes) = wire(&mut rng, 1);
    let ending: EndFlag = Arc::new(AtomicBool::new(false));
    let left = SimulatedSide::start(
        PeerBuilder::new(left).limits(limits(&mut rng, in_flight)),
        &mut rng,
        ending.clone(),
    );
    let right = SimulatedSide::start(
        PeerBuilder::new(right).limits(limits(&mut rng, in_flight)),
        &mut rng,
        ending.clone(),
    );
    let mut story = Story { sides: [left, right], pipes, ending, finished: [false; 2], asking: Vec::new() };
    let steps = rng.usize(1..40);
    let ends_at = if rng.u8(0..3) == 0 { rng.usize(0..steps) } else { usize::MAX };
    for step in 0..steps.min(most) {
        if step == ends_at {
            story.end(&mut rng);
        }
        story.step(&mut rng);
        random_delays(rng.fork(), 4).await;
    }
    if !story.ending.load(Relaxed) {
        story.calm_down().await?;
        story.end(&mut rng);
    }
    story.finish().await
}

struct Story {
    sides: [SimulatedSide; 2],
    pipes: [SimulatedPipe; 2],
    ending: EndFlag,
    /// True for a side that has ended its half.
    finished: [bool; 2],
    asking: Vec<RunningCall>,
}

impl Story {
    fn step(&mut self, rng: &mut Rng) {
        let from = rng.usize(0..2);
        let (side, other) = (&self.sides[from], &self.sides[1 - from]);
        match rng.u8(0..16) {
            0..=8 => {
                let how = *rng.choice(&HandlerAction::ASKED).unwrap_or(&HandlerAction::Now);
                let how = if rng.u8(0..100) == 0 { HandlerAction::Closes } else { how };
                let policy = *rng.choice(&CallerAction::ALL).unwrap_or(&CallerAction::Waits);
                let policy = if rng.u8(0..3) == 0 { CallerAction::Waits } else { policy };
                self.asking.push(ask(side, &other.ledger, how, policy, rng));
            }
            9..=12 => {
                let how = *rng
                    .choice(&[
                        HandlerAction::Now,
                        HandlerAction::PanicsNow,
                        HandlerAction::Streamed,
                        HandlerAction::Streamed,
                    ])
                    .unwrap_or(&HandlerAction::Now);
                for _ in 0..rng.u8(1..4) {
                    let order = TestMessage::new(side.ledger.serial(true), how, rng);
                    let _ = side.peer.shared.send(notification(&order));
                }
            }
            13 => {
                let order = TestMessage::new(side.ledger.serial(false), HandlerAction::Streamed, rng);
                let peer = side.peer.clone();
                self.asking.push(RunningCall {
                    hangs: false,
                    task: tokio::spawn(async move {
                        match peer.notify_raw("tell", &order).await {
                            Ok(()) | Err(Error::Closed(_)) => Ok(CallEnd::GivenUp),
                            Err(error) => Err(error.to_string()),
                        }
                    }),
                });
            }
            14 => {
                let peer = side.peer.clone();
                let task = tokio::spawn(async move {
                    Ok(peer.flush().await.map_or(CallEnd::Over, |()| CallEnd::GivenUp))
                });
                self.asking.push(RunningCall { hangs: false, task });
            }
            _ => {
                let taken = rng.bool();
                side.taken.send_modify(|now| *now = taken);
                side.ledger.books(|books| books.may_stall |= !taken);
            }
        }
    }

    /// Waits until nothing can run. Then only callers of handlers that never respond wait, and all counters
    /// are back to zero.
    async fn calm_down(&mut self) -> Result<(), String> {
        self.sides.iter().for_each(|side| side.taken.send_modify(|taken| *taken = true));
        tokio::time::sleep(Duration::from_secs(60)).await;
        if self.ending.load(Relaxed) {
            return Ok(());
        }
        if self.asking.iter().any(|asking| !asking.hangs && !asking.task.is_finished()) {
            return Err("a caller waits for ever".into());
        }
        let hanging = self.asking.iter().filter(|asking| !asking.task.is_finished()).count();
        let mut pending = 0;
        for (side, pipe) in self.sides.iter().zip(&self.pipes) {
            let Some(shared) = side.shared.upgrade() else { continue };
            pending += shared.pending.len();
            let (used, unwritten) = (shared.budget.used.load(Relaxed), shared.outbox.unwritten());
            if (used, unwritten, pipe.is_empty()) != (0, 0, true) {
                return Err(format!("{used} bytes in queues, {unwritten} unwritten, and nobody is busy"));
            }
        }
        for (here, there) in [(0, 1), (1, 0)] {
            let sent = self.sides[there].ledger.books(|books| books.sent.len() as u64);
            let refused = self.sides[here].peer.stats().refused;
            self.sides[here].ledger.books(|books| books.received_all(sent, refused))?;
        }
        // Every pending request has exactly one caller that waits.
        if pending != hanging {
            return Err(format!("{pending} requests are pending, {hanging} callers wait"));
        }
        Ok(())
    }

    fn end(&mut self, rng: &mut Rng) {
        self.ending.store(true, Relaxed);
        let first = rng.usize(0..2);
        let how = rng.u8(0..5);
        self.sides[first].ledger.books(|books| books.cut |= how != 2);
        match how {
            0 => self.sides[first].peer.close(),
            1 => self.sides.iter().for_each(|side| side.peer.close()),
            2 => {
                self.finished[first] = true;
                self.sides[first].peer.finish();
            }
            3 => self.pipes[first].cut(),
            _ => self.pipes.iter().for_each(SimulatedPipe::cut),
        }
    }

    async fn finish(self) -> Result<(EventCounts, u64), String> {
        let Story { sides, pipes, asking, finished, .. } = self;
        for side in &sides {
            let closed = tokio::time::timeout(Duration::from_secs(60), side.peer.closed()).await;
            closed.map_err(|_| "the connection does not end")?;
        }
        let (mut tally, mut trace) = (EventCounts::default(), 0_u64);
        for asking in asking {
            tally.add("requests", 1);
            let over = tokio::time::timeout(Duration::from_secs(60), asking.task).await;
            match over.map_err(|_| "a caller waits after the end")?.map_err(|error| error.to_string())?? {
                CallEnd::Result => tally.add("results", 1),
                CallEnd::Error => tally.add("errors", 1),
                CallEnd::Refused => tally.add("refused", 1),
                CallEnd::GivenUp => tally.add("given up", 1),
                CallEnd::Over => {}
            }
        }
        // Let the consumers take the rest of the streams.
        sides.iter().for_each(|side| side.taken.send_modify(|taken| *taken = true));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let cut = sides.iter().any(|side| side.ledger.books(|books| books.cut));
        for (here, there) in [(0, 1), (1, 0)] {
            let (side, other) = (&sides[here], &sides[there]);
            let other = other.ledger.books(std::mem::take);
            side.ledger.books(|books| {
                books.check(&other, side.peer.stats().refused)?;
                if !finished[here] {
                    books.answered_all(&other)?;
                }
                // A side that ends its half has sent everything before.
                if finished[there] && !cut {
                    books.received_all(other.sent.len() as u64, side.peer.stats().refused)?;
                }
                trace = trace.rotate_left(7) ^ books.trace;
                tally.add("heard", books.received.len() as u64);
                tally.add("streamed", books.pushed.len() as u64);
                tally.add("withdrawn", books.withdrawn.len() as u64);
                Ok::<_, String>(())
            })?;
            sides[there].ledger.books(|books| *books = other);
            let shared = &side.peer.shared;
            let left =
                (side.peer.pending_requests(), shared.in_flight_len(), shared.budget.used.load(Relaxed));
            if left != (0, (0, 0), 0) {
                return Err(format!("left over: {left:?} of pending, in flight and queued"));
            }
        }
        drop(pipes);
        let weak: Vec<_> = sides.iter().map(|side| side.shared.clone()).collect();
        drop(sides);
        if weak.iter().any(|shared| shared.strong_count() > 0) {
            return Err("somebody keeps the connection".into());
        }
        Ok((tally, trace))
    }
}
