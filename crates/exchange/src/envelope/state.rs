//! The state of envelopes on one connection.

use duologue_rpc::Lock as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use duologue_rpc::CancellationToken;
use duologue_schema::envelope::{DelegationOutcome, Envelope, EnvelopeError};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::Subscription;
use super::id_cache::IdCache;
use super::inbox::{HandlerNotification, Inbox};
use super::pending::PendingReplies;
use super::subscription::SubscriptionQueue;
use super::task_runner::RunningTask;
use super::task_slots::TaskSlots;
use crate::error::Error;
use crate::peer_agent::PeerAgent;

/// The response to a request.
pub(crate) type EnvelopeReply = Result<Envelope, Error>;

/// The state of envelopes on one connection: pending requests, running tasks, and seen ids.
pub(crate) struct EnvelopeState {
    /// The start of this agent, for its uptime.
    pub(crate) started: Instant,
    /// Our pending requests and delegations.
    pub(crate) pending: Mutex<PendingReplies<oneshot::Sender<EnvelopeReply>, Arc<DelegationState>>>,
    /// The tasks and queries of the other agent.
    pub(crate) tasks: Mutex<TaskSlots<RunningTask>>,
    /// The ids of received notifications.
    pub(crate) seen: Mutex<IdCache>,
    /// The notifications that wait for the handler.
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) listeners: Mutex<Vec<Weak<SubscriptionQueue>>>,
    pub(crate) error_rate: Mutex<ErrorRateLimit>,
    /// Cancelled when the connection has ended.
    pub(crate) ended: CancellationToken,
    pub(crate) late: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl EnvelopeState {
    pub(crate) fn new(started: Instant) -> Self {
        EnvelopeState {
            started,
            pending: Mutex::default(),
            tasks: Mutex::default(),
            seen: Mutex::default(),
            inbox: Mutex::default(),
            listeners: Mutex::default(),
            error_rate: Mutex::new(ErrorRateLimit { left: ErrorRateLimit::AT_ONCE, since: started }),
            ended: CancellationToken::new(),
            late: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Queues a message for the handler.
    pub(crate) fn deliver(&self, message: HandlerNotification, bytes: usize) {
        if self.inbox.lock_unpoisoned().push(message, bytes).is_some() {
            count(&self.dropped);
        }
    }
}

/// The state of an outgoing delegation: its progress and its end.
pub(crate) struct DelegationState {
    end: watch::Sender<Option<DelegationEnd>>,
    pub(crate) progress: Arc<SubscriptionQueue>,
    /// True once the end has been read.
    claimed: AtomicBool,
}

/// The end of a delegation. The number is the size of its message on the wire.
#[derive(Clone)]
pub(crate) enum DelegationEnd {
    Result(Envelope<DelegationOutcome>, usize),
    Error(Envelope<EnvelopeError>, usize),
    Lost(Error),
}

impl DelegationState {
    pub(crate) fn new() -> Self {
        DelegationState {
            end: watch::Sender::new(None),
            progress: SubscriptionQueue::of_a_task(),
            claimed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Returns the end, if it has arrived.
    pub(crate) fn now(&self) -> Option<DelegationEnd> {
        self.end.borrow().clone()
    }

    pub(crate) fn end(&self, end: DelegationEnd) {
        self.end.send_replace(Some(end));
        self.progress.close();
    }

    pub(crate) async fn wait(&self) -> DelegationEnd {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        self.claimed.store(true, Relaxed);
        // This struct owns the sender, so the channel stays open.
        end.unwrap_or(DelegationEnd::Lost(Error::from(duologue_rpc::Error::Cancelled)))
    }

    /// Returns the end, if it has arrived and was not read.
    pub(crate) fn unclaimed(&self) -> Option<DelegationEnd> {
        if self.claimed.load(Relaxed) { None } else { self.now() }
    }

    pub(crate) fn progress(&self) -> Subscription {
        Subscription::new(self.progress.clone())
    }
}

/// A rate limit for error messages about invalid notifications.
pub(crate) struct ErrorRateLimit {
    left: u32,
    since: Instant,
}

impl ErrorRateLimit {
    /// The number of errors that may be sent in a row. Each second allows one more.
    pub(crate) const AT_ONCE: u32 = 10;

    /// Returns true if another error may be sent.
    pub(crate) fn allow(&mut self, now: Instant) -> bool {
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

/// Counters of dropped envelopes since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeStats {
    /// Responses that arrived as notifications after the request had ended. Late JSON-RPC responses
    /// are counted by the connection as [`stray_responses`](duologue_rpc::Stats::stray_responses).
    pub late: u64,
    /// Repeated messages.
    pub repeated: u64,
    /// Notifications that were dropped because they were invalid or because the handler did not
    /// read them.
    pub dropped: u64,
}

impl PeerAgent {
    /// Returns the counters of dropped envelopes.
    #[must_use]
    pub fn exchange_stats(&self) -> ExchangeStats {
        let EnvelopeState { late, repeated, dropped, .. } = &self.link.envelopes;
        ExchangeStats {
            late: late.load(Relaxed),
            repeated: repeated.load(Relaxed),
            dropped: dropped.load(Relaxed),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
