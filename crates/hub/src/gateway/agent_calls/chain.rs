//! The chain of agents that wait for each other.

use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_store::{JsonText, StoredTask, StoredTaskKey};
use serde_json::{Value, json};

/// The agents of a chain of calls: the first one works for the user, and each waits for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallChain(Vec<String>);

impl CallChain {
    /// Returns the chain of an agent from the metadata of the task that it works on, if it works on one.
    pub(super) fn of(metadata: Option<&JsonText>, agent: &str) -> Self {
        let metadata: Value = metadata.and_then(|metadata| metadata.parse().ok()).unwrap_or_default();
        let callers = metadata["duologue"]["callers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let callers = callers.iter().filter_map(Value::as_str).map(str::to_owned);
        CallChain(callers.chain([agent.to_owned()]).collect())
    }

    /// Returns the metadata of a task that the last agent delegates. `parent` is its own task, if that waits.
    pub(super) fn metadata(&self, parent: Option<&StoredTaskKey>) -> Value {
        let mut members = json!({"callers": self.0});
        if let Some(parent) = parent {
            members["parent"] = json!({"agent": parent.agent, "task": parent.task});
        }
        json!({"duologue": members})
    }

    /// Returns true if an agent stands in the chain.
    pub(super) fn contains(&self, agent: &str) -> bool {
        self.0.iter().any(|caller| caller == agent)
    }

    /// Refuses a call that would make the chain a circle, or too long.
    pub(super) fn check(&self, agent: &str, limit: usize) -> Result<(), EnvelopeError> {
        let chain = self.0.join(" > ");
        if self.contains(agent) {
            return Err(EnvelopeError::of(
                EnvelopeErrorCode::TooManyHops,
                format!(
                    "the agent {agent:?} waits in this chain of calls already ({chain}); call another agent"
                ),
            ));
        }
        let calls = self.0.len();
        if calls > limit {
            return Err(too_deep(&format!("{chain} > {agent}"), calls, limit));
        }
        Ok(())
    }
}

/// Returns the metadata of work that goes on to another server, with its chain of calls. Each server counts as a call, so
/// work that would go round in a circle ends.
pub(crate) fn forwarded(metadata: &Value, agent: &str, limit: usize) -> Result<Value, EnvelopeError> {
    let chain = CallChain::of(JsonText::of(metadata).ok().as_ref(), agent);
    let calls = chain.0.len();
    if calls > limit {
        return Err(too_deep(&chain.0.join(" > "), calls, limit));
    }
    let mut members = metadata.as_object().cloned().unwrap_or_default();
    if let Value::Object(own) = chain.metadata(None) {
        members.extend(own);
    }
    Ok(Value::Object(members))
}

fn too_deep(chain: &str, calls: usize, limit: usize) -> EnvelopeError {
    let why = format!(
        "call depth reached ({chain}: call {calls}, the limit is {limit}); call fewer agents behind each other, or raise `limits.call_depth`"
    );
    EnvelopeError::of(EnvelopeErrorCode::TooManyHops, why)
}

/// Returns the task that waits for a task. Both have one owner.
pub(super) fn parent_of(task: &StoredTask) -> Option<StoredTaskKey> {
    let metadata: Value = task.metadata.parse().ok()?;
    let parent = &metadata["duologue"]["parent"];
    Some(StoredTaskKey::new(&task.key.owner, parent["agent"].as_str()?, parent["task"].as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_ends_at_its_limit_and_has_no_circle() {
        let first = CallChain::of(None, "a");
        assert_eq!(first.check("b", 1), Ok(()));
        let metadata = JsonText::of(&first.metadata(None)).unwrap();
        let second = CallChain::of(Some(&metadata), "b");
        assert_eq!(second, CallChain(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(second.check("c", 2), Ok(()));
        let deep = second.check("c", 1).unwrap_err();
        assert_eq!(
            deep.message,
            "call depth reached (a > b > c: call 2, the limit is 1); call fewer agents behind each other, or raise `limits.call_depth`"
        );
        for agent in ["a", "b"] {
            let circle = second.check(agent, 9).unwrap_err();
            assert_eq!(circle.code, EnvelopeErrorCode::TooManyHops);
            assert!(circle.message.contains("a > b") && !circle.retryable, "{circle}");
        }
        // Work that goes round servers ends, and keeps its other members.
        let once = forwarded(&json!({"retry": "safe"}), "a", 2).unwrap();
        let twice = forwarded(&once, "a", 2).unwrap();
        assert_eq!(twice, json!({"retry": "safe", "duologue": {"callers": ["a", "a"]}}));
        assert_eq!(forwarded(&twice, "a", 2).unwrap_err().code, EnvelopeErrorCode::TooManyHops);
        // Metadata of another form is that of no chain.
        let other = JsonText::of(&json!({"duologue": 1})).unwrap();
        assert_eq!(CallChain::of(Some(&other), "a"), first);
    }
}
