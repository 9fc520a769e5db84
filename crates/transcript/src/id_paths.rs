//! Paths of ids and times in the messages that agents exchange.
//!
//! The ids of ACP are known by their member (`toolCallId`). Envelopes and dialogue messages use common names
//! (`id`, `from`), so their ids are known by their path.

use crate::redact::json_scan::PathStep;

/// The role of a value in a message between agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VariableField {
    /// The id of an envelope, or of the envelope that it answers.
    Envelope,
    /// The id of an agent.
    Agent,
    /// The id of a dialogue, which is not a session of ACP.
    Dialogue,
    /// The id of a dialogue message.
    Message,
    /// An id that several dialogues share.
    Correlation,
    /// A time or a duration.
    Time,
    /// A signature, which differs with each time and key.
    Signature,
}

impl VariableField {
    /// Returns the name under which ids of this role are mapped; `None` for a value that is not an id.
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

/// The name under which ids of agents are mapped.
pub(crate) const AGENT: &str = "agent";
const ENVELOPE: &str = "envelope";
const DIALOGUE: &str = "dialogue";
const MESSAGE: &str = "dialogue message";

/// The names of ids that mean the same on the whole connection, in each session.
pub(crate) const WHOLE: [&str; 4] = [ENVELOPE, AGENT, DIALOGUE, MESSAGE];

/// Returns the role of the value at a path of member names. Any name stands for an element of a list. The
/// path starts at the message or at its params.
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

/// Returns the role of a value in a line.
pub(crate) fn field_of(frames: &[PathStep<'_>]) -> Option<VariableField> {
    // The paths above are shorter.
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
