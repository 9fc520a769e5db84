//! What the envelopes of one connection have in common: who waits, what runs, what has been seen.

use crate::lock::lock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use duologue_rpc::CancellationToken;
use duologue_schema::envelope::{Capabilities, DelegationOutcome, Envelope, EnvelopeError};
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

/// What an asker gets.
pub(crate) type EnvelopeReply = Result<Envelope, Error>;

/// The state of one connection.
pub(crate) struct EnvelopeState {
    /// When the agent that we are began.
    pub(crate) started: Instant,
    /// What we sent and wait for.
    pub(crate) table: Mutex<PendingReplies<oneshot::Sender<EnvelopeReply>, Arc<DelegationState>>>,
    /// What we were given to do.
    pub(crate) tasks: Mutex<TaskSlots<RunningTask>>,
    /// How many questions are being answered.
    pub(crate) queries: AtomicUsize,
    /// What our handler last said it can do.
    pub(crate) own: Mutex<Capabilities>,
    /// The notifications that have come.
    pub(crate) seen: Mutex<IdCache>,
    /// Where notifications wait for the handler.
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) listeners: Mutex<Vec<Weak<SubscriptionQueue>>>,
    pub(crate) complaints: Mutex<ErrorRateLimit>,
    /// Set when the connection has ended.
    pub(crate) over: CancellationToken,
    pub(crate) late: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl EnvelopeState {
    pub(crate) fn new(started: Instant) -> Self {
        EnvelopeState {
            started,
            table: Mutex::default(),
            tasks: Mutex::default(),
            queries: AtomicUsize::new(0),
            own: Mutex::new(Capabilities::new("")),
            seen: Mutex::default(),
            inbox: Mutex::default(),
            listeners: Mutex::default(),
            complaints: Mutex::new(ErrorRateLimit { left: ErrorRateLimit::AT_ONCE, since: started }),
            over: CancellationToken::new(),
            late: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Puts something behind what waits for the handler.
    pub(crate) fn deliver(&self, news: HandlerNotification, bytes: usize) {
        if lock(&self.inbox).push(news, bytes).is_some() {
            count(&self.dropped);
        }
    }
}

/// How a delegation of ours ends, and what is heard of it until then.
pub(crate) struct DelegationState {
    end: watch::Sender<Option<DelegationEnd>>,
    pub(crate) progress: Arc<SubscriptionQueue>,
    /// Whether the end has been looked at.
    claimed: AtomicBool,
}

/// The end of a delegation. The number is what its message took on the wire.
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

    /// The end, if it has come.
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
        // The sender is ours, so it is there for as long as we wait.
        end.unwrap_or(DelegationEnd::Lost(Error::from(duologue_rpc::Error::Cancelled)))
    }

    /// The end, if there is one that nobody has looked at.
    pub(crate) fn unclaimed(&self) -> Option<DelegationEnd> {
        if self.claimed.load(Relaxed) { None } else { self.now() }
    }

    pub(crate) fn progress(&self) -> Subscription {
        Subscription::new(self.progress.clone())
    }
}

/// How often we complain about notifications: a peer that sends nothing else must not make us talk all day.
pub(crate) struct ErrorRateLimit {
    left: u32,
    since: Instant,
}

impl ErrorRateLimit {
    /// How many may be sent in a row. Each second allows one more.
    pub(crate) const AT_ONCE: u32 = 10;

    /// Whether one more may be sent.
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

/// What became of odd envelopes, since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeStats {
    /// Answers that came as notifications when nobody waited for them any more. One that comes as a
    /// JSON-RPC response is counted by the connection: [`stray_responses`](duologue_rpc::Stats::stray_responses).
    pub late: u64,
    /// Messages that had come before.
    pub repeated: u64,
    /// Notifications that were dropped: they did not fit, or the handler did not take them.
    pub dropped: u64,
}

impl PeerAgent {
    /// Counts of what was dropped.
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
