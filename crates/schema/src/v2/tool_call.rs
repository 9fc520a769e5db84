//! Tool calls.

use duologue_schema_derive::wire;

use super::Diff;
use crate::{
    Content, Json, Meta, Patch, SessionId, SessionReference, Terminal, ToolCallId, ToolCallLocation,
    ToolCallStatus, ToolKind,
};

/// A new tool call, or a change to a known one.
#[wire]
pub struct ToolCallUpdate {
    /// The id of the tool call.
    pub tool_call_id: ToolCallId,
    /// The name of the tool.
    #[wire(lenient)]
    pub name: Patch<String>,
    /// A title to show to the user.
    #[wire(lenient)]
    pub title: Patch<String>,
    /// The kind of the tool.
    #[wire(lenient)]
    pub kind: Patch<ToolKind>,
    /// The status of the call.
    #[wire(lenient)]
    pub status: Patch<ToolCallStatus>,
    /// All content. It replaces the previous content, unless every item is malformed.
    #[wire(skip_invalid)]
    pub content: Patch<Vec<ToolCallContent>>,
    /// All locations. They replace the previous ones, unless every item is malformed.
    #[wire(skip_invalid)]
    pub locations: Patch<Vec<ToolCallLocation>>,
    /// The input of the tool.
    #[wire(lenient)]
    pub raw_input: Patch<Json>,
    /// The output of the tool.
    #[wire(lenient)]
    pub raw_output: Patch<Json>,
    /// The controls that the agent offers to the client.
    #[wire(lenient)]
    pub capabilities: Patch<ToolCallCapabilities>,
    /// A change of the extension data of the call by key, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// The controls of a tool call that an agent offers to the client.
#[wire]
pub struct ToolCallCapabilities {
    /// Present if the client may send `tool_call/cancel`.
    #[wire(lenient)]
    pub cancel: Option<ToolCallCancelCapabilities>,
}

/// The control that cancels a tool call.
#[wire]
pub struct ToolCallCancelCapabilities {}

/// Content that a tool call produced.
#[wire(tag = "type", open)]
pub enum ToolCallContent {
    /// A content block.
    Content(Content),
    /// Changes to files.
    Diff(Box<Diff>),
    /// A terminal that the agent runs.
    Terminal(Terminal),
    /// A reference to another session, such as a child that the call creates or waits for.
    Session(SessionReference),
}

/// A further piece of the content of a tool call.
#[wire]
pub struct ToolCallContentChunk {
    /// The id of the tool call.
    pub tool_call_id: ToolCallId,
    /// The content to append.
    pub content: ToolCallContent,
}

/// The params of `tool_call/cancel`, which cancels a tool call.
#[wire]
pub struct CancelToolCallRequest {
    /// The session.
    pub session_id: SessionId,
    /// The tool call.
    pub tool_call_id: ToolCallId,
}

/// The answer to `tool_call/cancel`.
#[wire]
pub struct CancelToolCallResponse {}
