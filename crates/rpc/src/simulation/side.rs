//! One side of a story: a peer, the handlers it has, and who takes its stream.

use std::sync::{Arc, Mutex, Weak};

use duologue_schema::Error as WireError;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::ledger::{Eyes, Ledger};
use super::panic_quietly;
use super::whim::{Whim, dawdle};
use crate::connection::{Connection, Shared};
use crate::error::{Closed, Error};
use crate::peer::Peer;
use crate::queue::{Queue, QueueSender};
use crate::service::{Incoming, Responder, Service};
use crate::sync::Lock;

/// What a message asks of the handler that gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    Now,
    Later,
    /// After some notifications of its own.
    Chatty,
    Never,
    /// Never either, but without a task: the responder is put away.
    Kept,
    /// Only once it is cancelled.
    Patient,
    Dropped,
    PanicsNow,
    PanicsLater,
    /// In a task that has the responder.
    PanicsWith,
    NotFound,
    /// More than a line may hold.
    TooLarge,
    /// Asks back and waits for the answer.
    AsksBack,
    /// Closes the connection it came over.
    Closes,
    /// A notification for the stream.
    Streamed,
}

impl How {
    pub(super) const ASKED: [How; 13] = [
        How::Now,
        How::Later,
        How::Chatty,
        How::Never,
        How::Kept,
        How::Patient,
        How::Dropped,
        How::PanicsNow,
        How::PanicsLater,
        How::PanicsWith,
        How::NotFound,
        How::TooLarge,
        How::AsksBack,
    ];

    /// Whether its handler may never answer if nobody makes it.
    pub(super) fn may_hang(self) -> bool {
        matches!(self, How::Never | How::Kept | How::Patient)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) n: u64,
    pub(super) how: How,
    pub(super) seed: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) padding: String,
}

impl Order {
    pub(super) fn new(n: u64, how: How, rng: &mut Rng) -> Self {
        let padding = "x".repeat(if rng.u8(0..8) == 0 { rng.usize(0..600) } else { 0 });
        Order { n, how, seed: rng.u64(..1 << 20), padding }
    }
}

/// More than any story says.
pub(super) const ROOMY: usize = 1 << 20;

pub(super) struct Side {
    pub(super) peer: Peer,
    pub(super) ledger: Arc<Ledger>,
    pub(super) shared: Weak<Shared>,
    pub(super) stream: QueueSender<u64>,
    /// Whether the stream is taken; who takes it ends with this.
    pub(super) taken: watch::Sender<bool>,
    /// Whether somebody has begun to end the connection.
    pub(super) ending: Ending,
}

pub(super) type Ending = Arc<std::sync::atomic::AtomicBool>;

