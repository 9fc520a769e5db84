//! Terminals: commands that the client runs for the agent.
//!
//! See [Terminals](https://agentclientprotocol.com/protocol/v1/terminals).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{SessionId, TerminalId};

/// The params of `terminal/create`, which starts a command. The response does not wait for its end.
#[wire]
pub struct CreateTerminalRequest {
    /// The session.
    pub session_id: SessionId,
    /// The program.
    pub command: String,
    /// The arguments of the program.
    #[wire(default, null_default)]
    pub args: Vec<String>,
    /// The environment variables to set.
    #[wire(default, null_default)]
    pub env: Vec<EnvVariable>,
    /// The working directory, as an absolute path.
    pub cwd: Option<PathBuf>,
    /// The greatest number of output bytes to keep. The oldest are dropped first, in whole characters.
    pub output_byte_limit: Option<u64>,
}

/// An environment variable.
#[wire]
pub struct EnvVariable {
    /// The name of the variable.
    pub name: String,
    /// The value of the variable.
    pub value: String,
}

/// The answer to `terminal/create`.
#[wire]
pub struct CreateTerminalResponse {
    /// The terminal. The agent has to release it.
    pub terminal_id: TerminalId,
}

/// The params of `terminal/output`, which returns the output so far.
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
    /// The output of the command.
    pub output: String,
    /// True if some of the output was dropped.
    pub truncated: bool,
    /// The exit status, if the command has ended.
    #[wire(lenient)]
    pub exit_status: Option<TerminalExitStatus>,
}

/// The exit status of a command.
#[wire]
pub struct TerminalExitStatus {
    /// The exit code, unless a signal ended the command.
    #[wire(lenient)]
    pub exit_code: Option<u32>,
    /// The signal that ended the command.
    #[wire(lenient)]
    pub signal: Option<String>,
}

/// The params of `terminal/wait_for_exit`, which waits for the end of the command.
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
    /// The exit code, unless a signal ended the command.
    #[wire(lenient)]
    pub exit_code: Option<u32>,
    /// The signal that ended the command.
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

/// The params of `terminal/kill`, which ends the command and keeps the terminal.
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

/// The params of `terminal/release`, which ends a running command and frees the terminal.
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
