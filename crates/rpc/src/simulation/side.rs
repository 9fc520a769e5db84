//! One side of a simulation: a peer, its handlers and the consumer of its stream.

use std::sync::{Arc, Mutex, Weak};

use duologue_schema::Error as WireError;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::ledger::{LedgerTap, SideLedger};
use super::panic_quietly;
use super::random_delay::{RandomDelay, random_delays};
use crate::connection::{ConnectionState, PeerBuilder};
use crate::error::{Closed, Error};
use crate::peer::Peer;
use crate::queue::{Queue, QueueSender};
use crate::service::{Incoming, Responder, Service};
use crate::sync::Lock;

/// The behaviour that a message requests from its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HandlerAction {
    Now,
    Later,
    /// Sends some notifications before it responds.
    Chatty,
    Never,
    /// Never responds, and keeps the responder without a task.
    Kept,
    /// Responds only after it is cancelled.
    Patient,
    Dropped,
    PanicsNow,
    PanicsLater,
    /// Panics in a task that owns the responder.
    PanicsWith,
    NotFound,
    /// Responds with more than the limit of a line.
    TooLarge,
    /// Sends a request back and waits for the response.
    AsksBack,
    /// Closes the connection it came over.
    Closes,
    /// A notification for the stream.
    Streamed,
}

impl HandlerAction {
    pub(super) const ASKED: [HandlerAction; 13] = [
        HandlerAction::Now,
        HandlerAction::Later,
        HandlerAction::Chatty,
        HandlerAction::Never,
        HandlerAction::Kept,
        HandlerAction::Patient,
        HandlerAction::Dropped,
        HandlerAction::PanicsNow,
        HandlerAction::PanicsLater,
        HandlerAction::PanicsWith,
        HandlerAction::NotFound,
        HandlerAction::TooLarge,
        HandlerAction::AsksBack,
    ];

