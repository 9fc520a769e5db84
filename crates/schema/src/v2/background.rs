//! Work that goes on while a session is idle.

use duologue_schema_derive::wire;

use crate::{SessionId, TerminalId, ToolCallId};

/// A piece of work in the background. The agent has announced the object that it names.
#[wire(tag = "type", open)]
pub enum BackgroundWork {
    /// A terminal of the agent.
    Terminal(BackgroundTerminal),
    /// A tool call.
    ToolCall(BackgroundToolCall),
    /// A child session.
    Subagent(BackgroundSubagent),
}

/// A terminal in the background.
#[wire]
pub struct BackgroundTerminal {
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// A tool call in the background.
#[wire]
pub struct BackgroundToolCall {
    /// The tool call.
    pub tool_call_id: ToolCallId,
}

/// A child session in the background.
#[wire]
pub struct BackgroundSubagent {
    /// The child session.
    pub session_id: SessionId,
}
