//! The tasks that wait for tasks of other agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_schema::SessionId;
use duologue_schema::envelope::EnvelopeError;

/// By agent, the sessions of its tasks that wait, with the number of tasks that each waits for.
type Waiting = HashMap<String, HashMap<SessionId, usize>>;

/// The tasks that wait for tasks of other agents. A task keeps its place at its agent meanwhile.
#[derive(Clone, Default)]
pub(super) struct WaitingTasks(Arc<Mutex<Waiting>>);

/// A task that waits for another one, until it is dropped.
pub(super) struct WaitingTask {
    tasks: WaitingTasks,
    agent: String,
    session: SessionId,
}

impl WaitingTasks {
    /// Notes that a task of `agent` waits for a task of `target`, which works on `places` tasks at a time.
    ///
    /// If all of those wait themselves, the wait is refused. Agents that wait for each other would never end. The last of
    /// them to begin finds the others here.
    pub(super) fn begin(
        &self,
        agent: &str,
        session: &SessionId,
        target: &str,
        places: usize,
    ) -> Result<WaitingTask, EnvelopeError> {
        let mut all = self.0.lock_unpoisoned();
        if all.get(target).is_some_and(|sessions| sessions.len() >= places) {
            return Err(EnvelopeError::overloaded(format!(
                "all {places} tasks of the agent {target:?} wait for other agents, and could wait for this one; retry later, or raise `agents.max_tasks`"
            )));
        }
        *all.entry(agent.to_owned()).or_default().entry(session.clone()).or_default() += 1;
        Ok(WaitingTask { tasks: self.clone(), agent: agent.to_owned(), session: session.clone() })
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        let mut all = self.tasks.0.lock_unpoisoned();
        let Some(sessions) = all.get_mut(&self.agent) else { return };
        if let Some(count) = sessions.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.session);
            }
        }
        if sessions.is_empty() {
            all.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_would_close_a_circle_is_refused() {
        let tasks = WaitingTasks::default();
        let begin = |agent: &str, session: &str, target: &str| {
            tasks.begin(agent, &SessionId::from(session), target, 2)
        };
        // Several waits of one task take one place.
        let waits = [begin("a", "a1", "b"), begin("a", "a1", "b"), begin("a", "a2", "b")];
        assert!(waits.iter().all(Result::is_ok));
        let refused = begin("b", "b1", "a").err().expect("a refusal");
        assert!(refused.message.contains("all 2 tasks of the agent \"a\" wait"), "{}", refused.message);
        let [first, again, second] = waits;
        drop(first);
        assert!(begin("b", "b1", "a").is_err());
        drop(again);
        assert!(begin("b", "b1", "a").is_ok());
        drop(second);
        assert!(tasks.0.lock_unpoisoned().is_empty());
    }
}
