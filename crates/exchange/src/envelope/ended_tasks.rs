//! The memory of ended tasks, for repeated delegations and for queries about their state. No I/O and
//! no clock.

use std::collections::{HashMap, VecDeque};
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

/// The last ended tasks: at most [`ENDED_TASKS`], with at most [`ENDED_TASK_BYTES`].
#[derive(Default)]
pub(crate) struct EndedTasks {
    tasks: HashMap<TaskKey, StoredTask>,
    /// The keys in order, each with the number of its task. A key may have been stored again since.
    order: VecDeque<(u64, TaskKey)>,
    last: u64,
    bytes: usize,
}

struct StoredTask {
    number: u64,
    bytes: usize,
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
        let end = task.end.as_ref().map_or(Some(0), |end| match &**end {
            Ok(outcome) => serialized_len(outcome, ENDED_TASK_BYTES - fixed),
            Err(fault) => serialized_len(fault, ENDED_TASK_BYTES - fixed),
        });
        if end.is_none() {
            task.end = None;
        }
        let bytes = fixed + end.unwrap_or_default();
        self.last += 1;
        self.bytes += bytes;
        self.order.push_back((self.last, key.clone()));
        self.tasks.insert(key, StoredTask { number: self.last, bytes, task });
        while (self.order.len() > ENDED_TASKS || self.bytes > ENDED_TASK_BYTES)
            && let Some((number, oldest)) = self.order.pop_front()
        {
            if self.tasks.get(&oldest).is_some_and(|stored| stored.number == number) {
                self.remove(&oldest);
            }
        }
    }

    /// Removes a task that is sent again.
    pub(crate) fn remove(&mut self, key: &TaskKey) {
        if let Some(stored) = self.tasks.remove(key) {
            self.bytes -= stored.bytes;
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
        assert!(tasks.get(&key("a")).is_none() && tasks.get(&key("b")).is_some());
        assert!(tasks.bytes <= ENDED_TASK_BYTES);
        // The state of a task is kept without an end that is too large.
        tasks.insert(key("large"), ended(ENDED_TASK_BYTES));
        assert_eq!(tasks.get(&key("large")).map(|task| task.end.is_none()), Some(true));
        tasks.insert(key(&"x".repeat(ENDED_TASK_BYTES)), ended(0));
        assert!(tasks.tasks.len() < 4);
        for id in ["a", "b", "c", "large"] {
            tasks.remove(&key(id));
        }
        assert_eq!(tasks.bytes, 0);
    }
}
