//! The receiving side: which delegations run, and which have been there. No I/O and no clock.

use std::collections::HashMap;

use duologue_schema::envelope::EnvelopeId;

use super::id_cache::IdCache;

/// The delegations of the other agent. `H` is what is known of one that runs.
pub(crate) struct TaskSlots<H> {
    running: HashMap<EnvelopeId, H>,
    finished: IdCache,
}

/// What becomes of a delegation that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission<H> {
    /// It has a slot, until [`TaskSlots::finish`] or [`TaskSlots::refuse`].
    Admitted,
    /// There is no slot.
    Full,
    /// It has one already: the same message has come before.
    Running(H),
    /// It has been there and is over.
    Finished,
}

/// What a cancellation finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TaskLookup<H> {
    /// It runs.
    Running(H),
    /// It is over.
    Finished,
    /// There was none of that id.
    Nothing,
}

impl<H> Default for TaskSlots<H> {
    fn default() -> Self {
        TaskSlots { running: HashMap::new(), finished: IdCache::default() }
    }
}

impl<H: Clone> TaskSlots<H> {
    /// A delegation arrives. An urgent one may use one slot above the limit.
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

    /// It was not taken on: its slot is free, and the same message may come again.
    pub(crate) fn refuse(&mut self, id: &EnvelopeId) {
        self.running.remove(id);
    }

    /// It is over: its slot is free; `false` if it was over before.
    pub(crate) fn finish(&mut self, id: &EnvelopeId) -> bool {
        self.running.remove(id).is_some() && self.finished.insert(id.as_str())
    }

    /// What there is to cancel.
    pub(crate) fn find(&self, id: &EnvelopeId) -> TaskLookup<H> {
        match self.running.get(id) {
            Some(handle) => TaskLookup::Running(handle.clone()),
            None if self.finished.contains(id.as_str()) => TaskLookup::Finished,
            None => TaskLookup::Nothing,
        }
    }

    /// How many run.
    pub(crate) fn count(&self) -> u64 {
        self.running.len() as u64
    }
}
