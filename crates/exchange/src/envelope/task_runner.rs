//! Running of incoming tasks, from the delegation to the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{CancellationToken, Responder, with_cancel_grace};
use duologue_schema::envelope::{
    Ack, Cancel, Capabilities, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeId,
    NotificationPayload, OutcomeStatus, Query, QueryResponse, TaskState, TaskStatus,
};
use duologue_schema::{Json, Meta};
use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ended_tasks::{EndedTask, TaskEnd, TaskKey};
use super::events::{self, EventClock};
use super::handler::{ErasedEnvelopeHandler, no_slots};
use super::task_slots::{Admission, TaskLookup};
use super::{Received, ReceivedTask};
use crate::peer_agent::{Link, PeerAgent, now_ms};

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
    let link = received.peer.link.clone();
    let origin = received.origin();
    let content = link.envelopes.prints.of_json(&*received);
    let limit = match capabilities(&received.peer, &**handler) {
        Ok(capabilities) => capabilities.max_concurrent_tasks,
        Err(fault) => return origin.respond::<Ack>(responder, Err(fault)),
    };
    let task = ReceivedTask::new(received, responder.cancellation().clone());
    admit(handler.clone(), IncomingTask { task, content, limit }, responder);
}

/// A delegation that has not been admitted.
struct IncomingTask {
    task: ReceivedTask,
    /// The fingerprint of the delegation.
    content: u128,
    limit: u32,
}

/// Runs a task, or answers a repeated delegation.
fn admit(handler: Arc<dyn ErasedEnvelopeHandler>, incoming: IncomingTask, responder: Responder) {
    let IncomingTask { task, content, limit } = incoming;
    let (link, origin) = (task.peer.link.clone(), task.origin());
    let key = (task.envelope.from.clone(), task.envelope.id.clone());
    let (decided, decision) = watch::channel(None);
    let running = RunningTask { task: task.clone(), decision };
    let admission =
        link.envelopes.with(|machine| machine.tasks.admit(&key, content, limit, task.is_urgent(), running));
    match admission {
        Admission::Admitted => {
            let slot = Slot::new(link, key, content);
            responder.spawn_with(|responder| run(slot, handler, task, decided, responder));
        }
        Admission::Full if limit == 0 => origin.respond::<Ack>(responder, Err(no_slots())),
        Admission::Full => {
            let urgent = if task.is_urgent() { ", the urgent slot is in use" } else { "" };
            let message = format!("task limit reached ({limit} running{urgent}); retry later");
            origin.respond::<Ack>(responder, Err(EnvelopeError::overloaded(message)));
        }
        Admission::Running(RunningTask { task: first, decision }) => {
            responder.spawn_with(move |responder| async move {
                // No handler runs for this copy, so its withdrawal needs no grace period.
                let decided = guarded(responder.cancellation(), Duration::ZERO, decided_by(decision)).await;
                if matches!(decided, Ok(Err(_))) && first.is_withdrawn() && !task.is_cancelled() {
                    // The first copy was withdrawn, for example after a late `ack`. This one was not.
                    return admit(handler, IncomingTask { task, content, limit }, responder);
                }
                origin.respond(responder, decided.unwrap_or_else(Err));
            });
        }
        Admission::Ended(ended) => {
            responder.spawn_with(move |responder| answer_again(task, *ended, responder));
        }
        Admission::Conflict => {
            let fault = EnvelopeError::of(EnvelopeErrorCode::Conflict, "this id is that of another task");
            origin.respond::<Ack>(responder, Err(fault));
        }
    }
}

async fn decided_by(mut decision: watch::Receiver<Option<Decision>>) -> Decision {
    let decision = decision.wait_for(Option::is_some).await;
    let decision = decision.ok().and_then(|decision| decision.clone());
    decision.unwrap_or_else(|| Err(EnvelopeError::internal("the task has ended without a decision")))
}

/// Answers a repeated delegation of a task that has ended, and sends its end again.
async fn answer_again(task: ReceivedTask, ended: EndedTask, responder: Responder) {
    let (origin, EndedTask { ack, end, .. }) = (task.origin(), ended);
    if !task.wants_report() {
        return origin.respond(responder, Ok(ack));
    }
    // An end may be large. An agent that does not read gets one at a time, when the output has room.
    let room = async {
        let turn = task.peer.link.envelopes.repeats.lock().await;
        let _ = task.peer.rpc().ready().await;
        turn
    };
    match guarded(responder.cancellation(), Duration::ZERO, room).await {
        Ok(_turn) => {
            origin.respond(responder, Ok(ack));
            // The other agent waits for an end: it has not received the first one, or dropped it.
            let forgotten = || Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, "the result is not kept"));
            report(&task, end.map_or_else(forgotten, |end| (*end).clone()));
        }
        Err(withdrawn) => origin.respond::<Ack>(responder, Err(withdrawn)),
    }
}

