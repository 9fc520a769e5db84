//! The state machine of envelopes on one connection: methods take an event and return actions.
//!
//! It has no locks and no clock, and it sends nothing and wakes nobody. Everything that may run
//! other code is an [`EnvelopeAction`], which `EnvelopeState` performs without the lock.

use std::collections::HashMap;
use std::sync::Arc;

use duologue_schema::envelope::{
    AgentId, DelegationOutcome, Envelope, EnvelopeError, EnvelopeId, EnvelopeKind, EnvelopeResult, Notify,
    OutputChunk,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::delegation::{DelegationEnd, DelegationSignal};
use super::id_cache::IdCache;
use super::inbox::{HandlerNotification, Inbox, InboxDelivery};
use super::pending::{PendingReplies, ReplyTarget};
use super::state::ExchangeStats;
use super::subscription::{Subscriber, SubscriptionQueue};
use super::task_runner::RunningTask;
use super::task_slots::TaskSlots;
use super::{PROGRESS, Received};
use crate::error::{AnswerError, Error};

/// The response to a request.
pub(crate) type EnvelopeReply = Result<EnvelopeResult, Error>;

/// The sending end of the channel on which a call waits for its response.
pub(crate) type EnvelopeWaiter = oneshot::Sender<EnvelopeReply>;

/// A step that follows from an event. It is performed without the lock, because it may run other
/// code.
pub(crate) enum EnvelopeAction {
    /// Passes a response to its call. The response is late if the call has ended.
    Reply(EnvelopeWaiter, EnvelopeReply),
    /// Ends a call that will receive no response.
    Fail(EnvelopeWaiter, Error),
    /// Wakes the handle on a delegation whose end is stored.
    Wake(DelegationSignal),
    /// Adds a notification to a subscription.
    Push(Arc<SubscriptionQueue>, Arc<Received<Notify>>, usize),
    /// Closes a subscription.
    Close(Arc<SubscriptionQueue>),
    /// Queues a message for the handler.
    Deliver(InboxDelivery),
}

/// The outcome of an event. `None` means that the message belongs to nothing here, so it is left to
/// the user's own handlers.
pub(crate) type EnvelopeActions = Option<Vec<EnvelopeAction>>;

/// The pending requests, running tasks, subscriptions, seen ids and counters of a connection.
pub(crate) struct EnvelopeMachine {
    /// Our pending requests and delegations.
    pub(crate) pending: PendingReplies<EnvelopeWaiter, DelegationSignal>,
    /// The ends of delegations, until their handles are dropped.
    ends: HashMap<EnvelopeId, StoredEnd>,
    /// The tasks and queries of the other agent.
    pub(crate) tasks: TaskSlots<RunningTask>,
    /// The senders and ids of received notifications.
    seen: IdCache,
    /// The queues of notifications for the handler.
    pub(crate) inbox: Inbox,
    subscribers: Vec<Subscriber>,
    error_rate: ErrorRateLimit,
    pub(crate) stats: ExchangeStats,
    closed: bool,
}

/// The end of a delegation, and true once it has been read.
struct StoredEnd {
    end: DelegationEnd,
    claimed: bool,
}

impl EnvelopeMachine {
    pub(crate) fn new(now: Instant) -> Self {
        EnvelopeMachine {
            pending: PendingReplies::default(),
            ends: HashMap::new(),
            tasks: TaskSlots::default(),
            seen: IdCache::default(),
            inbox: Inbox::default(),
            subscribers: Vec::new(),
            error_rate: ErrorRateLimit { left: ErrorRateLimit::AT_ONCE, since: now },
            stats: ExchangeStats::default(),
            closed: false,
        }
    }

    /// Handles the JSON-RPC response to a request.
    pub(crate) fn response(&mut self, id: &EnvelopeId, reply: EnvelopeReply) -> EnvelopeActions {
        let waiter = self.pending.take_response(id);
        self.reply(waiter, reply)
    }

    /// Handles a response that arrives as a notification.
    pub(crate) fn reply_notification(
        &mut self,
        kind: &EnvelopeKind,
        reply: EnvelopeResult,
    ) -> EnvelopeActions {
        let to = reply.envelope.reference.as_ref();
        let waiter = to.and_then(|to| self.pending.take_reply(to, kind));
        self.reply(waiter, Ok(reply))
    }

    fn reply(&mut self, waiter: Option<EnvelopeWaiter>, reply: EnvelopeReply) -> EnvelopeActions {
        if waiter.is_none() {
            self.stats.late += 1;
        }
        Some(vec![EnvelopeAction::Reply(waiter?, reply)])
    }

    /// Handles a notification. The progress and the output of a task with a handle go to the handle, and
    /// not to the handler.
    pub(crate) fn notify(&mut self, notification: Received<Notify>, bytes: usize) -> EnvelopeActions {
        if !self.seen.insert(sender_and_id(&notification.envelope)) {
            return self.repeated();
        }
        let subscribers = self.subscribers.iter().filter(|subscriber| subscriber.wants(&notification));
        let mut queues: Vec<_> = subscribers.filter_map(Subscriber::queue).collect();
        let task = match &notification.envelope.reference {
            Some(task) => self.pending.delegation(task).and_then(|task| match notification.topic.as_str() {
                PROGRESS => Some(&task.progress),
                OutputChunk::TOPIC => Some(&task.output),
                _ => None,
            }),
            None => None,
        };
        queues.extend(task.cloned());
        let for_handler = task.is_none();
        let (shared, message) = match (queues.is_empty(), for_handler) {
            (true, true) => (None, Some(notification)),
            (false, true) => (Some(notification.clone()), Some(notification)),
            (_, false) => (Some(notification), None),
        };
        let shared = shared.map(Arc::new);
        let push = |queue| Some(EnvelopeAction::Push(queue, shared.clone()?, bytes));
        let mut actions: Vec<_> = queues.into_iter().filter_map(push).collect();
        if let Some(message) = message.map(HandlerNotification::Notify) {
            actions.extend(self.inbox.number(message, bytes).map(EnvelopeAction::Deliver));
        }
        (!actions.is_empty()).then_some(actions)
    }

    /// Handles the result of a task.
    pub(crate) fn result(&mut self, result: Received<DelegationOutcome>, bytes: usize) -> EnvelopeActions {
        let of = result.envelope.reference.as_ref();
        // The task was accepted, so its `ack` is no longer awaited. The caller looks for the end.
        let ack = of.and_then(|of| self.take_ack(of));
        let from = &result.envelope.from;
        match of.map_or(ReplyTarget::Unknown, |of| self.pending.result(from, of)) {
            ReplyTarget::Delegation(task) => {
                let end = self.end(task, DelegationEnd::Result(without_peer(result), bytes));
                Some(ack.into_iter().chain([end]).collect())
            }
            ReplyTarget::Repeated => self.repeated(),
            ReplyTarget::Unknown | ReplyTarget::Request(_) => {
                self.deliver(HandlerNotification::Result(result), bytes)
            }
        }
    }

    /// Handles an error that arrives as a notification.
    pub(crate) fn error(&mut self, error: Received<EnvelopeError>, bytes: usize) -> EnvelopeActions {
        let target = match &error.envelope.reference {
            Some(about) => self.pending.error(&error.envelope.from, about),
            None if self.seen.insert(sender_and_id(&error.envelope)) => ReplyTarget::Unknown,
            None => ReplyTarget::Repeated,
        };
        match target {
            ReplyTarget::Request(waiter) => {
                let meta = error.meta().cloned();
                let answer = AnswerError::new(error.envelope.payload, meta);
                self.reply(Some(waiter), Err(Error::Response(answer)))
            }
            ReplyTarget::Delegation(task) => {
                Some(vec![self.end(task, DelegationEnd::Error(without_peer(error), bytes))])
            }
            ReplyTarget::Repeated => self.repeated(),
            ReplyTarget::Unknown => self.deliver(HandlerNotification::Error(error), bytes),
        }
    }

    /// Ends the request that an invalid message of this kind refers to, because a valid one may
    /// never arrive.
    pub(crate) fn invalid(
        &mut self,
        kind: &EnvelopeKind,
        from: &AgentId,
        of: &EnvelopeId,
        fault: &EnvelopeError,
    ) -> EnvelopeActions {
        let invalid = |kind| Error::Answer { kind, fault: fault.clone() };
        let (mut ack, mut target) = (None, ReplyTarget::Unknown);
        match kind {
            EnvelopeKind::Result if self.pending.delegation(of).is_some() => {
                ack = self.take_ack(of);
                target = self.pending.result(from, of);
            }
            EnvelopeKind::Error if self.pending.awaits(of) => target = self.pending.error(from, of),
            EnvelopeKind::Pong | EnvelopeKind::Response | EnvelopeKind::Ack | EnvelopeKind::Capabilities => {
                target = self.pending.take_reply(of, kind).map_or(ReplyTarget::Unknown, ReplyTarget::Request);
            }
            _ => {}
        }
        let action = match target {
            // The error names the kind of the delegation, not that of the message.
            ReplyTarget::Delegation(task) => {
                self.end(task, DelegationEnd::Lost(invalid(EnvelopeKind::Delegate)))
            }
            ReplyTarget::Request(waiter) => EnvelopeAction::Fail(waiter, invalid(kind.clone())),
            ReplyTarget::Repeated | ReplyTarget::Unknown => return None,
        };
        Some(ack.into_iter().chain([action]).collect())
    }

    /// Ends everything that waits for the connection.
    pub(crate) fn close(&mut self, error: &Error) -> EnvelopeActions {
        self.closed = true;
        let (requests, delegations) = self.pending.close();
        let mut actions: Vec<_> =
            requests.into_iter().map(|waiter| EnvelopeAction::Fail(waiter, error.clone())).collect();
        for task in delegations {
            actions.push(self.end(task, DelegationEnd::Lost(error.clone())));
        }
        let queues = self.subscribers.drain(..).filter_map(|subscriber| subscriber.queue());
        actions.extend(queues.map(EnvelopeAction::Close));
        Some(actions)
    }

    /// Adds a subscription; returns false after the end of the connection.
    pub(crate) fn subscribe(&mut self, subscriber: Subscriber) -> bool {
        if !self.closed {
            self.subscribers.retain(Subscriber::exists);
            self.subscribers.push(subscriber);
        }
        !self.closed
    }

    #[cfg(test)]
    pub(crate) fn subscribers(&self) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter()
    }

    /// Registers a delegation before it is sent. `signal` is `None` if no report is requested. Returns
    /// false if a message with this id still waits, or the handle of such a delegation exists.
    pub(crate) fn add_delegation(&mut self, id: &EnvelopeId, signal: Option<DelegationSignal>) -> bool {
        if self.pending.awaits(id) || self.ends.contains_key(id) {
            return false;
        }
        if let Some(signal) = signal {
            self.pending.add_delegation(id.clone(), signal);
        }
        true
    }

    /// Returns the end of a delegation, if it has arrived.
    pub(crate) fn end_of(&self, id: &EnvelopeId) -> Option<&DelegationEnd> {
        self.ends.get(id).map(|stored| &stored.end)
    }

    /// Returns the end of a delegation to its handle.
    pub(crate) fn claim(&mut self, id: &EnvelopeId) -> Option<DelegationEnd> {
        let stored = self.ends.get_mut(id)?;
        stored.claimed = true;
        Some(stored.end.clone())
    }

    /// Removes a delegation whose handle is dropped, and returns its end if nobody has read it. No
    /// message can end the task after this.
    pub(crate) fn drop_delegation(&mut self, id: &EnvelopeId) -> Option<DelegationEnd> {
        self.pending.remove_delegation(id);
        self.ends.remove(id).filter(|stored| !stored.claimed).map(|stored| stored.end)
    }

    /// Counts an invalid message; returns true if an error about it may be sent at `now`.
    pub(crate) fn count_invalid(&mut self, now: Option<Instant>) -> bool {
        self.stats.dropped += 1;
        now.is_some_and(|now| self.error_rate.allow(now))
    }

    /// Stores the end of a delegation. A drop of its handle sees it from here on.
    fn end(&mut self, task: DelegationSignal, end: DelegationEnd) -> EnvelopeAction {
        self.ends.insert(task.id.clone(), StoredEnd { end, claimed: false });
        EnvelopeAction::Wake(task)
    }

    /// Removes the waiter for the `ack` of a pending delegation.
    fn take_ack(&mut self, of: &EnvelopeId) -> Option<EnvelopeAction> {
        self.pending.delegation(of)?;
        let waiter = self.pending.take_response(of)?;
        Some(EnvelopeAction::Fail(waiter, Error::Cancelled))
    }

    fn repeated(&mut self) -> EnvelopeActions {
        self.stats.repeated += 1;
        Some(Vec::new())
    }

    fn deliver(&mut self, message: HandlerNotification, bytes: usize) -> EnvelopeActions {
        self.inbox.number(message, bytes).map(|delivery| vec![EnvelopeAction::Deliver(delivery)])
    }
}

/// Returns the key of a message in the cache of seen ones. Different senders may choose the same id.
fn sender_and_id<P>(envelope: &Envelope<P>) -> (&str, &str) {
    (envelope.from.as_str(), envelope.id.as_str())
}

/// Returns the parts of a message that may be stored here. Its `peer` would keep this machine alive.
fn without_peer<P>(received: Received<P>) -> EnvelopeResult<P> {
    let meta = received.meta().cloned();
    let mut stored = EnvelopeResult::new(received.envelope);
    stored.meta = meta;
    stored
}

/// A rate limit for error messages about invalid notifications.
struct ErrorRateLimit {
    left: u32,
    since: Instant,
}

impl ErrorRateLimit {
    /// The number of errors that may be sent in a row. Each second allows one more.
    const AT_ONCE: u32 = 10;

    /// Returns true if another error may be sent.
    fn allow(&mut self, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        if seconds > 0 {
            let earned = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(Self::AT_ONCE);
            self.since = now;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}
