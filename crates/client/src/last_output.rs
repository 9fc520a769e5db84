//! The times after which the output of an exited program counts as ended.

use std::time::Duration;

/// The silence after which the output of an exited program counts as ended.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_millis(150);
/// The most rounds of [`LAST_OUTPUT`] in which output that is not silent is read. Another process writes it.
pub(crate) const LAST_ROUNDS: u32 = 4;
