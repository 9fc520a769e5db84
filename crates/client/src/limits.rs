//! The numbers a user of a client meets, beside the [`Limits`](crate::Limits) of its connection. Where a method
//! changes one, this is what it is by default.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// How long an agent may take to answer `initialize`, see
/// [`Client::start_timeout`](crate::Client::start_timeout). The first run of an `npx` agent downloads it.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an agent may take to end a cancelled turn before the session is free again.
pub const CANCEL_PATIENCE: Duration = Duration::from_secs(10);
/// How long each step of a close waits: after the end of input, after TERM.
#[doc(hidden)]
pub const CLOSE_STEP: Duration = Duration::from_secs(2);
/// How long a killed process may take to be gone.
#[doc(hidden)]
pub const REAP: Duration = Duration::from_secs(1);
/// How much of an agent's stderr is kept: its end.
pub const STDERR_TAIL: usize = 64 * KIB;

/// Updates that are kept for a session nobody listens to yet, or that is not known yet.
pub const KEPT_UPDATES: usize = 256;
/// How many bytes of them.
pub const KEPT_BYTES: usize = MIB;
/// How many bytes all sessions nobody listens to keep together. Over it, the session whose update has come forgets its
/// oldest ones, whichever has most.
pub const KEPT_BYTES_TOGETHER: usize = 16 * MIB;
/// Limit on the bytes of one update or list in the [state](crate::SessionState) of its session.
pub const STATE_BYTES: usize = MIB;
#[doc(hidden)]
pub use duologue_schema::{OPEN_CALL_BYTES, OPEN_CALLS};
/// Limit on the bytes of the open tool calls of all sessions. Above it, a session that receives a call evicts its
/// oldest ones.
#[doc(hidden)]
pub const OPEN_CALL_BYTES_TOGETHER: usize = 16 * MIB;

/// Bytes that the agent's requests to the host may take together, see
/// [`Client::host_bytes`](crate::Client::host_bytes).
pub const HOST_BYTES: usize = 128 * MIB;
/// How much of a file is sent at once, see [`LocalHost::max_read`](crate::LocalHost::max_read).
pub const READ_BYTES: u64 = 8 * MIB as u64;
/// Bytes of a file that a read may pass over on its way to its first line, see [`LocalHost::max_scan`](crate::LocalHost::max_scan).
pub const SCAN_BYTES: u64 = 1024 * MIB as u64;
/// Threads that all hosts of a program use together for files; half of them for one connection.
pub const FILE_THREADS: usize = 4;
/// Paths of a tool call that [`Permissions`](crate::Permissions) look up.
pub const QUESTION_PATHS: usize = 256;
/// How many terminals there may be at once, see [`LocalHost::max_terminals`](crate::LocalHost::max_terminals).
pub const TERMINALS: usize = 64;
/// How much output of a terminal is kept when the agent names no limit.
pub const TERMINAL_OUTPUT: usize = MIB;
/// How much is kept whatever it names. Escaped as JSON it is at most six times as long, which still fits
/// a frame.
pub const MOST_TERMINAL_OUTPUT: usize = 2 * MIB;
