//! A task of the other agent, in the hands of who does it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use duologue_rpc::CancellationToken;
use duologue_schema::Json;
use duologue_schema::envelope::{Delegate, Envelope, EnvelopeError, EnvelopeErrorCode, Notify, Priority};

use super::Received;
use super::received::ReplyAddress;
use super::task_slots::TaskLookup;
use crate::error::Result;
use crate::hops::Hops;
use crate::lock::lock;
use crate::peer_agent::PeerAgent;

/// The topic of news about a delegation, whose `ref` names it.
pub const PROGRESS: &str = "task.progress";

/// A task of the other agent. It derefs to the [`Delegate`] that describes it, and is cheap to clone.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReceivedTask {
    /// The envelope it came in.
    pub envelope: Arc<Envelope<Delegate>>,
    /// Who delegated it, in the session it came in: to ask back.
    pub peer: PeerAgent,
    hops: Hops,
    cancellation: CancellationToken,
    why: Arc<Mutex<Option<EnvelopeError>>>,
}

impl ReceivedTask {
    pub(crate) fn new(received: Received<Delegate>, cancellation: CancellationToken) -> Self {
        let Received { envelope, peer, hops } = received;
        ReceivedTask { envelope: Arc::new(envelope), peer, hops, cancellation, why: Arc::default() }
    }

    /// Returns how many handlers it has come through.
    #[must_use]
    pub fn hops(&self) -> Hops {
        self.hops
    }

    /// Whether it may use the slot above the limit.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.priority == Priority::Urgent
    }

    /// Waits until it is to stop: the other agent has cancelled it, its deadline has passed, or the
    /// connection has ended. What returns within
    /// [`Limits::cancel_grace`](duologue_rpc::Limits::cancel_grace) after that is still its result.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Whether it is to stop, see [`cancelled`](Self::cancelled).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// What [`cancelled`](Self::cancelled) waits for, to hand on.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Tells the other agent how it goes: a notification of the topic [`PROGRESS`]. Nothing is sent when
    /// the other agent wants no report, or when the task is over: nothing comes behind its end.
    ///
    /// # Errors
    ///
    /// As [`PeerAgent::notify`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for room sends nothing.
    pub async fn progress(&self, data: impl Into<Json>) -> Result<()> {
        if !self.wants_report() {
            return Ok(());
        }
        let news = self.peer.carried(self.origin().reply(Notify::new(PROGRESS).data(data)));
        loop {
            {
                // Held while it is sent: the end leaves when the task is no longer among these.
                let tasks = lock(&self.peer.link.envelopes.tasks);
                let runs = matches!(tasks.find(&self.envelope.id), TaskLookup::Running(_));
                if !runs || self.peer.rpc().try_notify(&news)? {
                    return Ok(());
                }
            }
            self.peer.rpc().ready().await?;
        }
    }

    pub(crate) fn origin(&self) -> ReplyAddress {
        ReplyAddress::of(&self.envelope, &self.peer)
    }

    /// Asks it to stop. The first reason counts.
    pub(crate) fn stop(&self, code: EnvelopeErrorCode, why: impl Into<String>) {
        lock(&self.why).get_or_insert_with(|| EnvelopeError::of(code, why));
        self.cancellation.cancel();
    }

    /// What it ends with if it does not finish after having been asked to stop.
    pub(crate) fn stopped(&self) -> Option<EnvelopeError> {
        let why = lock(&self.why).clone();
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
