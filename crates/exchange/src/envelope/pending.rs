//! The sending side: who waits for what, and what becomes of it. No I/O and no clock.
//!
//! A message of ours that wants an answer is *asked* until its answer comes, on whatever way. A
//! delegation is *delegated* besides, until it ends, which may be before its `ack` comes. Both are known by
//! the envelope's id, so that the `ref` of whatever arrives tells whose it is.

use std::collections::HashMap;

use duologue_schema::envelope::{EnvelopeId, EnvelopeKind};

use super::id_cache::IdCache;

/// What we have asked and delegated. `W` waits for an answer, `D` for the end of a delegation.
pub(crate) struct PendingReplies<W, D> {
    asked: HashMap<EnvelopeId, (EnvelopeKind, W)>,
    delegated: HashMap<EnvelopeId, D>,
    /// Ids of what we asked and delegated.
    ours: IdCache,
    /// What has ended by a `result` or an `error`. There is no second end.
    ended: IdCache,
    /// The same of ids that are not ours, apart: however many a peer makes up, no end of ours is forgotten.
    unknown: IdCache,
}

/// ReplyTarget a `result` or an `error` is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplyTarget<W, D> {
    /// Somebody waits for an answer, and this is it.
    Asker(W),
    /// A delegation ends with it.
    Delegator(D),
    /// It is about something that has ended before.
    Nobody,
    /// It is about nothing that is known here: a task whose handle was dropped, or a notification.
    Unknown,
}

impl<W, D> Default for PendingReplies<W, D> {
    fn default() -> Self {
        PendingReplies {
            asked: HashMap::new(),
            delegated: HashMap::new(),
            ours: IdCache::default(),
            ended: IdCache::default(),
            unknown: IdCache::default(),
        }
    }
}

impl<W, D> PendingReplies<W, D> {
    /// A message is about to be sent whose answer is of this kind.
    pub(crate) fn ask(&mut self, id: EnvelopeId, answer: EnvelopeKind, waiter: W) {
        self.ours.insert(id.as_str());
        self.asked.insert(id, (answer, waiter));
    }

    /// A delegation is about to be sent, and its end wanted.
    pub(crate) fn delegate(&mut self, id: EnvelopeId, waiter: D) {
        self.delegated.insert(id, waiter);
    }

    /// The JSON-RPC response has come: whom to give it to, unless it is late.
    pub(crate) fn answered(&mut self, id: &EnvelopeId) -> Option<W> {
        self.asked.remove(id).map(|(_, waiter)| waiter)
    }

    /// A `pong`, `response`, `ack` or `capabilities` has come as a notification: whom to give it to, unless
    /// it is late, or an answer to something else.
    pub(crate) fn replied(&mut self, to: &EnvelopeId, kind: &EnvelopeKind) -> Option<W> {
        match self.asked.get(to) {
            Some((wanted, _)) if wanted == kind => self.answered(to),
            _ => None,
        }
    }

    /// A `result` has come. Who has done a task has taken it on: its `ack` is not waited for any more.
    pub(crate) fn result(&mut self, of: &EnvelopeId) -> ReplyTarget<W, D> {
        match self.delegated.remove(of) {
            Some(waiter) => {
                self.answered(of);
                self.ended.insert(of.as_str());
                ReplyTarget::Delegator(waiter)
            }
            None => self.nobodys(of),
        }
    }

    /// An `error` has come as a notification. One that names a message that waits for its answer is that.
    pub(crate) fn error(&mut self, about: &EnvelopeId) -> ReplyTarget<W, D> {
        let delegated = self.delegated.remove(about);
        let whose = match (self.answered(about), delegated) {
            (Some(waiter), _) => ReplyTarget::Asker(waiter),
            (None, Some(waiter)) => ReplyTarget::Delegator(waiter),
            (None, None) => return self.nobodys(about),
        };
        self.ended.insert(about.as_str());
        whose
    }

    /// An end that nobody waits for, the first of its message or not.
    fn nobodys(&mut self, id: &EnvelopeId) -> ReplyTarget<W, D> {
        let id = id.as_str();
        let ours = self.ours.contains(id) || self.ended.contains(id);
        let memory = if ours { &mut self.ended } else { &mut self.unknown };
        if memory.insert(id) { ReplyTarget::Unknown } else { ReplyTarget::Nobody }
    }

    /// Whether somebody waits for an answer to a message, or for its end.
    pub(crate) fn awaits(&self, id: &EnvelopeId) -> bool {
        self.asked.contains_key(id) || self.delegated.contains_key(id)
    }

    /// Who waits for the end of a delegation.
    pub(crate) fn delegator(&self, id: &EnvelopeId) -> Option<&D> {
        self.delegated.get(id)
    }

    /// Nobody waits for the answer any more. What comes after this is late.
    pub(crate) fn gives_up(&mut self, id: &EnvelopeId) -> bool {
        self.answered(id).is_some()
    }

    /// Nobody waits for the end of a delegation any more.
    pub(crate) fn lets_run(&mut self, id: &EnvelopeId) {
        self.delegated.remove(id);
    }

    /// The connection has ended: who waits in vain.
    pub(crate) fn close(&mut self) -> (Vec<W>, Vec<D>) {
        let asked = self.asked.drain().map(|(_, (_, waiter))| waiter).collect();
        (asked, self.delegated.drain().map(|(_, waiter)| waiter).collect())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.delegated.is_empty()
    }
}
