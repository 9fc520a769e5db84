//! Cursors, the positions in a session at which methods can act.

use duologue_schema_derive::wire;

use crate::{CompactionId, MessageId, ToolCallId};

crate::ids::ids! {
    /// The id of a cursor within a session. The agent creates it, and never uses it again for another position.
    CursorId,
}

/// The capability to receive `cursor_update`.
#[wire]
pub struct SessionCursorsCapabilities {}

/// A new cursor, or a change of the methods of a known one. Only for clients with `session.cursors`.
#[wire]
pub struct CursorUpdate {
    /// The id of the cursor.
    pub cursor_id: CursorId,
    /// All methods that accept the cursor now.
    #[wire(lenient)]
    pub capabilities: Option<CursorCapabilities>,
    /// The position. The first update of a cursor has it, and later ones do not change it.
    pub anchor: Option<CursorAnchor>,
}

/// The methods that accept a cursor.
#[wire]
pub struct CursorCapabilities {
    /// Present if `session/fork` does.
    #[wire(lenient)]
    pub fork: Option<CursorForkCapabilities>,
}

/// The capability of a cursor to fork the session there.
#[wire]
pub struct CursorForkCapabilities {}

/// The position of a cursor beside something that the client shows.
#[wire(tag = "type", open)]
pub enum CursorAnchor {
    /// Beside a message of the user.
    UserMessage(CursorMessageAnchor),
    /// Beside a message of the agent.
    AgentMessage(CursorMessageAnchor),
    /// Beside a thought of the agent.
    AgentThought(CursorMessageAnchor),
    /// Beside a message between sessions.
    SessionMessage(CursorMessageAnchor),
    /// Beside a tool call.
    ToolCall(CursorToolCallAnchor),
    /// Beside a compaction.
    Compaction(CursorCompactionAnchor),
}

/// The side of something on which a cursor is.
#[wire(open)]
pub enum CursorAnchorPosition {
    /// Before it.
    Before,
    /// After it.
    After,
}

/// A position beside a message or thought.
#[wire]
pub struct CursorMessageAnchor {
    /// The message.
    pub message_id: MessageId,
    /// The side of it.
    pub position: CursorAnchorPosition,
}

/// A position beside a tool call.
#[wire]
pub struct CursorToolCallAnchor {
    /// The tool call.
    pub tool_call_id: ToolCallId,
    /// The side of it.
    pub position: CursorAnchorPosition,
}

/// A position beside a compaction.
#[wire]
pub struct CursorCompactionAnchor {
    /// The compaction.
    pub compaction_id: CompactionId,
    /// The side of it.
    pub position: CursorAnchorPosition,
}
