//! The lock around the state machine of envelopes, and the counters of dropped envelopes.

use std::sync::Mutex;

use duologue_rpc::CancellationToken;
use duologue_rpc::Lock as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::id_cache::Fingerprints;
use super::machine::{EnvelopeAction, EnvelopeActions, EnvelopeMachine};
use crate::peer_agent::PeerAgent;

/// The state of envelopes on one connection.
pub(crate) struct EnvelopeState {
    /// The start of this agent, for its uptime.
    pub(crate) started: Instant,
    /// Cancelled when the connection has ended.
    pub(crate) ended: CancellationToken,
    /// The number of urgent tasks that run. It is not part of the machine, because a change wakes
    /// handlers.
    pub(crate) urgent: watch::Sender<u32>,
    /// Fingerprints of delegations, to compare repeated ones.
    pub(crate) prints: Fingerprints,
    /// Locked while the end of a task is sent again.
    pub(crate) repeats: tokio::sync::Mutex<()>,
    machine: Mutex<EnvelopeMachine>,
}

impl EnvelopeState {
    pub(crate) fn new(started: Instant) -> Self {
        let machine = Mutex::new(EnvelopeMachine::new(started));
        EnvelopeState {
            started,
            ended: CancellationToken::new(),
            urgent: watch::Sender::new(0),
            prints: Fingerprints::default(),
            repeats: tokio::sync::Mutex::default(),
            machine,
        }
    }

    /// Reads or changes the state under the lock. `change` sends nothing, wakes nobody and calls no
    /// code of the user.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut EnvelopeMachine) -> T) -> T {
        change(&mut self.machine.lock_unpoisoned())
    }

    /// Handles an event under the lock and performs its actions after that; returns false if the
    /// message belongs to nothing here.
    pub(crate) fn handle(&self, event: impl FnOnce(&mut EnvelopeMachine) -> EnvelopeActions) -> bool {
        let actions = self.with(event);
        let handled = actions.is_some();
        actions.into_iter().flatten().for_each(|action| self.perform(action));
        handled
    }

    fn perform(&self, action: EnvelopeAction) {
        match action {
            EnvelopeAction::Reply(waiter, reply) => {
                if waiter.send(reply).is_err() {
                    self.with(|machine| machine.stats.late += 1);
                }
            }
            EnvelopeAction::Fail(waiter, error) => drop(waiter.send(Err(error))),
            EnvelopeAction::Wake(task) => {
                task.over.cancel();
                task.progress.close();
                task.output.close();
            }
            EnvelopeAction::Push(queue, notification, bytes) => queue.push(notification, bytes),
            EnvelopeAction::Close(queue) => queue.close(),
            EnvelopeAction::Deliver(delivery) => {
                if delivery.push().is_some() {
                    self.count_dropped();
                }
            }
        }
    }

    /// Counts a message that was dropped.
    pub(crate) fn count_dropped(&self) {
        self.with(|machine| machine.stats.dropped += 1);
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
        self.link.envelopes.with(|machine| machine.stats)
    }
}
