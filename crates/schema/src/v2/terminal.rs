//! Terminals that an agent runs, and whose output a client displays.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_schema_derive::wire;

use super::AbsolutePath;
use crate::{Meta, Patch, SessionId, TerminalId};

/// A new terminal, or a change to a known one.
#[wire]
pub struct TerminalUpdate {
    /// The id of the terminal.
    pub terminal_id: TerminalId,
    /// The command.
    #[wire(lenient)]
    pub command: Patch<String>,
    /// The working directory of the command.
    #[wire(lenient)]
    pub cwd: Patch<AbsolutePath>,
    /// The whole output. It replaces all output so far.
    #[wire(lenient)]
    pub output: Patch<TerminalOutput>,
    /// The exit status. It ends the terminal.
    #[wire(lenient)]
    pub exit_status: Patch<TerminalExitStatus>,
    /// The size of the terminal.
    #[wire(lenient)]
    pub size: Patch<TerminalSize>,
    /// The controls that the agent offers to the client.
    #[wire(lenient)]
    pub capabilities: Patch<TerminalCapabilities>,
    /// A change of the extension data of the terminal by key, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// The whole output of a terminal.
#[wire]
pub struct TerminalOutput {
    /// The bytes, in base64.
    pub data: String,
}

/// Further output of a terminal.
#[wire]
pub struct TerminalOutputChunk {
    /// The terminal.
    pub terminal_id: TerminalId,
    /// The bytes to append, in base64. Each chunk is encoded by itself.
    pub data: String,
}

impl TerminalOutput {
    /// Creates the whole output from its bytes.
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        TerminalOutput::new(STANDARD.encode(bytes))
    }
}

impl TerminalOutputChunk {
    /// Creates further output from its bytes.
    pub fn of_bytes(terminal_id: impl Into<TerminalId>, bytes: impl AsRef<[u8]>) -> Self {
        TerminalOutputChunk::new(terminal_id, STANDARD.encode(bytes))
    }
}

/// The exit status of a command.
#[wire]
pub struct TerminalExitStatus {
    /// The exit code, unless a signal ended the command.
    #[wire(lenient)]
    pub exit_code: Option<i64>,
    /// The signal that ended the command.
    #[wire(lenient)]
    pub signal: Option<String>,
}

/// The size of a terminal in characters.
#[wire]
pub struct TerminalSize {
    /// The columns.
    pub cols: u16,
    /// The rows.
    pub rows: u16,
}

/// The controls of a terminal that an agent offers to the client.
#[wire]
pub struct TerminalCapabilities {
    /// Present if the client may send `terminal/cancel`.
    #[wire(lenient)]
    pub cancel: Option<TerminalCancelCapabilities>,
}

/// The control that cancels a terminal.
#[wire]
pub struct TerminalCancelCapabilities {}

/// The params of `terminal/cancel`, which ends the command of a terminal.
#[wire]
pub struct CancelTerminalRequest {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// The answer to `terminal/cancel`.
#[wire]
pub struct CancelTerminalResponse {}
