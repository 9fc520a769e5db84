//! The limits of a client, beside the [`Limits`](crate::Limits) of its connection. If a method changes a limit, the
//! constant is its default.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The time that an agent has to respond to `initialize`, see
/// [`Client::start_timeout`](crate::Client::start_timeout). The first run of an `npx` agent downloads it.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that an agent has to end a cancelled turn, see [`Client::cancel_patience`](crate::Client::cancel_patience).
pub const CANCEL_PATIENCE: Duration = Duration::from_secs(10);
/// The time that each step of a close waits: after the end of input and after SIGTERM.
#[doc(hidden)]
pub const CLOSE_STEP: Duration = Duration::from_secs(2);
/// The time that a killed process has to exit.
#[doc(hidden)]
pub const REAP: Duration = Duration::from_secs(1);
/// The bytes that are kept of the end of an agent's stderr.
pub const STDERR_TAIL: usize = 64 * KIB;

/// The most updates that are kept for a session between its turns without a listener, and for unknown sessions.
pub const KEPT_UPDATES: usize = 256;
/// The most bytes of these updates.
pub const KEPT_BYTES: usize = MIB;
/// The most bytes of kept updates of all sessions. Above it, a session that receives an update evicts its own oldest
/// ones, even if another session has more.
pub const KEPT_BYTES_TOGETHER: usize = 16 * MIB;
/// Limit on the bytes of one update or list in the [state](crate::SessionState) of its session. A client that
/// [keeps conversations](crate::Client::keep_conversations) has no such limit.
pub const STATE_BYTES: usize = MIB;
#[doc(hidden)]
pub use duologue_schema::{OPEN_CALL_BYTES, OPEN_CALLS};
/// Limit on the bytes of the open tool calls of all sessions. Above it, a session that receives a call evicts its
/// oldest ones.
#[doc(hidden)]
pub const OPEN_CALL_BYTES_TOGETHER: usize = 16 * MIB;

/// Limit on the bytes of the id of a tool call or terminal that [`Session`](crate::Session) can cancel alone.
#[doc(hidden)]
pub const CANCELLABLE_ID_BYTES: usize = KIB;
/// Limit on the messages of the user before the response to a prompt of version 2, one of which can be the prompt. Their
/// ids together have at most [`Limits::ID_BYTES`](crate::Limits::ID_BYTES).
#[doc(hidden)]
pub const SEEN_MESSAGES: usize = 16;

/// The most bytes of all running requests to the host, see [`Client::host_bytes`](crate::Client::host_bytes).
pub const HOST_BYTES: usize = 128 * MIB;
/// The most bytes of a file in one response, see [`LocalHost::max_read`](crate::LocalHost::max_read).
pub const READ_BYTES: u64 = 8 * MIB as u64;
/// The most bytes that a read skips before its first line, see [`LocalHost::max_scan`](crate::LocalHost::max_scan).
pub const SCAN_BYTES: u64 = 1024 * MIB as u64;
/// The threads that all hosts of a program share for files. One connection uses at most half of them.
pub const FILE_THREADS: usize = 4;
/// The most pages of a list of sessions. A list with more ends with an error.
pub const LISTED_PAGES: usize = 1000;
/// The most paths of a tool call that [`Permissions`](crate::Permissions) look up.
pub const QUESTION_PATHS: usize = 256;
/// The most open terminals of a connection, see [`LocalHost::max_terminals`](crate::LocalHost::max_terminals).
pub const TERMINALS: usize = 64;
/// The most open terminals of all connections of a host, see
/// [`LocalHost::max_terminals_together`](crate::LocalHost::max_terminals_together).
pub const TERMINALS_TOGETHER: usize = 256;
/// The bytes of a terminal's output that are kept by default.
pub const TERMINAL_OUTPUT: usize = MIB;
/// The most bytes of a terminal's output that are kept. Escaped as JSON the output is at most six times as long, which
/// fits into a frame.
pub const MOST_TERMINAL_OUTPUT: usize = 2 * MIB;