impl Side {
    pub(super) fn start(connection: Connection, rng: &mut Rng, ending: Ending) -> Self {
        let ledger = Arc::new(Ledger::default());
        let eyes = Eyes { ledger: ledger.clone(), rng: rng.bool().then(|| Mutex::new(rng.fork())) };
        let mut stream = None;
        let peer = connection.tap(Arc::new(eyes)).start(|peer| {
            let (sender, queue) = peer.queue();
            stream = Some((sender.clone(), queue));
            Scripted {
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
        Side { peer, ledger, shared, stream: sender, taken, ending }
    }
}

/// Takes the stream whenever it is to be taken: all that was pushed comes out, in that order, unless
/// the stream is ended for not being taken.
async fn take(mut queue: Queue<u64>, mut taken: watch::Receiver<bool>, ledger: Arc<Ledger>, rng: Rng) {
    let mut whim = Whim::new(rng);
    let (mut out, mut fidgets) = (Vec::new(), 30_u32);
    loop {
        whim.rest().await;
        if taken.wait_for(|taken| *taken).await.is_err() {
            return;
        }
        // At first another future each time: one that is dropped half-way must not lose an item.
        fidgets = fidgets.saturating_sub(1);
        let item = tokio::select! {
            biased;
            item = queue.next() => item,
            () = dawdle(whim.rng().fork(), 1), if fidgets > 0 => continue,
        };
        match item {
            // Some leave, with all that the stream still holds.
            Some(Ok(serial)) => {
                out.push(serial);
                if whim.rng().u8(0..30) == 0 {
                    return came_out(&ledger, &out, false);
                }
            }
            Some(Err(Error::Stalled { .. })) => {
                if !ledger.books(|books| books.may_stall) {
                    ledger.fault("a stream was ended that was being taken");
                }
                return came_out(&ledger, &out, false);
            }
            Some(Err(_)) | None => return came_out(&ledger, &out, true),
        }
    }
}

/// What came out is what went in, in that order, and all of it at the end.
fn came_out(ledger: &Ledger, out: &[u64], whole: bool) {
    let pushed = ledger.books(|books| books.pushed.clone());
    if !pushed.starts_with(out) || (whole && pushed.len() != out.len()) {
        ledger.fault(format!("{pushed:?} went into the stream, {out:?} came out"));
    }
}

struct Scripted {
    peer: Peer,
    ledger: Arc<Ledger>,
    stream: QueueSender<u64>,
    kept: Mutex<Vec<Responder>>,
    ending: Ending,
}

impl Scripted {
    fn heard(&self, incoming: Incoming<'_>) -> Option<Order> {
        let order: Option<Order> = incoming.params.and_then(|params| serde_json::from_str(params.get()).ok());
        match &order {
            Some(order) => self.ledger.books(|books| books.heard.push(order.n)),
            None => self.ledger.fault("a message whose params are not what was sent"),
        }
        order
    }
}

impl Service for Scripted {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let Some(order) = self.heard(request) else { return };
        let n = order.n;
        let mut rng = Rng::with_seed(order.seed);
        match order.how {
            How::Now | How::Streamed => responder.respond(Ok(n)),
            How::NotFound => responder.method_not_found(request.method),
            How::TooLarge => responder.respond(Ok("x".repeat(5000))),
            How::Dropped => drop(responder),
            How::PanicsNow => panic_quietly(),
            How::Kept => {
                self.ledger.books(|books| books.kept.push(n));
                self.kept.lock_unpoisoned().push(responder);
            }
            How::Closes => {
                self.ending.store(true, std::sync::atomic::Ordering::Relaxed);
                self.ledger.books(|books| books.cut = true);
                self.peer.close();
                responder.respond(Ok(n));
            }
            How::Never => responder.spawn(std::future::pending::<Result<u64, WireError>>()),
            How::Later => responder.spawn(async move {
                dawdle(rng, 6).await;
                Ok(n)
            }),
            How::PanicsLater => responder.spawn(async move {
                dawdle(rng, 3).await;
                if n > 0 { panic_quietly() } else { Ok(n) }
            }),
            How::PanicsWith => responder.spawn_with(async move |responder: Responder| {
                dawdle(rng, 3).await;
                if n > 0 {
                    panic_quietly();
                }
                drop(responder);
            }),
            How::Patient => responder.spawn_with(async move |responder: Responder| {
                responder.cancellation().cancelled().await;
                dawdle(rng, 3).await;
                responder.respond(Ok(n));
            }),
            How::Chatty => {
                for _ in 0..rng.u8(0..4) {
                    let order = Order::new(self.ledger.serial(true), How::Now, &mut rng);
                    let _ = self.peer.shared.send(notification(&order));
                }
                responder.respond(Ok(n));
            }
            How::AsksBack => {
                let (peer, ledger) = (self.peer.clone(), self.ledger.clone());
                responder.spawn(async move {
                    dawdle(rng.fork(), 3).await;
                    let how = *rng
                        .choice(&[How::Now, How::Later, How::AsksBack, How::Dropped])
                        .unwrap_or(&How::Now);
                    let order = Order::new(ledger.serial(true), how, &mut rng);
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
        let Some(order) = self.heard(notification) else { return };
        match order.how {
            How::PanicsNow => panic_quietly(),
            How::Streamed if self.stream.push(order.n, notification.wire_bytes).is_ok() => {
                self.ledger.books(|books| books.pushed.push(order.n));
            }
            _ => {}
        }
    }

    fn closed(&self, _: &Closed) {
        self.ledger.books(|books| books.closed += 1);
    }
}

pub(super) fn notification(order: &Order) -> crate::frame::Frame {
    crate::frame::Frame::notification("tell", order).expect("an order has a JSON form")
}
