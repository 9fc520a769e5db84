//! The memory of ended tasks, for repeated delegations and for queries about their state. No I/O and
//! no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use duologue_schema::envelope::{
    Ack, AgentId, DelegationOutcome, EnvelopeError, EnvelopeId, TaskState, TaskStatus,
};
use duologue_schema::serialized_len;

use crate::limits::{ENDED_TASK_BYTES, ENDED_TASKS};

/// The sender and the id of a delegation. Different senders may choose the same id.
pub(crate) type TaskKey = (AgentId, EnvelopeId);

/// The end of an accepted task.
pub(crate) type TaskEnd = Result<DelegationOutcome, EnvelopeError>;

/// An accepted task that has ended, or a rejected one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedTask {
    /// The fingerprint of the delegation.
    pub(crate) content: u128,
    pub(crate) ack: Ack,
    pub(crate) status: TaskStatus,
    /// `None` for a rejected task, and for an end that is too large to be kept.
    pub(crate) end: Option<Arc<TaskEnd>>,
}

impl EndedTask {
    /// Returns true if the task was not accepted. The same delegation may then be sent again.
    pub(crate) fn is_rejected(&self) -> bool {
        self.status.state == TaskState::Rejected
    }
}

/// The last ended tasks: at most [`ENDED_TASKS`], with at most [`ENDED_TASK_BYTES`]. The ends of the oldest
/// tasks are dropped before a task is forgotten, because a forgotten task runs again.
#[derive(Default)]
pub(crate) struct EndedTasks {
    tasks: HashMap<TaskKey, StoredTask>,
    /// The keys in order, by the number of their task.
    order: BTreeMap<u64, TaskKey>,
    /// The numbers of the tasks that have an end.
    ends: BTreeSet<u64>,
    last: u64,
    bytes: usize,
}

struct StoredTask {
    number: u64,
    /// The size without the end.
    fixed: usize,
    end: usize,
    task: EndedTask,
}

impl EndedTasks {
    pub(crate) fn get(&self, key: &TaskKey) -> Option<&EndedTask> {
        self.tasks.get(key).map(|stored| &stored.task)
    }

    /// Stores a task and evicts the oldest ones. An end that does not fit is left out.
    pub(crate) fn insert(&mut self, key: TaskKey, mut task: EndedTask) {
        self.remove(&key);
        // An id may be long, and so may the message of an error.
        let ids = key.0.as_str().len() + key.1.as_str().len();
        let fixed = serialized_len(&(&task.ack, &task.status), ENDED_TASK_BYTES);
        let Some(fixed) = fixed.map(|fixed| fixed + ids).filter(|fixed| *fixed <= ENDED_TASK_BYTES) else {
            return;
        };
        let end = task.end.as_ref().and_then(|end| match &**end {
            Ok(outcome) => serialized_len(outcome, ENDED_TASK_BYTES - fixed),
            Err(fault) => serialized_len(fault, ENDED_TASK_BYTES - fixed),
        });
        if end.is_none() {
            task.end = None;
        }
        self.last += 1;
        if end.is_some() {
            self.ends.insert(self.last);
        }
        let end = end.unwrap_or_default();
        self.bytes += fixed + end;
        self.order.insert(self.last, key.clone());
        self.tasks.insert(key, StoredTask { number: self.last, fixed, end, task });
        while self.tasks.len() > ENDED_TASKS {
            self.remove_oldest();
        }
        while self.bytes > ENDED_TASK_BYTES {
            match self.ends.first().copied() {
                Some(number) => self.remove_end(number),
                None => self.remove_oldest(),
            }
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone()) {
            self.remove(&oldest);
        }
    }

    fn remove_end(&mut self, number: u64) {
        self.ends.remove(&number);
        let stored = self.order.get(&number).and_then(|key| self.tasks.get_mut(key));
        if let Some(stored) = stored {
            stored.task.end = None;
            self.bytes -= std::mem::take(&mut stored.end);
        }
    }

    /// Removes a task that is sent again.
    pub(crate) fn remove(&mut self, key: &TaskKey) {
        if let Some(stored) = self.tasks.remove(key) {
            self.order.remove(&stored.number);
            self.ends.remove(&stored.number);
            self.bytes -= stored.fixed + stored.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> TaskKey {
        ("a".into(), id.into())
    }

    fn ended(outcome: usize) -> EndedTask {
        let end = DelegationOutcome::new("completed").outcome("x".repeat(outcome));
        let status = TaskStatus::new("t", TaskState::Completed);
        EndedTask { content: 1, ack: Ack::new(true), status, end: Some(Arc::new(Ok(end))) }
    }

    #[test]
    fn the_oldest_tasks_are_evicted() {
        let mut tasks = EndedTasks::default();
        for number in 0..=ENDED_TASKS {
            tasks.insert(key(&number.to_string()), ended(0));
        }
        assert!(tasks.get(&key("0")).is_none() && tasks.get(&key("1")).is_some());
        assert_eq!((tasks.tasks.len(), tasks.order.len()), (ENDED_TASKS, ENDED_TASKS));
        // A task that is stored again is young again.
        tasks.insert(key("1"), ended(0));
        tasks.insert(key("new"), ended(0));
        assert!(tasks.get(&key("1")).is_some() && tasks.get(&key("2")).is_none());
    }

    #[test]
    fn bytes_are_bounded() {
        let mut tasks = EndedTasks::default();
        for id in ["a", "b", "c"] {
            tasks.insert(key(id), ended(ENDED_TASK_BYTES / 2 - 500));
        }
        // The oldest end is dropped. Its task is not forgotten.
        let has_end = |id| tasks.get(&key(id)).map(|task| task.end.is_some());
        assert_eq!(["a", "b", "c"].map(has_end), [Some(false), Some(true), Some(true)]);
        assert!(tasks.bytes <= ENDED_TASK_BYTES);
        // The state of a task is kept without an end that is too large.
        tasks.insert(key("large"), ended(ENDED_TASK_BYTES));
        assert_eq!(tasks.get(&key("large")).map(|task| task.end.is_none()), Some(true));
        tasks.insert(key(&"x".repeat(ENDED_TASK_BYTES)), ended(0));
        tasks.insert(key(&"x".repeat(ENDED_TASK_BYTES - 500)), ended(0));
        assert!(tasks.bytes <= ENDED_TASK_BYTES);
        tasks.remove(&key(&"x".repeat(ENDED_TASK_BYTES - 500)));
        for id in ["a", "b", "c", "large"] {
            tasks.remove(&key(id));
        }
        assert_eq!((tasks.bytes, tasks.order.len(), tasks.ends.len()), (0, 0, 0));
    }

    #[test]
    fn an_id_that_is_stored_again_evicts_nothing() {
        let mut tasks = EndedTasks::default();
        tasks.insert(key("other"), ended(0));
        for _ in 0..2 * ENDED_TASKS {
            tasks.insert(key("again"), ended(0));
        }
        assert!(tasks.get(&key("other")).is_some());
        assert_eq!((tasks.order.len(), tasks.ends.len()), (2, 2));
    }
}
