//! All checks of a server, a file for each group.

mod access;
mod events;
mod http;
mod resume;
mod web_socket;

use crate::finding::Check;

/// All checks by group, in the order in which they run. A check comes behind those that test what it needs.
const GROUPS: &[&[Check]] =
    &[access::CHECKS, http::CHECKS, events::CHECKS, web_socket::CHECKS, resume::CHECKS];

/// Returns all checks of a server of the remote transports, in the order in which they run.
pub fn checks_transport() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten()
}
