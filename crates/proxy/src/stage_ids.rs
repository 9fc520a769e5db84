//! The ids that the chain keeps for one stage.

use std::collections::{HashMap, HashSet};

use duologue_transcript::Side;

use crate::link::StageCall;
use crate::message::StageMessage;

/// A value for each side.
#[derive(Debug, Default)]
pub(crate) struct PerSide<T> {
    client: T,
    agent: T,
}

impl<T> PerSide<T> {
    pub(crate) fn of(&self, side: Side) -> &T {
        match side {
            Side::Client => &self.client,
            Side::Agent => &self.agent,
        }
    }

    pub(crate) fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Client => &mut self.client,
            Side::Agent => &mut self.agent,
        }
    }
}

/// The ids of requests for one stage, by the side that sends the requests, or for the stage's own ones receives them.
#[derive(Debug, Default)]
pub(crate) struct StageIds {
    /// The open requests of the stage itself, by the token of their id.
    calls: PerSide<HashMap<String, StageCall>>,
    /// The ids that the stage has replaced: the new ids by the old ones.
    new_ids: PerSide<HashMap<String, String>>,
    /// The same in the other direction.
    old_ids: PerSide<HashMap<String, String>>,
    /// The requests that the stage has taken.
    taken: PerSide<HashSet<String>>,
    len: usize,
}

/// The meaning of a message for the ids of a stage.
pub(crate) enum IdMatch {
    /// The response to a request of the stage.
    Own(StageCall),
    /// The line with the id that it has on the other side of the stage.
    Mapped(Vec<u8>),
}

impl StageIds {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the meaning of a message from `from`, and forgets the id of a response.
    pub(crate) fn find(&mut self, from: Side, message: &StageMessage<'_>) -> Option<IdMatch> {
        if message.is_response() {
            let id = message.id()?;
            if let Some(call) = self.calls.of_mut(from).remove(id) {
                self.len -= 1;
                return Some(IdMatch::Own(call));
            }
            let old = self.old_ids.of_mut(from.other()).remove(id)?;
            self.new_ids.of_mut(from.other()).remove(&old);
            self.len -= 1;
            return message.id_replaced(&old).map(IdMatch::Mapped);
        }
        if self.new_ids.of(from).is_empty() {
            return None;
        }
        let new = self.new_ids.of(from).get(message.cancelled()?)?;
        message.cancelled_replaced(new).map(IdMatch::Mapped)
    }

    pub(crate) fn add_call(&mut self, to: Side, id: String, call: StageCall) {
        self.len += usize::from(self.calls.of_mut(to).insert(id, call).is_none());
    }

    /// Returns the id of an open request of the stage.
    pub(crate) fn call_id(&self, to: Side, call: StageCall) -> Option<&str> {
        self.calls.of(to).iter().find(|(_, open)| **open == call).map(|(id, _)| id.as_str())
    }

    /// Removes and returns the open requests of the stage to a side, oldest first.
    pub(crate) fn take_calls(&mut self, to: Side) -> Vec<StageCall> {
        let mut calls: Vec<_> = self.calls.of_mut(to).drain().map(|(_, call)| call).collect();
        self.len -= calls.len();
        calls.sort_unstable();
        calls
    }

    /// Keeps a replaced id. Returns false if one of both is in use.
    pub(crate) fn map(&mut self, from: Side, old: &str, new: &str) -> bool {
        if self.new_ids.of(from).contains_key(old) || self.old_ids.of(from).contains_key(new) {
            return false;
        }
        self.new_ids.of_mut(from).insert(old.to_owned(), new.to_owned());
        self.old_ids.of_mut(from).insert(new.to_owned(), old.to_owned());
        self.len += 1;
        true
    }

    /// Keeps a taken request. Returns false if its id is in use.
    pub(crate) fn take(&mut self, from: Side, id: &str) -> bool {
        let is_new = self.taken.of_mut(from).insert(id.to_owned());
        self.len += usize::from(is_new);
        is_new
    }

    /// Forgets a taken request. Returns false if there is none with this id.
    pub(crate) fn answer(&mut self, from: Side, id: &str) -> bool {
        let was_taken = self.taken.of_mut(from).remove(id);
        self.len -= usize::from(was_taken);
        was_taken
    }

    /// Returns true for a cancel of a request that the stage has taken.
    pub(crate) fn is_cancel_of_taken(&self, from: Side, message: &StageMessage<'_>) -> bool {
        let taken = self.taken.of(from);
        !taken.is_empty() && message.cancelled().is_some_and(|id| taken.contains(id))
    }
}
