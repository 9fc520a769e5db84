//! Who asks: waits, gives up, cancels, leaves it running, at any point; and what must come of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use duologue_schema::Error as WireError;
use fastrand::Rng;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ledger::Ledger;
use super::side::{Ending, How, Order, Side};
use super::whim::dawdle;
use crate::error::Error;
use crate::peer::Peer;
use crate::pending::{Deliver, Reply};

/// What a caller does besides asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Waits,
    Drops,
    TimesOut,
    CancelsAndWaits,
    CancelsAndDrops,
    Detaches,
    /// Lets the reader deliver the answer.
    Into,
    IntoAndCancels,
    IntoAndForgets,
}

impl Policy {
    pub(super) const ALL: [Policy; 9] = [
        Policy::Waits,
        Policy::Drops,
        Policy::TimesOut,
        Policy::CancelsAndWaits,
        Policy::CancelsAndDrops,
        Policy::Detaches,
        Policy::Into,
        Policy::IntoAndCancels,
        Policy::IntoAndForgets,
    ];
}

/// How a request ended for its caller.
pub(super) enum Ended {
    Result,
    /// An error of the handler, or about it.
    Error,
    /// Too many requests were in flight.
    Refused,
    /// No answer came before the end, or in time.
    Over,
    GivenUp,
}

/// A request on its way. `hangs` says that nobody may ever answer it.
pub(super) struct Asking {
    pub(super) hangs: bool,
    pub(super) task: JoinHandle<Result<Ended, String>>,
}

/// Asks `other` through `side`. The request leaves before this returns.
pub(super) fn ask(side: &Side, other: &Arc<Ledger>, how: How, policy: Policy, rng: &mut Rng) -> Asking {
    let caller = Caller {
        peer: side.peer.clone(),
        ledger: side.ledger.clone(),
        other: other.clone(),
        ending: side.ending.clone(),
        order: Order::new(side.ledger.serial(true), how, rng),
        policy,
        cancelled: false,
    };
    let waits = matches!(policy, Policy::Waits | Policy::Into);
    let cancels = matches!(policy, Policy::CancelsAndWaits | Policy::IntoAndCancels);
    // A responder that was put away does not see that it is cancelled.
    let hangs = how.may_hang() && (waits || cancels && how == How::Kept);
    let rng = rng.fork();
    let task = match policy {
        Policy::Into | Policy::IntoAndCancels | Policy::IntoAndForgets => caller.ask_into(side, rng),
        _ => caller.ask(rng),
    };
    Asking { hangs, task }
}

struct Caller {
    peer: Peer,
    ledger: Arc<Ledger>,
    other: Arc<Ledger>,
    ending: Ending,
    order: Order,
    policy: Policy,
    cancelled: bool,
}

type Task = JoinHandle<Result<Ended, String>>;

impl Caller {
    fn ask(mut self, mut rng: Rng) -> Task {
        let mut call = self.peer.call::<_, Box<RawValue>>("ask", &self.order);
        if self.policy == Policy::TimesOut {
            call = call.timeout(Duration::from_millis(rng.u64(0..60)));
        }
        let id = call.id();
        tokio::spawn(async move {
            match self.policy {
                Policy::Waits | Policy::TimesOut => self.ended(id, call.await),
                Policy::CancelsAndWaits => {
                    dawdle(rng.fork(), 6).await;
                    for _ in 0..rng.u8(1..3) {
                        self.withdraws(id, || call.cancel())?;
                        dawdle(rng.fork(), 2).await;
                    }
                    self.ended(id, call.await)
                }
                Policy::Detaches => {
                    dawdle(rng, 3).await;
                    drop(call.detach());
                    Ok(Ended::GivenUp)
                }
                _ => {
                    let mut call = Box::pin(call);
                    tokio::select! {
                        biased;
                        // It may be dropped without ever having been polled.
                        () = dawdle(rng.fork(), 6) => {}
                        answer = &mut call => return self.ended(id, answer),
                    }
                    if self.policy == Policy::CancelsAndDrops {
                        self.withdraws(id, || call.cancel())?;
                        dawdle(rng, 2).await;
                    }
                    self.withdraws(id, || drop(call))?;
                    Ok(Ended::GivenUp)
                }
            }
        })
    }

