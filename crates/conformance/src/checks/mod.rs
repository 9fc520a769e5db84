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
mod work;

use crate::finding::Check;

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

/// Returns all checks, in the order in which they run.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten()
}
