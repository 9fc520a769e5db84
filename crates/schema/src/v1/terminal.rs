//! Commands the client runs for the agent.
//!
//! See [Terminals](https://agentclientprotocol.com/protocol/v1/terminals).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{SessionId, TerminalId};

/// `terminal/create`: starts a command. The answer does not wait for its end.
#[wire]
pub struct CreateTerminalRequest {
    /// The session.
    pub session_id: SessionId,
    /// The program.
    pub command: String,
    /// Its arguments.
    #[wire(default, null_default)]
    pub args: Vec<String>,
    /// Variables to set.
    #[wire(default, null_default)]
    pub env: Vec<EnvVariable>,
    /// Where to run it, as an absolute path.
    pub cwd: Option<PathBuf>,
    /// How many bytes of output to keep. The oldest go first, whole characters at a time.
    pub output_byte_limit: Option<u64>,
}

/// An environment variable.
#[wire]
pub struct EnvVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The answer to `terminal/create`.
#[wire]
pub struct CreateTerminalResponse {
    /// The terminal, to be released in the end.
    pub terminal_id: TerminalId,
}

/// `terminal/output`: what the command wrote so far.
#[wire]
pub struct TerminalOutputRequest {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// The answer to `terminal/output`.
#[wire]
pub struct TerminalOutputResponse {
    /// What the command wrote.
    pub output: String,
    /// Whether some of it was dropped.
    pub truncated: bool,
    /// How the command ended, if it did.
    #[wire(lenient)]
    pub exit_status: Option<TerminalExitStatus>,
}

/// How a command ended.
#[wire]
pub struct TerminalExitStatus {
    /// Its exit code, unless a signal ended it.
    #[wire(lenient)]
    pub exit_code: Option<u32>,
    /// The signal that ended it.
    #[wire(lenient)]
    pub signal: Option<String>,
}

/// `terminal/wait_for_exit`: waits for the end of the command.
#[wire]
pub struct WaitForTerminalExitRequest {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// The answer to `terminal/wait_for_exit`.
#[wire]
pub struct WaitForTerminalExitResponse {
    /// The exit code, unless a signal ended it.
    #[wire(lenient)]
    pub exit_code: Option<u32>,
    /// The signal that ended it.
    #[wire(lenient)]
    pub signal: Option<String>,
}

impl From<TerminalExitStatus> for WaitForTerminalExitResponse {
    fn from(status: TerminalExitStatus) -> Self {
        Self { exit_code: status.exit_code, signal: status.signal, meta: status.meta }
    }
}

impl From<WaitForTerminalExitResponse> for TerminalExitStatus {
    fn from(response: WaitForTerminalExitResponse) -> Self {
        Self { exit_code: response.exit_code, signal: response.signal, meta: response.meta }
    }
}

/// `terminal/kill`: ends the command and keeps the terminal.
#[wire]
pub struct KillTerminalRequest {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// The answer to `terminal/kill`.
#[wire]
pub struct KillTerminalResponse {}

/// `terminal/release`: ends the command if it runs, and the terminal with it.
#[wire]
pub struct ReleaseTerminalRequest {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: TerminalId,
}

/// The answer to `terminal/release`.
#[wire]
pub struct ReleaseTerminalResponse {}
