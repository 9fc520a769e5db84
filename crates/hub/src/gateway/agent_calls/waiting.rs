//! The tasks that wait for tasks of other agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_schema::SessionId;
use duologue_schema::envelope::EnvelopeError;

use crate::fair_places::may_take_one;

/// By agent, the sessions of its tasks that wait, with their owner and the number of tasks that each waits for.
type Waiting = HashMap<String, HashMap<SessionId, (Arc<str>, usize)>>;

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
    /// Notes that a task of `agent` waits for a task of `target`, which works on `places` tasks at a time. The owner
    /// of both is `None` if it shares the places with nobody.
    ///
    /// If the owner can have none of those until one that waits itself has ended, the wait is refused. Agents that
    /// wait for each other would never end. The last of them to begin finds the others here.
    pub(super) fn begin(
        &self,
        agent: &str,
        session: &SessionId,
        owner: Option<&Arc<str>>,
        target: &str,
        places: usize,
    ) -> Result<WaitingTask, EnvelopeError> {
        let mut all = self.0.lock_unpoisoned();
        if let Some(sessions) = all.get(target) {
            let own = owner.map_or(0, |owner| sessions.values().filter(|(other, _)| other == owner).count());
            if !may_take_one(own, places.saturating_sub(sessions.len())) {
                return Err(EnvelopeError::overloaded(format!(
                    "all tasks that the agent {target:?} may have of this owner wait for other agents, and could wait for this one; retry later, or raise `agents.max_tasks`, which is {places}"
                )));
            }
        }
        let owner = owner.cloned().unwrap_or_else(|| Arc::from(""));
        let (_, count) =
            all.entry(agent.to_owned()).or_default().entry(session.clone()).or_insert((owner, 0));
        *count += 1;
        Ok(WaitingTask { tasks: self.clone(), agent: agent.to_owned(), session: session.clone() })
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        let mut all = self.tasks.0.lock_unpoisoned();
        let Some(sessions) = all.get_mut(&self.agent) else { return };
        if let Some((_, count)) = sessions.get_mut(&self.session) {
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
            tasks.begin(agent, &SessionId::from(session), None, target, 2)
        };
        // Several waits of one task take one place.
        let waits = [begin("a", "a1", "b"), begin("a", "a1", "b"), begin("a", "a2", "b")];
        assert!(waits.iter().all(Result::is_ok));
        let refused = begin("b", "b1", "a").err().expect("a refusal");
        assert!(refused.message.contains("the agent \"a\" may have"), "{}", refused.message);
        let [first, again, second] = waits;
        drop(first);
        assert!(begin("b", "b1", "a").is_err());
        drop(again);
        assert!(begin("b", "b1", "a").is_ok());
        drop(second);
        assert!(tasks.0.lock_unpoisoned().is_empty());
    }
    #[test]
    fn a_circle_in_the_places_of_one_principal_is_refused() {
        let tasks = WaitingTasks::default();
        let begin = |owner: &str, agent: &str, session: &str, target: &str| {
            tasks.begin(agent, &SessionId::from(session), Some(&Arc::from(owner)), target, 4)
        };
        // Alice has two of four places at most, and leaves two to others.
        let waits = [begin("alice", "a", "a1", "b"), begin("alice", "a", "a2", "b")];
        assert!(waits.iter().all(Result::is_ok));
        assert!(begin("alice", "b", "b1", "a").is_err() && begin("bob", "b", "b2", "a").is_ok());
    }
}
