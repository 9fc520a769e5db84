//! Kinds of ids, and the paths of ids and times in the messages that agents exchange.
//!
//! The ids of ACP are known by their member (`toolCallId`). Envelopes and dialogue messages use common names
//! (`id`, `from`), so their ids are known by their path.

use crate::redact::json_scan::PathStep;

/// The member with the id of a session.
pub(crate) const SESSION: &str = "sessionId";

/// The kind of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IdKind {
    Session,
    Message,
    ToolCall,
    Terminal,
    Elicitation,
    Compaction,
    Envelope,
    Agent,
    Dialogue,
    /// A message of a dialogue, not of an agent.
    DialogueMessage,
    /// An id that several dialogues share.
    Correlation,
    /// An id from a short list that a peer offered.
    Option,
    /// An id that is known only by its form.
    Other,
}

impl IdKind {
    /// The word in the placeholders of each kind that has its own. The flag is set if they also contain the session in
    /// which the id appeared first: these ids mean the same on the whole connection, and each session counts its own.
    pub(crate) const PLACEHOLDERS: [(IdKind, &str, bool); 11] = [
        (IdKind::Session, "session", false),
        (IdKind::Message, "message", false),
        (IdKind::ToolCall, "tool-call", false),
        (IdKind::Terminal, "terminal", false),
        (IdKind::Elicitation, "elicitation", false),
        (IdKind::Compaction, "compaction", false),
        (IdKind::Agent, "agent", false),
        (IdKind::Other, "id", false),
        (IdKind::Envelope, "envelope", true),
        (IdKind::Dialogue, "dialogue", true),
        (IdKind::DialogueMessage, "message", true),
    ];

    /// Returns the kind of id in a member of this name: `parentToolCallId` is the id of a tool call.
    pub(crate) fn of_member(name: &str) -> Option<IdKind> {
        const ENDS: &[(&str, IdKind)] = &[
            ("sessionid", IdKind::Session),
            ("messageid", IdKind::Message),
            ("toolcallid", IdKind::ToolCall),
            ("tooluseid", IdKind::ToolCall),
            ("terminalid", IdKind::Terminal),
            ("elicitationid", IdKind::Elicitation),
            ("compactionid", IdKind::Compaction),
        ];
        if !name.ends_with("Id") && !name.ends_with("_id") && !name.ends_with("ID") {
            return None;
        }
        let plain: String =
            name.chars().filter(|char| *char != '_').map(|char| char.to_ascii_lowercase()).collect();
        ENDS.iter().find(|(end, _)| plain.ends_with(end)).map(|(_, kind)| *kind)
    }

    /// Returns the kind of id that ACP has in a member of exactly this name.
    pub(crate) fn of_acp_member(name: &str) -> Option<IdKind> {
        let is_known = matches!(
            name,
            SESSION | "messageId" | "toolCallId" | "terminalId" | "elicitationId" | "compactionId"
        );
        if is_known { IdKind::of_member(name) } else { (name == "optionId").then_some(IdKind::Option) }
    }

    /// Returns true if an id means the same in all sessions.
    pub(crate) fn is_whole(self) -> bool {
        self == IdKind::Agent || IdKind::PLACEHOLDERS.iter().any(|(kind, _, whole)| *kind == self && *whole)
    }

    /// Returns the word in the placeholders of this kind.
    pub(crate) fn name(self) -> &'static str {
        IdKind::PLACEHOLDERS.iter().find(|(kind, ..)| *kind == self).map_or("id", |(_, word, _)| word)
    }
}

/// The role of a value in a message between agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableField {
    Id(IdKind),
    /// A time or a duration.
    Time,
    /// A signature, which differs with each time and key.
    Signature,
}

impl VariableField {
    /// Returns the kind of an id; `None` for a value that is not an id.
    pub(crate) fn id(self) -> Option<IdKind> {
        match self {
            VariableField::Id(kind) => Some(kind),
            VariableField::Time | VariableField::Signature => None,
        }
    }
}

/// Returns the role of the value at a path of member names. Any name stands for an element of a list. The
/// path starts at the message or at its params.
pub(crate) fn field_at(path: &[&str]) -> Option<VariableField> {
    let path = match path {
        ["params" | "result", rest @ ..] | ["error", "data", rest @ ..] => rest,
        path => path,
    };
    match path {
        ["envelope", "id" | "ref"] => Some(VariableField::Id(IdKind::Envelope)),
        ["envelope", "from" | "to"] | [.., "_meta", "duologue", "agentId"] => {
            Some(VariableField::Id(IdKind::Agent))
        }
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
        ["content", "previous_context", _] => Some(VariableField::Id(IdKind::DialogueMessage)),
        ["metadata", "correlation_id"] => Some(VariableField::Id(IdKind::Correlation)),
        [id] | ["content" | "metadata", id] => match *id {
            "message_id" | "parent_message_id" | "failed_message_id" => {
                Some(VariableField::Id(IdKind::DialogueMessage))
            }
            "session_id" | "parent_session_id" | "failed_session_id" => {
                Some(VariableField::Id(IdKind::Dialogue))
            }
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
            ("params.envelope.id", Some(VariableField::Id(IdKind::Envelope))),
            ("result.envelope.ref", Some(VariableField::Id(IdKind::Envelope))),
            ("error.data.envelope.from", Some(VariableField::Id(IdKind::Agent))),
            ("envelope.to", Some(VariableField::Id(IdKind::Agent))),
            ("params.envelope.payload.id", None),
            ("params.clientCapabilities._meta.duologue.agentId", Some(VariableField::Id(IdKind::Agent))),
            ("params._meta.agentId", None),
            ("params.message.session_id", Some(VariableField::Id(IdKind::Dialogue))),
            ("params.message.content.previous_context.0", Some(VariableField::Id(IdKind::DialogueMessage))),
            ("params.message.content.parameters.session_id", None),
            ("result.receipt.message_id", Some(VariableField::Id(IdKind::DialogueMessage))),
            ("result.error.content.failed_session_id", Some(VariableField::Id(IdKind::Dialogue))),
            ("error.message", None),
            ("params.message.signature", Some(VariableField::Signature)),
        ] {
            assert_eq!(field_at(&path.split('.').collect::<Vec<_>>()), expected, "{path}");
        }
    }
}
