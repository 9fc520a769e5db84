//! The times after which the output of an exited program counts as ended.

use std::time::Duration;

/// The silence after which the output of an exited program counts as ended, if another process keeps its pipe open. What
/// the program itself wrote is in the pipe when it exits, so this is much longer than reading takes.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// The most rounds of [`LAST_OUTPUT`] in which output that is not silent is read. Another process writes it.
pub(crate) const LAST_ROUNDS: u32 = 4;
