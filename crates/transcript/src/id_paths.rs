//! Where the messages of agents to each other hold ids, and what is never twice the same.
//!
//! ACP's own ids are known by their member (`toolCallId`). Those of envelopes and dialogue messages have names
//! that anything may have (`id`, `from`), so they are known by their place.

use crate::redact::json_scan::PathStep;

/// What stands in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VariableField {
    /// The id of an envelope: its own, or the one it answers.
    Envelope,
    /// The id of an agent.
    Agent,
    /// The id of a dialogue, which is no session of ACP.
    Dialogue,
    /// The id of a message of a dialogue.
    Message,
    /// What ties together several dialogues.
    Correlation,
    /// A time, or how long something has been running.
    Time,
    /// A signature: of another time, or another key, it is another one.
    Signature,
}

impl VariableField {
    /// Under which name ids that stand there are mapped; `None` for what is no id.
    pub(crate) fn id(self) -> Option<&'static str> {
        match self {
            VariableField::Envelope => Some(ENVELOPE),
            VariableField::Agent => Some(AGENT),
            VariableField::Dialogue => Some(DIALOGUE),
            VariableField::Message => Some(MESSAGE),
            VariableField::Correlation => Some("correlation"),
            VariableField::Time | VariableField::Signature => None,
        }
    }
}

/// The name under which agents are mapped.
pub(crate) const AGENT: &str = "agent";
const ENVELOPE: &str = "envelope";
const DIALOGUE: &str = "dialogue";
const MESSAGE: &str = "dialogue message";

/// The names of those ids that mean the same on the whole connection, whatever the session.
pub(crate) const WHOLE: [&str; 4] = [ENVELOPE, AGENT, DIALOGUE, MESSAGE];

/// What stands at a path of member names; an element of a list is any name. The path begins at the message,
/// or at its params.
pub(crate) fn field_at(path: &[&str]) -> Option<VariableField> {
    let path = match path {
        ["params" | "result", rest @ ..] | ["error", "data", rest @ ..] => rest,
        path => path,
    };
    match path {
        ["envelope", "id" | "ref"] => Some(VariableField::Envelope),
        ["envelope", "from" | "to"] | [.., "_meta", "duologue", "agentId"] => Some(VariableField::Agent),
        ["envelope", "ts"] | ["envelope", "payload", "uptime_secs"] => Some(VariableField::Time),
        ["message" | "error" | "receipt", rest @ ..] => dialogue(rest),
        _ => None,
    }
}

/// The same for a place in a line.
pub(crate) fn field_of(frames: &[PathStep<'_>]) -> Option<VariableField> {
    // Longer than the path to any such place.
    let mut path = [""; 6];
    let path = path.get_mut(..frames.len())?;
    for (name, frame) in path.iter_mut().zip(frames) {
        *name = frame.member.as_deref().unwrap_or_default();
    }
    field_at(path)
}

fn dialogue(path: &[&str]) -> Option<VariableField> {
    match path {
        ["timestamp"] => Some(VariableField::Time),
        ["signature"] => Some(VariableField::Signature),
        ["content", "previous_context", _] => Some(VariableField::Message),
        ["metadata", "correlation_id"] => Some(VariableField::Correlation),
        [id] | ["content" | "metadata", id] => match *id {
            "message_id" | "parent_message_id" | "failed_message_id" => Some(VariableField::Message),
            "session_id" | "parent_session_id" | "failed_session_id" => Some(VariableField::Dialogue),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_known_wherever_a_message_is_carried() {
        for (path, expected) in [
            ("params.envelope.id", Some(VariableField::Envelope)),
            ("result.envelope.ref", Some(VariableField::Envelope)),
            ("error.data.envelope.from", Some(VariableField::Agent)),
            ("envelope.to", Some(VariableField::Agent)),
            ("params.envelope.payload.id", None),
            ("params.clientCapabilities._meta.duologue.agentId", Some(VariableField::Agent)),
            ("params._meta.agentId", None),
            ("params.message.session_id", Some(VariableField::Dialogue)),
            ("params.message.content.previous_context.0", Some(VariableField::Message)),
            ("params.message.content.parameters.session_id", None),
            ("result.receipt.message_id", Some(VariableField::Message)),
            ("result.error.content.failed_session_id", Some(VariableField::Dialogue)),
            ("error.message", None),
            ("params.message.signature", Some(VariableField::Signature)),
        ] {
            assert_eq!(field_at(&path.split('.').collect::<Vec<_>>()), expected, "{path}");
        }
    }
}