    fn ask_into(mut self, side: &Side, mut rng: Rng) -> Task {
        let (sender, receiver) = oneshot::channel();
        let (peer, ledger, other) = (self.peer.clone(), self.ledger.clone(), self.other.clone());
        let stream = rng.bool().then(|| side.stream.id());
        let (id_sender, id_receiver) = std::sync::mpsc::channel::<u64>();
        let deliver: Deliver = Box::new(move |reply| {
            let answer = match reply {
                Reply::Result(raw) => Ok(raw.to_owned()),
                Reply::Error(error) => Err(Error::Response(error)),
                Reply::Unreadable(_) => Err(Error::Cancelled),
                Reply::Closed(reason) => Err(Error::Closed(reason)),
            };
            // Here the reader is exactly where the answer stood on the wire.
            if !matches!(answer, Err(Error::Closed(_)))
                && let Ok(id) = id_receiver.recv()
            {
                let refused = peer.stats().refused as usize;
                let heard = ledger.books(|books| books.heard.len()) + refused;
                let after = other.books(|books| books.answers.get(&id).map(|answer| answer.after));
                if after != Some(heard) {
                    ledger
                        .fault(format!("answer {id} stood after {after:?} messages, it came after {heard}"));
                }
            }
            let _ = sender.send(answer);
        });
        let asked = self.peer.ask_into("ask", &self.order, stream, deliver);
        if let Ok(asked) = &asked {
            let _ = id_sender.send(asked.id);
        }
        tokio::spawn(async move {
            let asked = match asked {
                Ok(asked) => asked,
                Err(error) => return self.ended(None, Err(error)),
            };
            let id = Some(asked.id);
            if self.policy != Policy::Into {
                dawdle(rng.fork(), 6).await;
            }
            if self.policy == Policy::IntoAndForgets {
                asked.forget();
                let late = receiver.await.is_ok();
                if late && !self.ledger.has_answer(asked.id) && !self.is_ending() {
                    return Err(format!("request {} was forgotten and answered by nobody", asked.id));
                }
                return Ok(Ended::GivenUp);
            }
            if self.policy == Policy::IntoAndCancels {
                for _ in 0..rng.u8(1..3) {
                    self.withdraws(id, || asked.cancel())?;
                }
            }
            match receiver.await {
                Ok(answer) => self.ended(id, answer),
                Err(_) => Err(format!("request {} was never delivered", asked.id)),
            }
        })
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    /// Does what withdraws the request: exactly one `$/cancel_request` leaves if no answer has come,
    /// and none if one has.
    fn withdraws(&mut self, id: Option<u64>, act: impl FnOnce()) -> Result<(), String> {
        let Some(id) = id else {
            act();
            return Ok(());
        };
        let sent = || self.ledger.books(|books| books.withdrawn.get(&id).copied().unwrap_or_default());
        let (before, answered) = (sent(), self.ledger.has_answer(id));
        let over = self.peer.is_closed() || self.peer.shared.outbox.is_over();
        act();
        let after = sent();
        self.cancelled = true;
        match after {
            _ if answered && after != before => Err(format!("request {id} was withdrawn after its answer")),
            0 if !answered && !over => Err(format!("request {id} was not withdrawn")),
            _ => Ok(()),
        }
    }

    /// Whether an answer is one that the handler may have given.
    fn ended(&self, id: Option<u64>, answer: Result<Box<RawValue>, Error>) -> Result<Ended, String> {
        let order = &self.order;
        let is = |text: &str| text == order.n.to_string();
        let cancels = matches!(self.policy, Policy::CancelsAndWaits | Policy::IntoAndCancels);
        let withdrawn = self.cancelled || cancels || self.is_ending();
        let fits = match (&answer, order.how) {
            (Err(Error::Closed(_)), _) => self.is_ending() || self.peer.is_closed(),
            (Err(Error::Timeout { .. }), _) => {
                let once =
                    id.is_some_and(|id| self.ledger.books(|books| books.withdrawn.get(&id) == Some(&1)));
                self.policy == Policy::TimesOut && (once || self.peer.is_closed() || self.is_ending())
            }
            (Err(Error::Response(error)), _) if is_refusal(error) => true,
            (Ok(raw), How::Now | How::Streamed | How::Chatty | How::Closes) => is(raw.get()),
            (Ok(raw), How::Later | How::AsksBack) => is(raw.get()),
            (Ok(raw), How::Patient) => is(raw.get()) && withdrawn,
            (Err(Error::Response(error)), how) => match error.code.0 {
                -32601 => how == How::NotFound,
                // Its handler was dropped after the grace.
                -32800 => {
                    withdrawn && matches!(how, How::Later | How::AsksBack | How::Never | How::PanicsLater)
                }
                -32603 => {
                    let fails =
                        [How::Dropped, How::PanicsNow, How::PanicsLater, How::PanicsWith, How::TooLarge];
                    fails.contains(&how) || how == How::Kept && self.is_ending()
                }
                _ => false,
            },
            _ => false,
        };
        if !fits {
            return Err(format!("{order:?} of {:?} ended with {answer:?}", self.policy));
        }
        let ended = match &answer {
            Ok(_) => Ended::Result,
            Err(Error::Response(error)) if is_refusal(error) => Ended::Refused,
            Err(Error::Response(_)) => Ended::Error,
            Err(_) => Ended::Over,
        };
        let Some((id, true)) = id.map(|id| (id, self.ledger.has_answer(id))) else { return Ok(ended) };
        // What the other said before its answer has been handed to the service by now.
        let after = self.other.books(|books| books.answers.get(&id).map_or(0, |answer| answer.after));
        let heard = self.ledger.books(|books| books.heard.len()) + self.peer.stats().refused as usize;
        if heard < after {
            return Err(format!("answer {id} overtook {} messages", after - heard));
        }
        Ok(ended)
    }
}

fn is_refusal(error: &WireError) -> bool {
    error.message.starts_with("too many requests")
}
