//! The id of the agent in envelopes (RFD 0004).
//!
//! An agent without a configured id has another one in each process. All clients learn the first one, and the hub replaces
//! it in messages for a process that has another one.

use std::sync::OnceLock;

use duologue_rpc::raw_message::{member, member_text, splice};
use duologue_schema::envelope::AgentId;
use duologue_schema::{DuologueCapabilities, InitializeResponse};
use serde_json::json;

/// The id that clients learn.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedId(OnceLock<AgentId>);

impl AnnouncedId {
    /// Sets the id in the introduction of a process.
    pub(crate) fn announce(&self, introduction: &mut InitializeResponse) {
        let meta = &mut introduction.agent_capabilities.meta;
        let mut capabilities = DuologueCapabilities::of(meta.as_ref());
        let Some(own) = capabilities.agent_id.take() else { return };
        capabilities.agent_id = Some(self.0.get_or_init(|| own).clone());
        capabilities.write_to(meta);
    }

    /// Returns the two ids of a process that has another id than clients have learned.
    pub(crate) fn renamed(&self, introduction: &InitializeResponse) -> Option<RenamedAgent> {
        let own = DuologueCapabilities::of(introduction.agent_capabilities.meta.as_ref()).agent_id?;
        let announced = self.0.get().filter(|announced| **announced != own)?.clone();
        Some(RenamedAgent { announced, own })
    }
}

/// A process whose id clients do not know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RenamedAgent {
    announced: AgentId,
    own: AgentId,
}

impl RenamedAgent {
    /// Addresses an envelope for the announced id to the process. Other messages stay as they are.
    pub(crate) fn address(&self, line: Vec<u8>) -> Vec<u8> {
        self.addressed(&line).unwrap_or(line)
    }

    fn addressed(&self, line: &[u8]) -> Option<Vec<u8>> {
        if !member_text(line, "method")?.starts_with("_session/") {
            return None;
        }
        let params = member(line, "params")?;
        let envelope = member(line.get(params.clone())?, "envelope")?;
        let start = params.start + envelope.start;
        let envelope = line.get(start..params.start + envelope.end)?;
        if member_text(envelope, "to")? != self.announced.as_str() {
            return None;
        }
        let to = member(envelope, "to")?;
        splice(line, start + to.start..start + to.end, json!(self.own).to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(id: &str) -> InitializeResponse {
        let meta = json!({"duologue": {"agentId": id, "envelope": {"v": [1]}}});
        let capabilities = json!({"_meta": meta});
        serde_json::from_value(json!({"protocolVersion": 1, "agentCapabilities": capabilities})).unwrap()
    }

    #[test]
    fn envelopes_reach_a_process_with_another_id() {
        let announced = AnnouncedId::default();
        let mut introductions = ["aa", "bb"].map(introduction);
        let [first, second] = &mut introductions;
        announced.announce(first);
        assert_eq!(announced.renamed(first), None);
        let renamed = announced.renamed(second).unwrap();
        announced.announce(second);
        assert_eq!(first, second);

        let line = |method: &str, to: &str| {
            format!(
                r#"{{"id":1,"method":"{method}","params":{{"to":"aa","envelope":{{"x" :1,"to":"{to}"}}}}}}"#
            )
        };
        for (method, to, expected) in [
            ("_session/query", "aa", "bb"),
            ("_session/query", "", ""),
            ("_session/query", "cc", "cc"),
            ("session/prompt", "aa", "aa"),
        ] {
            let addressed = renamed.address(line(method, to).into_bytes());
            assert_eq!(String::from_utf8(addressed).unwrap(), line(method, expected));
        }
    }
}
