//! The incoming work of a connection: slots for delegations, the ended ones, and the number of
//! queries. No I/O and no clock.

use std::collections::HashMap;

use duologue_schema::envelope::{AgentStatus, Capabilities, Pong};

use super::ended_tasks::{EndedTask, EndedTasks, TaskKey};

/// The delegations of the other agent. `H` is the handle on a running one.
pub(crate) struct TaskSlots<H> {
    running: HashMap<TaskKey, TakenSlot<H>>,
    ended: EndedTasks,
    /// The number of queries that are being handled.
    queries: usize,
    /// The last capabilities that our handler returned.
    pub(crate) capabilities: Capabilities,
}

struct TakenSlot<H> {
    /// The fingerprint of the delegation.
    content: u128,
    handle: H,
}

/// The outcome of a request for a slot.
#[derive(Debug, PartialEq)]
pub(crate) enum Admission<H> {
    /// The task has a slot until [`TaskSlots::finish`] or [`TaskSlots::refuse`].
    Admitted,
    /// No slot is free.
    Full,
    /// The task already has a slot: this message is a repetition.
    Running(H),
    /// The task has already ended: this message is a repetition.
    Ended(Box<EndedTask>),
    /// The id is that of another task of the same sender.
    Conflict,
}

/// The outcome of a lookup.
#[derive(Debug, PartialEq)]
pub(crate) enum TaskLookup<H> {
    /// The task is running.
    Running(H),
    /// The task has ended.
    Ended(Box<EndedTask>),
    /// The sender has no task with this id.
    Nothing,
}

impl<H> Default for TaskSlots<H> {
    fn default() -> Self {
        TaskSlots {
            running: HashMap::new(),
            ended: EndedTasks::default(),
            queries: 0,
            capabilities: Capabilities::new(""),
        }
    }
}

impl<H: Clone> TaskSlots<H> {
    /// Requests a slot for a delegation. An urgent one may use one slot above the limit, unless that is
    /// 0. A repetition needs no slot.
    pub(crate) fn admit(
        &mut self,
        key: &TaskKey,
        content: u128,
        limit: u32,
        urgent: bool,
        handle: H,
    ) -> Admission<H> {
        if let Some(running) = self.running.get(key) {
            return match running.content == content {
                true => Admission::Running(running.handle.clone()),
                false => Admission::Conflict,
            };
        }
        match self.ended.get(key) {
            Some(ended) if ended.content != content => return Admission::Conflict,
            Some(ended) if !ended.is_rejected() => return Admission::Ended(Box::new(ended.clone())),
            _ => {}
        }
        if limit == 0 || self.count() >= u64::from(limit) + u64::from(urgent) {
            return Admission::Full;
        }
        self.ended.remove(key);
        self.running.insert(key.clone(), TakenSlot { content, handle });
        Admission::Admitted
    }

    /// Frees the slot of a task that was not accepted. The same message may be sent again. `ended`
    /// describes a rejection.
    pub(crate) fn refuse(&mut self, key: &TaskKey, ended: Option<EndedTask>) {
        if self.running.remove(key).is_some()
            && let Some(ended) = ended
        {
            self.ended.insert(key.clone(), ended);
        }
    }

    /// Frees the slot of an ended task; returns false if it had already ended.
    pub(crate) fn finish(&mut self, key: &TaskKey, ended: EndedTask) -> bool {
        let ends = self.running.remove(key).is_some();
        if ends {
            self.ended.insert(key.clone(), ended);
        }
        ends
    }

    /// Looks up a task to cancel it or to report its state.
    pub(crate) fn find(&self, key: &TaskKey) -> TaskLookup<H> {
        match self.running.get(key) {
            Some(running) => TaskLookup::Running(running.handle.clone()),
            None => match self.ended.get(key) {
                Some(ended) => TaskLookup::Ended(Box::new(ended.clone())),
                None => TaskLookup::Nothing,
            },
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
