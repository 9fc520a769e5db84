//! The table of outgoing requests and delegations. It does no I/O and uses no clock.
//!
//! A request is pending until its response arrives, as a JSON-RPC response or as a notification. A
//! delegation is also pending until its task ends, which may happen before its `ack` arrives. Both
//! are registered under the envelope's id, which incoming messages carry as `ref`.

use duologue_rpc::PendingTable;
use duologue_schema::envelope::{AgentId, EnvelopeId, EnvelopeKind};

use super::id_cache::IdCache;

/// The pending requests and delegations. `W` receives a response, `D` the end of a delegation.
pub(crate) struct PendingReplies<W, D> {
    requests: PendingTable<EnvelopeId, (EnvelopeKind, W), ()>,
    delegations: PendingTable<EnvelopeId, D, ()>,
    /// Ids of all requests and delegations that we sent.
    ours: IdCache,
    /// Ids of our messages that a `result` or an `error` has ended. Each ends only once.
    ended: IdCache,
    /// The same for foreign ids, each with the sender of the end. They have a cache of their own, so that invented ids cannot evict
    /// ours.
    unknown: IdCache,
}

/// The receiver of a `result` or an `error`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplyTarget<W, D> {
    /// A request waits for this response.
    Request(W),
    /// A delegation ends with this message.
    Delegation(D),
    /// The message is about something that has already ended.
    Repeated,
    /// The message is about nothing known here: a task without a handle, or a notification.
    Unknown,
}

impl<W, D> Default for PendingReplies<W, D> {
    fn default() -> Self {
        PendingReplies {
            requests: PendingTable::default(),
            delegations: PendingTable::default(),
            ours: IdCache::default(),
            ended: IdCache::default(),
            unknown: IdCache::default(),
        }
    }
}

impl<W, D> PendingReplies<W, D> {
    /// Registers a request before it is sent. `answer` is the kind of its response. Returns false if a
    /// request with this id waits. After the end of the connection the waiter is dropped, since the
    /// request cannot be sent.
    pub(crate) fn add_request(&mut self, id: EnvelopeId, answer: EnvelopeKind, waiter: W) -> bool {
        if self.requests.get(&id).is_some() {
            return false;
        }
        self.ours.insert(id.as_str());
        let _ = self.requests.insert(id, (answer, waiter));
        true
    }

    /// Registers a delegation whose end is requested, before it is sent.
    pub(crate) fn add_delegation(&mut self, id: EnvelopeId, waiter: D) {
        let _ = self.delegations.insert(id, waiter);
    }

    /// Removes a request and returns its waiter. `None` means that it has its response already.
    /// Later responses are late.
    pub(crate) fn take_response(&mut self, id: &EnvelopeId) -> Option<W> {
        self.requests.remove(id).map(|(_, waiter)| waiter)
    }

    /// Returns the waiter for a `pong`, `response`, `ack` or `capabilities` notification. Returns
    /// `None` if it is late or does not match the request.
    pub(crate) fn take_reply(&mut self, to: &EnvelopeId, kind: &EnvelopeKind) -> Option<W> {
        self.requests.remove_if(to, |(wanted, _)| wanted == kind).map(|(_, waiter)| waiter)
    }

    /// Finds the receiver of a `result`. A result implies that the task was accepted, so its `ack`
    /// is no longer pending.
    pub(crate) fn result(&mut self, from: &AgentId, of: &EnvelopeId) -> ReplyTarget<W, D> {
        match self.delegations.remove(of) {
            Some(waiter) => {
                self.take_response(of);
                self.ended.insert(of.as_str());
                ReplyTarget::Delegation(waiter)
            }
            None => self.unclaimed(from, of),
        }
    }

    /// Finds the receiver of an `error` notification. If a request with that id waits for its
    /// response, the error is the response.
    pub(crate) fn error(&mut self, from: &AgentId, about: &EnvelopeId) -> ReplyTarget<W, D> {
        let delegation = self.delegations.remove(about);
        let target = match (self.take_response(about), delegation) {
            (Some(waiter), _) => ReplyTarget::Request(waiter),
            (None, Some(waiter)) => ReplyTarget::Delegation(waiter),
            (None, None) => return self.unclaimed(from, about),
        };
        self.ended.insert(about.as_str());
        target
    }

    /// Classifies an end without a receiver as new or repeated.
    fn unclaimed(&mut self, from: &AgentId, id: &EnvelopeId) -> ReplyTarget<W, D> {
        let id = id.as_str();
        let new = match self.ours.contains(id) || self.ended.contains(id) {
            true => self.ended.insert(id),
            // Another agent may end a message of its own with the same id.
            false => self.unknown.insert((from.as_str(), id)),
        };
        if new { ReplyTarget::Unknown } else { ReplyTarget::Repeated }
    }

    /// Returns true if a request or a delegation with this id is pending.
    pub(crate) fn awaits(&self, id: &EnvelopeId) -> bool {
        self.requests.get(id).is_some() || self.delegations.get(id).is_some()
    }

    /// Returns the receiver of the end of a delegation.
    pub(crate) fn delegation(&self, id: &EnvelopeId) -> Option<&D> {
        self.delegations.get(id)
    }

    /// Removes a delegation whose end is no longer requested.
    pub(crate) fn remove_delegation(&mut self, id: &EnvelopeId) {
        self.delegations.remove(id);
    }

    /// Removes and returns everything pending, when the connection has ended.
    pub(crate) fn close(&mut self) -> (Vec<W>, Vec<D>) {
        let requests = self.requests.close(()).map(|(_, waiter)| waiter).collect();
        (requests, self.delegations.close(()).collect())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.delegations.is_empty()
    }
}
