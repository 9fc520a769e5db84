//! All checks, a file for each group.

mod cancel;
mod dialogues;
mod envelopes;
mod handshake;
mod ids;
mod lines;
mod process;
mod requests;
mod sessions;
mod stream;
mod turns;
mod v2;
mod work;

use crate::finding::Check;
#[cfg(unix)]
pub use process::is_group_alive;

/// All checks by group, in the order in which they run. The checks of the stream examine the lines that the
/// other checks caused, so they come last.
const GROUPS: &[&[Check]] = &[
    handshake::CHECKS,
    requests::CHECKS,
    lines::CHECKS,
    ids::CHECKS,
    turns::CHECKS,
    cancel::CHECKS,
    sessions::CHECKS,
    envelopes::CHECKS,
    dialogues::CHECKS,
    work::CHECKS,
    process::CHECKS,
    stream::CHECKS,
];

/// Returns all checks of version 1, in the order in which they run.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten()
}

/// Returns all checks of the draft of version 2, in the order in which they run.
pub fn checks_v2() -> impl Iterator<Item = &'static Check> {
    v2::CHECKS.iter()
}

/// Returns the check of this name, of version 2 if `is_v2`.
pub(crate) fn named(name: &str, is_v2: bool) -> Option<&'static Check> {
    if is_v2 {
        checks_v2().find(|check| check.name == name)
    } else {
        checks().find(|check| check.name == name)
    }
}
