//! A task received from the other agent.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use duologue_rpc::{CancellationToken, MessageMeta};
use duologue_schema::envelope::{
    Delegate, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeParams, Notify, Question, TaskState,
    TaskStatus,
};
use duologue_schema::{Json, Meta, SessionId, TraceContext};

use super::events;
use super::outgoing::MessageOptions;
use super::received::ReplyAddress;
use super::{OutputBuilder, QueryBuilder, Received};
use crate::error::Result;
use crate::hops::Hops;
use crate::peer_agent::{PeerAgent, now_ms};
use duologue_rpc::Lock as _;

/// Topic of the progress notifications of a delegation. Their `ref` is the id of the delegation.
pub const PROGRESS: &str = "task.progress";

/// A task from the other agent. It derefs to the [`Delegate`] that describes it, and is cheap to
/// clone.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReceivedTask {
    /// The envelope of the delegation.
    pub envelope: Arc<Envelope<Delegate>>,
    /// A handle on the delegating agent, in the session of the task. Calls through it are counted as
    /// calls of this handler, in every task.
    pub peer: PeerAgent,
    hops: Hops,
    meta: MessageMeta,
    cancellation: CancellationToken,
    phase: Arc<Mutex<TaskPhase>>,
    /// No progress follows the end. A sender keeps the lock, so the end waits for it. A `Tap` that calls
    /// [`progress`](Self::progress) meanwhile is not blocked.
    reports: Arc<tokio::sync::Mutex<TaskReports>>,
}

/// The progress and the output that a task has sent.
#[derive(Default)]
pub(super) struct TaskReports {
    /// True once the task has ended.
    ended: bool,
    /// The position of the next chunk of the output.
    pub(super) position: u64,
    /// True once the last chunk has been sent.
    pub(super) complete: bool,
}

/// The state of a task until it ends.
#[derive(Default)]
struct TaskPhase {
    accepted: bool,
    /// The number of open queries to the delegating agent.
    asking: usize,
    /// The reason to stop.
    why: Option<EnvelopeError>,
    /// The time of the last change, in milliseconds since 1970.
    updated_ms: u64,
}

/// Counts an open query to the delegating agent.
pub(crate) struct OpenQuestion(ReceivedTask);

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.change(|phase| phase.asking -= 1);
    }
}

impl ReceivedTask {
    pub(crate) fn new(received: Received<Delegate>, cancellation: CancellationToken) -> Self {
        let Received { envelope, peer, hops, meta } = received;
        let (envelope, reports) = (Arc::new(envelope), Arc::default());
        let phase = TaskPhase { updated_ms: now_ms(), ..TaskPhase::default() };
        let phase = Arc::new(Mutex::new(phase));
        ReceivedTask { envelope, peer, hops, meta, cancellation, phase, reports }
    }

    /// Returns the number of handlers that the task has passed through.
    #[must_use]
    pub fn hops(&self) -> Hops {
        self.hops
    }

