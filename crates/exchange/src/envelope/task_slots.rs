//! The incoming work of a connection: slots for delegations, ids of finished ones, and the number of
//! queries. No I/O and no clock.

use std::collections::HashMap;

use duologue_schema::envelope::{AgentStatus, Capabilities, EnvelopeId, Pong};

use super::id_cache::IdCache;

/// The delegations of the other agent. `H` is the handle on a running one.
pub(crate) struct TaskSlots<H> {
    running: HashMap<EnvelopeId, H>,
    finished: IdCache,
    /// The number of queries that are being handled.
    queries: usize,
    /// The last capabilities that our handler returned.
    pub(crate) capabilities: Capabilities,
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
        TaskSlots {
            running: HashMap::new(),
            finished: IdCache::default(),
            queries: 0,
            capabilities: Capabilities::new(""),
        }
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

    /// Counts a query; returns false if the limit is reached.
    pub(crate) fn start_query(&mut self, limit: usize) -> bool {
        let free = self.queries < limit;
        self.queries += usize::from(free);
        free
    }

    /// Records that a query has been handled.
    pub(crate) fn finish_query(&mut self) {
        self.queries = self.queries.saturating_sub(1);
    }

    /// Answers a ping from local state, without calling the handler.
    pub(crate) fn pong(&self, query_limit: usize) -> Pong {
        let tasks = self.count();
        let full = tasks > 0 && tasks >= u64::from(self.capabilities.max_concurrent_tasks);
        let status = match tasks {
            _ if full || self.queries >= query_limit => AgentStatus::Overloaded,
            0 if self.queries == 0 => AgentStatus::Idle,
            _ => AgentStatus::Busy,
        };
        Pong::new(status)
            .active_tasks(u32::try_from(tasks).unwrap_or(u32::MAX))
            .agent_name(self.capabilities.agent_name.clone())
    }

    /// Returns the number of running tasks.
    pub(crate) fn count(&self) -> u64 {
        self.running.len() as u64
    }
}
