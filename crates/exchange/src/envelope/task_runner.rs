//! Running of incoming tasks, from the delegation to the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{CancellationToken, Responder, with_cancel_grace};
use duologue_schema::Meta;
use duologue_schema::envelope::{
    Ack, Cancel, Capabilities, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeId,
    NotificationPayload,
};
use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::handler::{ErasedEnvelopeHandler, no_slots};
use super::task_slots::{Admission, TaskLookup};
use super::{Received, ReceivedTask};
use crate::peer_agent::{Link, PeerAgent};

/// The response to a delegation; an `Err` becomes a JSON-RPC error.
type Decision = Result<Ack, EnvelopeError>;

/// A task that has a slot.
#[derive(Clone)]
pub(crate) struct RunningTask {
    task: ReceivedTask,
    decision: watch::Receiver<Option<Decision>>,
}

/// Calls the handler's `capabilities` and stores the result for pings.
pub(crate) fn capabilities(
    peer: &PeerAgent,
    handler: &dyn ErasedEnvelopeHandler,
) -> Result<Capabilities, EnvelopeError> {
    let result = catch_unwind(AssertUnwindSafe(|| handler.capabilities()));
    let capabilities =
        result.map_err(|_| EnvelopeError::internal("the handler panicked in `capabilities`"))?;
    let known = capabilities.clone();
    let _old = peer.link.envelopes.with(|machine| std::mem::replace(&mut machine.tasks.capabilities, known));
    Ok(capabilities)
}

/// Handles a delegation. The reader calls it.
pub(crate) fn delegate(
    handler: &Arc<dyn ErasedEnvelopeHandler>,
    received: Received<Delegate>,
    responder: Responder,
) {
    let (link, id) = (received.peer.link.clone(), received.envelope.id.clone());
    let origin = received.origin();
    let limit = match capabilities(&received.peer, &**handler) {
        Ok(capabilities) => capabilities.max_concurrent_tasks,
        Err(fault) => return origin.respond::<Ack>(responder, Err(fault)),
    };
    let task = ReceivedTask::new(received, responder.cancellation().clone());
    let (decided, decision) = watch::channel(None);
    let running = RunningTask { task: task.clone(), decision };
    let admission = match limit {
        0 => return origin.respond::<Ack>(responder, Err(no_slots())),
        _ => link.envelopes.with(|machine| machine.tasks.admit(&id, limit, task.is_urgent(), running)),
    };
    match admission {
        Admission::Admitted => {
            let slot = Slot::new(link, id, task.is_urgent());
            let handler = handler.clone();
            responder.spawn_with(|responder| run(slot, handler, task, decided, responder));
        }
        Admission::Full => {
            let urgent = if task.is_urgent() { ", the urgent slot is in use" } else { "" };
            let message = format!("task limit reached ({limit} running{urgent}); retry later");
            origin.respond::<Ack>(responder, Err(EnvelopeError::overloaded(message)));
        }
        Admission::Running(first) => responder.spawn_with(|responder| async move {
            // No handler runs for this copy, so its withdrawal needs no grace period.
            let decided = guarded(responder.cancellation(), Duration::ZERO, first.decided()).await;
            origin.respond(responder, decided.unwrap_or_else(Err));
        }),
        Admission::Finished => origin.respond(responder, Ok(Ack::new(true))),
    }
}

impl RunningTask {
    async fn decided(mut self) -> Decision {
        let decision = self.decision.wait_for(Option::is_some).await;
        let decision = decision.ok().and_then(|decision| decision.clone());
        decision.unwrap_or_else(|| Err(EnvelopeError::internal("the task has ended without a decision")))
    }
}

async fn run(
    slot: Slot,
    handler: Arc<dyn ErasedEnvelopeHandler>,
    task: ReceivedTask,
    decided: watch::Sender<Option<Decision>>,
    responder: Responder,
) {
    let origin = task.origin();
    let grace = task.peer.rpc().limits().cancel_grace;
    let accepted =
        guarded(task.cancellation(), grace, scoped(&task, handler.clone().accept(task.clone()))).await;
    let decision = match (task.stopped(), accepted) {
        (Some(fault), _) => Err(fault),
        (None, Ok(Ok(ack))) => Ok(ack),
        (None, Ok(Err(fault))) => Ok(Ack::new(false).reason(fault.message.clone()).error(fault)),
        (None, Err(fault)) => Err(fault),
    };
    let goes_on = decision.as_ref().is_ok_and(|ack| ack.accepted);
    decided.send_replace(Some(decision.clone()));
    if !goes_on {
        // Released before the response is sent: the other agent may retry at once.
        task.end_progress().await;
        slot.refuse();
        return origin.respond(responder, decision);
    }
    origin.respond(responder, decision);
    let end = work(handler, &task, grace).await;
    // The slot is kept until the output has room, so that an agent that does not read cannot start
    // more work. It is released before the result is sent, so that the next task finds it free.
    let reports = task.wants_report() && task.peer.rpc().ready().await.is_ok();
    task.end_progress().await;
    drop(slot);
    if reports {
        report(&task, end);
    }
}