    /// Returns the `_meta` beside the envelope.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.received()
    }

    /// Returns the trace context in the `_meta`; see [`Received::trace_context`].
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.meta.trace_context()
    }

    /// Returns the session of the task.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.peer.session()
    }

    /// Sets the `_meta` beside the next answer: the ack until it is sent, then the result or the error
    /// that ends the task.
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.meta.set_answer(meta);
    }

    /// Returns true if the priority is urgent or critical. The task may then use the slot for urgent
    /// tasks, and interrupt other work if needed.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.priority.is_urgent()
    }

    /// Waits until an urgent task runs beside this one on the connection. The handler may then pause
    /// until [`resumed`](Self::resumed), or end the task as `partial`. An urgent task is never
    /// interrupted.
    ///
    /// ```
    /// # use duologue_exchange::envelope::ReceivedTask;
    /// # async fn next_step(step: u32) {}
    /// async fn work(task: &ReceivedTask) {
    ///     for step in 0..100 {
    ///         if task.is_interrupted() {
    ///             task.resumed().await;
    ///         }
    ///         next_step(step).await;
    ///     }
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn interrupted(&self) {
        self.urgent_tasks(|running| running > 0).await;
    }

    /// Returns true if an urgent task runs beside this one; see [`interrupted`](Self::interrupted).
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        !self.is_urgent() && *self.peer.link.envelopes.urgent.borrow() > 0
    }

    /// Waits until no urgent task runs on the connection any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn resumed(&self) {
        if !self.is_urgent() {
            self.urgent_tasks(|running| running == 0).await;
        }
    }

    /// Waits for a number of running urgent tasks. An urgent task counts itself, so it waits forever.
    async fn urgent_tasks(&self, wanted: impl Fn(u32) -> bool) {
        let mut running = self.peer.link.envelopes.urgent.subscribe();
        if self.is_urgent() || running.wait_for(|running| wanted(*running)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until the task must stop: the other agent has cancelled it, its deadline has passed,
    /// or the connection has ended. A result that the handler returns within
    /// [`Limits::cancel_grace`](duologue_rpc::Limits::cancel_grace) after that still counts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Returns true if the task must stop; see [`cancelled`](Self::cancelled).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Returns the token behind [`cancelled`](Self::cancelled).
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Creates a query to the delegating agent about this task. Its `ref` is the id of the delegation,
    /// and the state of the task is `input_required` until the answer arrives.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::query`].
    ///
    /// # Cancel safety
    ///
    /// That of [`PeerAgent::query`].
    pub fn ask(&self, question: impl Into<Question>) -> QueryBuilder {
        self.peer.query(question).for_task(self.clone())
    }

    /// Sends a progress notification with the topic [`PROGRESS`]. Nothing is sent if the other
    /// agent requested no report, or if the task has ended: no progress follows the end.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::notify`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the output is full sends nothing.
    pub async fn progress(&self, data: impl Into<Json>) -> Result<()> {
        let notify = Notify::new(PROGRESS).data(data);
        let options = MessageOptions::about(self.envelope.id.clone());
        self.send_report(|_| self.peer.prepare(notify.clone(), options.clone()).map(Some), |_| {}).await
    }

    /// Creates a chunk of streamed output, which is sent when it is awaited: a notification with the
    /// topic [`OutputChunk::TOPIC`](super::OutputChunk::TOPIC) and the next position. Nothing is sent if
    /// the other agent requested no report, or after the task has ended. The last chunk should be marked
    /// with [`OutputBuilder::last`].
    ///
    /// A chunk that is larger than the rest of the other agent's buffer (16 MiB) may be lost if nobody
    /// reads. Large data belongs into the result.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::notify`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the output is full sends nothing, and uses no position.
    pub fn output(&self, chunk: impl Into<Json>) -> OutputBuilder {
        OutputBuilder::new(self, chunk.into())
    }

    /// Sends a report that `create` makes, and records it with `sent`.
    pub(super) async fn send_report(
        &self,
        create: impl Fn(&TaskReports) -> Result<Option<EnvelopeParams<Notify>>>,
        sent: impl FnOnce(&mut TaskReports),
    ) -> Result<()> {
        if !self.wants_report() {
            return Ok(());
        }
        loop {
            {
                let mut reports = self.reports.lock().await;
                if reports.ended {
                    return Ok(());
                }
                let Some(mut report) = create(&reports)? else { return Ok(()) };
                report.envelope.to = self.envelope.from.clone();
                if self.peer.rpc().try_notify(&report)? {
                    events::sent(&report.envelope);
                    sent(&mut reports);
                    return Ok(());
                }
            }
            self.peer.rpc().ready().await?;
        }
    }

    pub(crate) fn origin(&self) -> ReplyAddress {
        ReplyAddress::of(&self.envelope, &self.peer, &self.meta)
    }

    /// Waits for progress that is being sent, and ignores later progress.
    pub(crate) async fn end_progress(&self) {
        self.reports.lock().await.ended = true;
    }

    /// Takes the `_meta` of the message that ends the task.
    pub(crate) fn take_answer_meta(&self) -> Option<Meta> {
        self.meta.take_answer()
    }

    fn change(&self, change: impl FnOnce(&mut TaskPhase)) {
        let mut phase = self.phase.lock_unpoisoned();
        change(&mut phase);
        phase.updated_ms = now_ms();
    }

    /// Records that the task was accepted.
    pub(crate) fn accepted(&self) {
        self.change(|phase| phase.accepted = true);
    }

    /// Records that the task waits for an answer, until the guard is dropped.
    pub(crate) fn open_question(self) -> OpenQuestion {
        self.change(|phase| phase.asking += 1);
        OpenQuestion(self)
    }

    /// Returns the state of a running task.
    pub(crate) fn status(&self) -> TaskStatus {
        let phase = self.phase.lock_unpoisoned();
        let cancelled = |why: &EnvelopeError| why.code == EnvelopeErrorCode::Cancelled;
        let state = match &*phase {
            TaskPhase { why: Some(why), .. } if cancelled(why) => TaskState::Cancelling,
            TaskPhase { accepted: false, .. } => TaskState::Submitted,
            TaskPhase { asking: 1.., .. } => TaskState::InputRequired,
            _ => TaskState::Working,
        };
        TaskStatus::new(&self.envelope.id, state).updated_ms(phase.updated_ms)
    }

    /// Returns true if the request that delegated the task was withdrawn, and not the task
    /// itself.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_cancelled() && self.phase.lock_unpoisoned().why.is_none()
    }

    /// Cancels the task. Only the first reason is kept.
    pub(crate) fn stop(&self, code: EnvelopeErrorCode, why: impl Into<String>) {
        self.change(|phase| {
            phase.why.get_or_insert_with(|| EnvelopeError::of(code, why));
        });
        self.cancellation.cancel();
    }

    /// Returns the error that ends the task if it does not finish after a cancellation.
    pub(crate) fn stopped(&self) -> Option<EnvelopeError> {
        let why = self.phase.lock_unpoisoned().why.clone();
        why.or_else(|| {
            self.is_cancelled().then(|| EnvelopeError::of(EnvelopeErrorCode::Cancelled, "it was withdrawn"))
        })
    }
}

impl Deref for ReceivedTask {
    type Target = Delegate;

    fn deref(&self) -> &Delegate {
        &self.envelope.payload
    }
}

impl fmt::Debug for ReceivedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedTask").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}
