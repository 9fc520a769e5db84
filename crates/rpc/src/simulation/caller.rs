//! Callers that wait, time out, cancel or detach at any point, and the checks of their outcomes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use duologue_schema::Error as WireError;
use fastrand::Rng;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ledger::SideLedger;
use super::random_delay::random_delays;
use super::side::{EndFlag, HandlerAction, SimulatedSide, TestMessage};
use crate::error::Error;
use crate::peer::Peer;
use crate::pending::{Deliver, RawResponse};

/// The behaviour of a caller after it sent its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerAction {
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

impl CallerAction {
    pub(super) const ALL: [CallerAction; 9] = [
        CallerAction::Waits,
        CallerAction::Drops,
        CallerAction::TimesOut,
        CallerAction::CancelsAndWaits,
        CallerAction::CancelsAndDrops,
        CallerAction::Detaches,
        CallerAction::Into,
        CallerAction::IntoAndCancels,
        CallerAction::IntoAndForgets,
    ];
}

/// The end of a request for its caller.
pub(super) enum CallEnd {
    Result,
    /// An error of the handler, or about it.
    Error,
    /// Too many requests were in flight.
    Refused,
    /// No answer came before the end, or in time.
    Over,
    GivenUp,
}

/// A running request. `hangs` is true if it may never get a response.
pub(super) struct RunningCall {
    pub(super) hangs: bool,
    pub(super) task: JoinHandle<Result<CallEnd, String>>,
}

/// Sends a request from `side` to `other`, before this returns.
pub(super) fn ask(
    side: &SimulatedSide,
    other: &Arc<SideLedger>,
    how: HandlerAction,
    policy: CallerAction,
    rng: &mut Rng,
) -> RunningCall {
    let caller = Caller {
        peer: side.peer.clone(),
        ledger: side.ledger.clone(),
        other: other.clone(),
        ending: side.ending.clone(),
        order: TestMessage::new(side.ledger.serial(true), how, rng),
        policy,
        cancelled: false,
    };
    let waits = matches!(policy, CallerAction::Waits | CallerAction::Into);
    let cancels = matches!(policy, CallerAction::CancelsAndWaits | CallerAction::IntoAndCancels);
    // A kept responder does not observe its cancellation.
    let hangs = how.may_hang() && (waits || cancels && how == HandlerAction::Kept);
    let rng = rng.fork();
    let task = match policy {
        CallerAction::Into | CallerAction::IntoAndCancels | CallerAction::IntoAndForgets => {
            caller.ask_into(side, rng)
        }
        _ => caller.ask(rng),
    };
    RunningCall { hangs, task }
}

struct Caller {
    peer: Peer,
    ledger: Arc<SideLedger>,
    other: Arc<SideLedger>,
    ending: EndFlag,
    order: TestMessage,
    policy: CallerAction,
    cancelled: bool,
}

type Task = JoinHandle<Result<CallEnd, String>>;

impl Caller {
    fn ask(mut self, mut rng: Rng) -> Task {
        let mut call = self.peer.call::<_, Box<RawValue>>("ask", &self.order);
        if self.policy == CallerAction::TimesOut {
            call = call.timeout(Duration::from_millis(rng.u64(0..60)));
        }
        let id = call.id();
        tokio::spawn(async move {
            match self.policy {
                CallerAction::Waits | CallerAction::TimesOut => self.ended(id, call.await),
                CallerAction::CancelsAndWaits => {
                    random_delays(rng.fork(), 6).await;
                    for _ in 0..rng.u8(1..3) {
                        self.withdraws(id, || call.cancel())?;
                        random_delays(rng.fork(), 2).await;
                    }
                    self.ended(id, call.await)
                }
                CallerAction::Detaches => {
                    random_delays(rng, 3).await;
                    drop(call.detach());
                    Ok(CallEnd::GivenUp)
                }
                _ => {
                    let mut call = Box::pin(call);
                    tokio::select! {
                        biased;
                        // It may be dropped without ever having been polled.
                        () = random_delays(rng.fork(), 6) => {}
                        answer = &mut call => return self.ended(id, answer),
                    }
                    if self.policy == CallerAction::CancelsAndDrops {
                        self.withdraws(id, || call.cancel())?;
                        random_delays(rng, 2).await;
                    }
                    self.withdraws(id, || drop(call))?;
                    Ok(CallEnd::GivenUp)
                }
            }
        })
    }