/// Runs the task until its deadline.
async fn work(
    handler: Arc<dyn ErasedEnvelopeHandler>,
    task: &ReceivedTask,
    grace: Duration,
) -> Result<DelegationOutcome, EnvelopeError> {
    // A deadline too far in the future to be represented is no limit.
    let limit = task.deadline_ms.map(Duration::from_millis);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let expire = async {
        if let (Some(deadline), Some(limit)) = (deadline, limit) {
            tokio::time::sleep_until(deadline).await;
            task.stop(EnvelopeErrorCode::Timeout, format!("not done within {limit:?}"));
        }
        std::future::pending().await
    };
    let work = guarded(task.cancellation(), grace, scoped(task, handler.delegate(task.clone())));
    let end = tokio::select! {
        biased;
        end = work => end,
        never = expire => never,
    };
    match end {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(fault)) => Err(match task.stopped() {
            Some(stopped) if stopped.code == EnvelopeErrorCode::Timeout => {
                let message = format!("{}: {}", stopped.message, fault.message);
                stopped.message(message)
            }
            // The agent that cancelled the task knows the reason.
            Some(stopped) => stopped.message(fault.message),
            None => fault,
        }),
        Err(fault) if fault.code == EnvelopeErrorCode::Cancelled => Err(task.stopped().unwrap_or(fault)),
        Err(fault) => Err(fault),
    }
}

/// Sends the end of a task.
fn report(task: &ReceivedTask, end: Result<DelegationOutcome, EnvelopeError>) {
    let (peer, origin) = (&task.peer, task.origin());
    let meta = task.take_answer_meta();
    let sent = match end {
        Ok(outcome) => peer.check_attachments(&outcome).and_then(|()| send_end(task, outcome, meta)),
        Err(fault) => send_end(task, fault, meta),
    };
    let Err(error) = sent else { return };
    tracing::warn!(%error, "the end of a task could not be sent");
    // The result is too large. The error keeps the other agent from waiting forever.
    let fault = EnvelopeError::internal(format!("the result cannot be sent: {error}"));
    let _ = peer.rpc().notify_now(&peer.carried(origin.reply(fault)));
}

fn send_end<P: NotificationPayload>(task: &ReceivedTask, end: P, meta: Option<Meta>) -> crate::Result<()> {
    let mut message = task.peer.carried(task.origin().reply(end));
    message.meta = meta;
    Ok(task.peer.rpc().notify_now(&message)?)
}

/// Handles a cancellation. The reader calls it.
pub(crate) fn cancel(
    handler: &Arc<dyn ErasedEnvelopeHandler>,
    received: Received<Cancel>,
    responder: Responder,
) {
    let origin = received.origin();
    let refuse = |reason: &str, message: &str| {
        let fault = EnvelopeError::of(EnvelopeErrorCode::from(reason), message);
        Ok(Ack::new(false).reason(reason).error(fault))
    };
    let of = received.envelope.reference.as_ref();
    let find = |of| received.peer.link.envelopes.with(|machine| machine.tasks.find(of));
    match of.map_or(TaskLookup::Nothing, find) {
        TaskLookup::Running(RunningTask { task, .. }) => {
            let handler = handler.clone();
            responder.spawn_with(|responder| stop(handler, received, task, responder));
        }
        TaskLookup::Finished => {
            origin.respond(responder, refuse("already_finished", "the delegation is over"));
        }
        TaskLookup::Nothing => {
            origin.respond(responder, refuse("not_found", "there is no delegation with this id"));
        }
    }
}

async fn stop(
    handler: Arc<dyn ErasedEnvelopeHandler>,
    received: Received<Cancel>,
    task: ReceivedTask,
    responder: Responder,
) {
    let (origin, reason) = (received.origin(), received.reason.clone());
    let grace = task.peer.rpc().limits().cancel_grace;
    let decided =
        guarded(responder.cancellation(), grace, scoped(&task, handler.cancel(received, task.clone()))).await;
    let stops = matches!(decided, Ok(Ok(())));
    let answer = decided.map(|decided| match decided {
        Ok(()) => Ack::new(true),
        Err(fault) => Ack::new(false).reason(fault.message.clone()).error(fault),
    });
    // The ack is sent before the end of the task.
    origin.respond(responder, answer);
    if stops {
        let why = if reason.is_empty() { "it was cancelled".to_owned() } else { reason };
        task.stop(EnvelopeErrorCode::Cancelled, why);
    }
}

/// Sets the hops of the calls that a task's handler makes.
fn scoped<F: Future>(task: &ReceivedTask, handler: F) -> impl Future<Output = F::Output> + use<F> {
    task.hops().next().scope(handler)
}

/// Runs a handler until it returns, it panics, or the grace period after its cancellation is over.
pub(crate) async fn guarded<F: Future>(
    cancellation: &CancellationToken,
    grace: Duration,
    handler: F,
) -> Result<F::Output, EnvelopeError> {
    // Dropping the handler may panic too.
    match AssertUnwindSafe(with_cancel_grace(cancellation, grace, handler)).catch_unwind().await {
        Ok(Some(output)) => Ok(output),
        Err(_) => Err(EnvelopeError::internal("the handler panicked")),
        Ok(None) => Err(EnvelopeError::of(EnvelopeErrorCode::Cancelled, "cancelled before completion")),
    }
}

/// The slot of a task. Dropping it frees the slot.
struct Slot {
    link: Arc<Link>,
    id: EnvelopeId,
    urgent: bool,
    /// False once the slot has been freed. Another task may own it after that.
    taken: bool,
}

impl Slot {
    /// Creates the owner of a slot that was admitted.
    fn new(link: Arc<Link>, id: EnvelopeId, urgent: bool) -> Self {
        if urgent {
            link.envelopes.urgent.send_modify(|running| *running += 1);
        }
        Slot { link, id, urgent, taken: true }
    }

    fn refuse(mut self) {
        self.taken = false;
        self.link.envelopes.with(|machine| machine.tasks.refuse(&self.id));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.taken {
            self.link.envelopes.with(|machine| machine.tasks.finish(&self.id));
        }
        if self.urgent {
            self.link.envelopes.urgent.send_modify(|running| *running -= 1);
        }
    }
}