async fn run(
    mut slot: Slot,
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
    if !goes_on {
        // Released before a response is sent: the other agent may retry at once.
        task.end_progress().await;
        slot.refuse(&task, decision.as_ref().ok());
        decided.send_replace(Some(decision.clone()));
        return origin.respond(responder, decision);
    }
    decided.send_replace(Some(decision.clone()));
    let clock = EventClock::start();
    events::task_created(&task.envelope.id);
    task.accepted();
    slot.accepted(decision.clone().unwrap_or_else(|_| Ack::new(true)), task.is_urgent());
    origin.respond(responder, decision);
    let end = work(handler, &task, grace).await;
    // The slot is kept until the output has room, so that an agent that does not read cannot start
    // more work. It is released before the result is sent, so that the next task finds it free.
    let reports = task.wants_report() && task.peer.rpc().ready().await.is_ok();
    task.end_progress().await;
    slot.finish(&task, &end);
    events::task_completed(&task.envelope.id, clock, &end);
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
    task.peer.rpc().notify_now(&message)?;
    events::sent(&message.envelope);
    Ok(())
}

/// Answers a query about the state of a task. The reader calls it.
pub(crate) fn status(query: &Received<Query>, task: EnvelopeId) -> Result<QueryResponse, EnvelopeError> {
    let key = (query.envelope.from.clone(), task);
    let status = match query.peer.link.envelopes.with(|machine| machine.tasks.find(&key)) {
        TaskLookup::Running(RunningTask { task, .. }) => task.status(),
        TaskLookup::Ended(task) => task.status,
        TaskLookup::Nothing => return Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, NO_TASK)),
    };
    let data = Json::new(&status).map_err(|error| EnvelopeError::internal(error.to_string()))?;
    Ok(QueryResponse::new(status.state.as_str()).data(data))
}

const NO_TASK: &str = "there is no delegation of yours with this id";

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
    // A task belongs to the agent that delegated it. For another one it does not exist.
    let of = received.envelope.reference.clone().map(|of| (received.envelope.from.clone(), of));
    let find = |of| received.peer.link.envelopes.with(|machine| machine.tasks.find(&of));
    match of.map_or(TaskLookup::Nothing, find) {
        TaskLookup::Running(RunningTask { task, .. }) => {
            let handler = handler.clone();
            responder.spawn_with(|responder| stop(handler, received, task, responder));
        }
        TaskLookup::Ended(_) => {
            origin.respond(responder, refuse("already_finished", "the delegation is over"));
        }
        TaskLookup::Nothing => {
            origin.respond(responder, refuse("not_found", NO_TASK));
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
    key: TaskKey,
    content: u128,
    /// The response to the delegation, for repeated ones.
    ack: Ack,
    /// True if the task is urgent and was accepted.
    urgent: bool,
    /// False once the slot has been freed. Another task may own it after that.
    taken: bool,
}

impl Slot {
    /// Creates the owner of a slot that was admitted.
    fn new(link: Arc<Link>, key: TaskKey, content: u128) -> Self {
        Slot { link, key, content, ack: Ack::new(true), urgent: false, taken: true }
    }

    /// Records that the task was accepted. An urgent task interrupts others from here on.
    fn accepted(&mut self, ack: Ack, urgent: bool) {
        self.ack = ack;
        self.urgent = urgent;
        if urgent {
            self.link.envelopes.urgent.send_modify(|running| *running += 1);
        }
    }

    /// Frees the slot of a task that was not accepted. `ack` is a rejection.
    fn refuse(mut self, task: &ReceivedTask, ack: Option<&Ack>) {
        self.taken = false;
        let rejected = ack.map(|ack| {
            self.ack = ack.clone();
            let mut status = ended(task, TaskState::Rejected);
            status.error = ack.error.clone();
            self.ended(status, None)
        });
        self.link.envelopes.with(|machine| machine.tasks.refuse(&self.key, rejected));
    }

    /// Frees the slot of a task that has ended.
    fn finish(mut self, task: &ReceivedTask, end: &TaskEnd) {
        self.taken = false;
        let mut status = ended(task, TaskState::Completed);
        match end {
            Ok(outcome) if outcome.status == OutcomeStatus::Failed => {
                status.state = TaskState::Failed;
                status.error = outcome.fault();
            }
            Ok(_) => {}
            Err(fault) => {
                let deadline = task.stopped().is_some_and(|why| why.code == EnvelopeErrorCode::Timeout);
                status.state = match fault.code {
                    EnvelopeErrorCode::Cancelled => TaskState::Cancelled,
                    EnvelopeErrorCode::Timeout if deadline => TaskState::Expired,
                    _ => TaskState::Failed,
                };
                status.error = Some(fault.clone());
            }
        }
        let ended = self.ended(status, Some(Arc::new(end.clone())));
        self.link.envelopes.with(|machine| machine.tasks.finish(&self.key, ended));
    }

    fn ended(&self, status: TaskStatus, end: Option<Arc<TaskEnd>>) -> EndedTask {
        EndedTask { content: self.content, ack: self.ack.clone(), status, end }
    }
}

fn ended(task: &ReceivedTask, state: TaskState) -> TaskStatus {
    TaskStatus::new(&task.envelope.id, state).updated_ms(now_ms())
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.taken {
            // The connection ends, or the task panicked outside its handler.
            let fault = EnvelopeError::internal("the task was dropped");
            let status =
                TaskStatus::new(&self.key.1, TaskState::Failed).updated_ms(now_ms()).error(fault.clone());
            let ended = self.ended(status, Some(Arc::new(Err(fault))));
            self.link.envelopes.with(|machine| machine.tasks.finish(&self.key, ended));
        }
        if self.urgent {
            self.link.envelopes.urgent.send_modify(|running| *running -= 1);
        }
    }
}