    fn ask_into(mut self, side: &SimulatedSide, mut rng: Rng) -> Task {
        let (sender, receiver) = oneshot::channel();
        let (peer, ledger, other) = (self.peer.clone(), self.ledger.clone(), self.other.clone());
        let stream = rng.bool().then(|| side.stream.id());
        let (id_sender, id_receiver) = std::sync::mpsc::channel::<u64>();
        let deliver: Deliver = Box::new(move |reply| {
            let answer = match reply {
                RawResponse::Result(raw) => Ok(raw.to_owned()),
                RawResponse::Error(error) => Err(Error::Response(error)),
                RawResponse::Unreadable(error) => {
                    Err(Error::Decode { method: "_unreadable".into(), error: error.into() })
                }
                RawResponse::Closed(reason) => Err(Error::Closed(reason)),
            };
            // The reader is at the position of the response on the wire.
            if !matches!(answer, Err(Error::Closed(_)))
                && let Ok(id) = id_receiver.recv()
            {
                let refused = peer.stats().refused as usize;
                let received = ledger.books(|books| books.received.len()) + refused;
                let after = other.books(|books| books.answers.get(&id).map(|answer| answer.after));
                if after != Some(received) {
                    ledger.fault(format!(
                        "response {id} was sent after {after:?} messages and arrived after {received}"
                    ));
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
            if self.policy != CallerAction::Into {
                random_delays(rng.fork(), 6).await;
            }
            if self.policy == CallerAction::IntoAndForgets {
                asked.forget();
                let late = receiver.await.is_ok();
                if late && !self.ledger.has_answer(asked.id) && !self.is_ending() {
                    return Err(format!("request {} was forgotten and answered by nobody", asked.id));
                }
                return Ok(CallEnd::GivenUp);
            }
            if self.policy == CallerAction::IntoAndCancels {
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

    /// Performs an action that withdraws the request. Checks that exactly one `$/cancel_request` is sent if
    /// there is no response yet, and none otherwise.
    fn withdraws(&mut self, id: Option<u64>, act: impl FnOnce()) -> Result<(), String> {
        let Some(id) = id else {
            act();
            return Ok(());
        };
        let sent = || self.ledger.books(|books| books.withdrawn.get(&id).copied().unwrap_or_default());
        let (before, answered) = (sent(), self.ledger.has_answer(id));
        let over = self.peer.is_closing() || self.peer.shared.outbox.is_over();
        act();
        let after = sent();
        self.cancelled = true;
        match after {
            _ if answered && after != before => Err(format!("request {id} was withdrawn after its answer")),
            0 if !answered && !over => Err(format!("request {id} was not withdrawn")),
            _ => Ok(()),
        }
    }

    /// Checks that the handler can have given the answer, and returns the kind of the end.
    fn ended(&self, id: Option<u64>, answer: Result<Box<RawValue>, Error>) -> Result<CallEnd, String> {
        let order = &self.order;
        let is = |text: &str| text == order.n.to_string();
        let cancels = matches!(self.policy, CallerAction::CancelsAndWaits | CallerAction::IntoAndCancels);
        let withdrawn = self.cancelled || cancels || self.is_ending();
        let fits = match (&answer, order.how) {
            (Err(Error::Closed(_)), _) => self.is_ending() || self.peer.is_closing(),
            (Err(Error::Timeout { .. }), _) => {
                let once =
                    id.is_some_and(|id| self.ledger.books(|books| books.withdrawn.get(&id) == Some(&1)));
                self.policy == CallerAction::TimesOut && (once || self.peer.is_closing() || self.is_ending())
            }
            (Err(Error::Response(error)), _) if is_refusal(error) => true,
            (
                Ok(raw),
                HandlerAction::Now | HandlerAction::Streamed | HandlerAction::Chatty | HandlerAction::Closes,
            ) => is(raw.get()),
            (Ok(raw), HandlerAction::Later | HandlerAction::AsksBack) => is(raw.get()),
            (Ok(raw), HandlerAction::Patient) => is(raw.get()) && withdrawn,
            (Err(Error::Response(error)), how) => match error.code.0 {
                -32601 => how == HandlerAction::NotFound,
                // The handler was dropped after the grace period.
                -32800 => {
                    withdrawn
                        && matches!(
                            how,
                            HandlerAction::Later
                                | HandlerAction::AsksBack
                                | HandlerAction::Never
                                | HandlerAction::PanicsLater
                        )
                }
                -32603 => {
                    let fails = [
                        HandlerAction::Dropped,
                        HandlerAction::PanicsNow,
                        HandlerAction::PanicsLater,
                        HandlerAction::PanicsWith,
                        HandlerAction::TooLarge,
                    ];
                    fails.contains(&how) || how == HandlerAction::Kept && self.is_ending()
                }
                _ => false,
            },
            _ => false,
        };
        if !fits {
            return Err(format!("{order:?} of {:?} ended with {answer:?}", self.policy));
        }
        let ended = match &answer {
            Ok(_) => CallEnd::Result,
            Err(Error::Response(error)) if is_refusal(error) => CallEnd::Refused,
            Err(Error::Response(_)) => CallEnd::Error,
            Err(_) => CallEnd::Over,
        };
        let Some((id, true)) = id.map(|id| (id, self.ledger.has_answer(id))) else { return Ok(ended) };
        // The service has received all messages that the other side sent before its response.
        let after = self.other.books(|books| books.answers.get(&id).map_or(0, |answer| answer.after));
        let received = self.ledger.books(|books| books.received.len()) + self.peer.stats().refused as usize;
        if received < after {
            return Err(format!("answer {id} overtook {} messages", after - received));
        }
        Ok(ended)
    }
}

fn is_refusal(error: &WireError) -> bool {
    error.message.starts_with("request limit reached")
}
