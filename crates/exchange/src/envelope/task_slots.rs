//! The slots for incoming delegations, and the ids of finished ones. No I/O and no clock.

use std::collections::HashMap;

use duologue_schema::envelope::EnvelopeId;

use super::id_cache::IdCache;

/// The delegations of the other agent. `H` is the handle on a running one.
pub(crate) struct TaskSlots<H> {
    running: HashMap<EnvelopeId, H>,
    finished: IdCache,
}

/// The outcome of a request for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission<H> {
    /// The task has a slot until [`TaskSlots::finish`] or [`TaskSlots::refuse`].
    Admitted,
    /// No slot is free.
    Full,
    /// The task already has a slot: this message is a repetition.
    Running(H),
    /// The task has already finished.
    Finished,
}

/// The outcome of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TaskLookup<H> {
    /// The task is running.
    Running(H),
    /// The task has finished.
    Finished,
    /// No task has this id.
    Nothing,
}

impl<H> Default for TaskSlots<H> {
    fn default() -> Self {
        TaskSlots { running: HashMap::new(), finished: IdCache::default() }
    }
}

impl<H: Clone> TaskSlots<H> {
    /// Requests a slot for a delegation. An urgent one may use one slot above the limit.
    pub(crate) fn admit(&mut self, id: &EnvelopeId, limit: u32, urgent: bool, handle: H) -> Admission<H> {
        if let Some(running) = self.running.get(id) {
            return Admission::Running(running.clone());
        }
        if self.finished.contains(id.as_str()) {
            return Admission::Finished;
        }
        if self.count() >= u64::from(limit) + u64::from(urgent) {
            return Admission::Full;
        }
        self.running.insert(id.clone(), handle);
        Admission::Admitted
    }

    /// Frees the slot of a rejected task. The same message may be sent again.
    pub(crate) fn refuse(&mut self, id: &EnvelopeId) {
        self.running.remove(id);
    }

    /// Frees the slot of a finished task; returns false if it had already finished.
    pub(crate) fn finish(&mut self, id: &EnvelopeId) -> bool {
        self.running.remove(id).is_some() && self.finished.insert(id.as_str())
    }

    /// Looks up a task to cancel.
    pub(crate) fn find(&self, id: &EnvelopeId) -> TaskLookup<H> {
        match self.running.get(id) {
            Some(handle) => TaskLookup::Running(handle.clone()),
            None if self.finished.contains(id.as_str()) => TaskLookup::Finished,
            None => TaskLookup::Nothing,
        }
    }

    /// Returns the number of running tasks.
    pub(crate) fn count(&self) -> u64 {
        self.running.len() as u64
    }
}
