//! Child sessions, in which agents work for a session, and the messages between sessions.

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{ContentBlock, MessageId, Meta, Patch, SessionId, StateUpdate};

/// The capability to receive `subagent_update` and the updates of child sessions.
#[wire]
pub struct SubagentCapabilities {}

/// The requests of a client that a child session accepts.
#[wire]
pub struct SubagentSessionCapabilities {
    /// Present if the client may cancel the work of the child.
    #[wire(lenient)]
    pub cancel: Option<SessionCancelCapabilities>,
}

/// The capability to cancel the work of a child session without ending the session.
#[wire]
pub struct SessionCancelCapabilities {}

/// A new child session, or a change to a known one. It is an update of the parent.
#[wire]
pub struct SubagentUpdate {
    /// The id of the child.
    pub session_id: SessionId,
    /// A title to show to the user.
    #[wire(lenient)]
    pub title: Patch<String>,
    /// The role or the purpose of the child.
    #[wire(lenient)]
    pub description: Patch<String>,
    /// The requests of a client that the child accepts.
    #[wire(lenient)]
    pub capabilities: Patch<SubagentSessionCapabilities>,
    /// The state of the foreground work of the child.
    #[wire(lenient)]
    pub state: Patch<StateUpdate>,
    /// The working directory, as an absolute path. Without one, that of the parent counts.
    pub cwd: Patch<PathBuf>,
    /// Further working directories, as absolute paths. Without a list, that of the parent counts.
    pub additional_directories: Patch<Vec<PathBuf>>,
    /// A change of the extension data of the child by key, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// A message between sessions, or a change to a known one.
#[wire]
pub struct SessionMessage {
    /// The id of the message within the session of the update.
    pub message_id: MessageId,
    /// The sender.
    #[wire(lenient)]
    pub sender_session_id: Patch<SessionId>,
    /// The recipient.
    #[wire(lenient)]
    pub recipient_session_id: Patch<SessionId>,
    /// The id of the same message within the session of the sender.
    #[wire(lenient)]
    pub sender_message_id: Patch<MessageId>,
    /// The id of the same message within the session of the recipient.
    #[wire(lenient)]
    pub recipient_message_id: Patch<MessageId>,
    /// The whole content. It replaces all content so far.
    #[wire(skip_invalid)]
    pub content: Patch<Vec<ContentBlock>>,
    /// A change of the extension data of the message by key, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// A piece of a message between sessions.
#[wire]
pub struct SessionMessageChunk {
    /// The id of the message within the session of the update.
    pub message_id: MessageId,
    /// The content to append.
    pub content: ContentBlock,
}