    /// Returns true if the handler may never respond by itself.
    pub(super) fn may_hang(self) -> bool {
        matches!(self, HandlerAction::Never | HandlerAction::Kept | HandlerAction::Patient)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TestMessage {
    pub(super) n: u64,
    pub(super) how: HandlerAction,
    pub(super) seed: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) padding: String,
}

impl TestMessage {
    pub(super) fn new(n: u64, how: HandlerAction, rng: &mut Rng) -> Self {
        let padding = "x".repeat(if rng.u8(0..8) == 0 { rng.usize(0..600) } else { 0 });
        TestMessage { n, how, seed: rng.u64(..1 << 20), padding }
    }
}

/// More than the bytes of any simulation.
pub(super) const ROOMY: usize = 1 << 20;

pub(super) struct SimulatedSide {
    pub(super) peer: Peer,
    pub(super) ledger: Arc<SideLedger>,
    pub(super) shared: Weak<ConnectionState>,
    pub(super) stream: QueueSender<u64>,
    /// True while the stream is taken. Its consumer ends when this is dropped.
    pub(super) taken: watch::Sender<bool>,
    /// True after a side began to end the connection.
    pub(super) ending: EndFlag,
}

pub(super) type EndFlag = Arc<std::sync::atomic::AtomicBool>;

impl SimulatedSide {
    pub(super) fn start(connection: PeerBuilder, rng: &mut Rng, ending: EndFlag) -> Self {
        let ledger = Arc::new(SideLedger::default());
        let eyes = LedgerTap { ledger: ledger.clone(), rng: rng.bool().then(|| Mutex::new(rng.fork())) };
        let mut stream = None;
        let peer = connection.tap(Arc::new(eyes)).start(|peer| {
            let (sender, queue) = peer.queue();
            stream = Some((sender.clone(), queue));
            SimulatedService {
                peer: peer.clone(),
                ledger: ledger.clone(),
                stream: sender,
                kept: Mutex::default(),
                ending: ending.clone(),
            }
        });
        let Some((sender, queue)) = stream else { unreachable!("the service has been made") };
        let roomy = peer.limits().queue_bytes_hard >= ROOMY;
        ledger.books(|books| books.may_stall = !roomy);
        let taken = watch::Sender::new(true);
        tokio::spawn(take(queue, taken.subscribe(), ledger.clone(), rng.fork()));
        let shared = Arc::downgrade(&peer.shared);
        let _ = ledger.shared.set(shared.clone());
        SimulatedSide { peer, ledger, shared, stream: sender, taken, ending }
    }
}

/// Takes the stream while `taken` is true. Checks that all items come out in order, unless the stream stalled.
async fn take(mut queue: Queue<u64>, mut taken: watch::Receiver<bool>, ledger: Arc<SideLedger>, rng: Rng) {
    let mut whim = RandomDelay::new(rng);
    let (mut out, mut fidgets) = (Vec::new(), 30_u32);
    loop {
        whim.rest().await;
        if taken.wait_for(|taken| *taken).await.is_err() {
            return;
        }
        // At first with a new future each time, because a dropped future must not lose an item.
        fidgets = fidgets.saturating_sub(1);
        let item = tokio::select! {
            biased;
            item = queue.next() => item,
            () = random_delays(whim.rng().fork(), 1), if fidgets > 0 => continue,
        };
        match item {
            // Some consumers stop early and drop the rest of the stream.
            Some(Ok(serial)) => {
                out.push(serial);
                if whim.rng().u8(0..30) == 0 {
                    return check_taken(&ledger, &out, false);
                }
            }
            Some(Err(Error::Stalled { .. })) => {
                if !ledger.books(|books| books.may_stall) {
                    ledger.fault("a stream was ended that was being taken");
                }
                return check_taken(&ledger, &out, false);
            }
            Some(Err(_)) | None => return check_taken(&ledger, &out, true),
        }
    }
}

/// Checks that the items came out in order, and all of them if `whole` is true.
fn check_taken(ledger: &SideLedger, out: &[u64], whole: bool) {
    let pushed = ledger.books(|books| books.pushed.clone());
    if !pushed.starts_with(out) || (whole && pushed.len() != out.len()) {
        ledger.fault(format!("{pushed:?} went into the stream, {out:?} came out"));
    }
}

struct SimulatedService {
    peer: Peer,
    ledger: Arc<SideLedger>,
    stream: QueueSender<u64>,
    kept: Mutex<Vec<Responder>>,
    ending: EndFlag,
}

impl SimulatedService {
    fn receive(&self, incoming: Incoming<'_>) -> Option<TestMessage> {
        let order: Option<TestMessage> =
            incoming.params.and_then(|params| serde_json::from_str(params.get()).ok());
        match &order {
            Some(order) => self.ledger.books(|books| books.received.push(order.n)),
            None => self.ledger.fault("a message whose params are not what was sent"),
        }
        order
    }
}

impl Service for SimulatedService {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let Some(order) = self.receive(request) else { return };
        let n = order.n;
        let mut rng = Rng::with_seed(order.seed);
        match order.how {
            HandlerAction::Now | HandlerAction::Streamed => responder.respond(Ok(n)),
            HandlerAction::NotFound => responder.method_not_found(request.method),
            HandlerAction::TooLarge => responder.respond(Ok("x".repeat(5000))),
            HandlerAction::Dropped => drop(responder),
            HandlerAction::PanicsNow => panic_quietly(),
            HandlerAction::Kept => {
                self.ledger.books(|books| books.kept.push(n));
                self.kept.lock_unpoisoned().push(responder);
            }
            HandlerAction::Closes => {
                self.ending.store(true, std::sync::atomic::Ordering::Relaxed);
                self.ledger.books(|books| books.cut = true);
                self.peer.close();
                responder.respond(Ok(n));
            }
            HandlerAction::Never => responder.spawn(std::future::pending::<Result<u64, WireError>>()),
            HandlerAction::Later => responder.spawn(async move {
                random_delays(rng, 6).await;
                Ok(n)
            }),
            HandlerAction::PanicsLater => responder.spawn(async move {
                random_delays(rng, 3).await;
                if n > 0 { panic_quietly() } else { Ok(n) }
            }),
            HandlerAction::PanicsWith => responder.spawn_with(async move |responder: Responder| {
                random_delays(rng, 3).await;
                if n > 0 {
                    panic_quietly();
                }
                drop(responder);
            }),
            HandlerAction::Patient => responder.spawn_with(async move |responder: Responder| {
                responder.cancellation().cancelled().await;
                random_delays(rng, 3).await;
                responder.respond(Ok(n));
            }),
            HandlerAction::Chatty => {
                for _ in 0..rng.u8(0..4) {
                    let order = TestMessage::new(self.ledger.serial(true), HandlerAction::Now, &mut rng);
                    let _ = self.peer.shared.send(notification(&order));
                }
                responder.respond(Ok(n));
            }
            HandlerAction::AsksBack => {
                let (peer, ledger) = (self.peer.clone(), self.ledger.clone());
                responder.spawn(async move {
                    random_delays(rng.fork(), 3).await;
                    let how = *rng
                        .choice(&[
                            HandlerAction::Now,
                            HandlerAction::Later,
                            HandlerAction::AsksBack,
                            HandlerAction::Dropped,
                        ])
                        .unwrap_or(&HandlerAction::Now);
                    let order = TestMessage::new(ledger.serial(true), how, &mut rng);
                    let answer = peer.call::<_, u64>("ask", &order).await;
                    if let Ok(answer) = answer
                        && answer != order.n
                    {
                        ledger.fault(format!("{answer} was the answer to {}", order.n));
                    }
                    Ok(n)
                });
            }
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        let Some(order) = self.receive(notification) else { return };
        match order.how {
            HandlerAction::PanicsNow => panic_quietly(),
            HandlerAction::Streamed if self.stream.push(order.n, notification.wire_bytes).is_ok() => {
                self.ledger.books(|books| books.pushed.push(order.n));
            }
            _ => {}
        }
    }

    fn closed(&self, _: &Closed) {
        self.ledger.books(|books| books.closed += 1);
    }
}

pub(super) fn notification(order: &TestMessage) -> crate::frame::Frame {
    crate::frame::Frame::notification("tell", order).expect("an order has a JSON form")
}
