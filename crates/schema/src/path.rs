//! What the protocol asks of a path.

use std::path::Path;

/// Longest path that is taken, in bytes: Linux's `PATH_MAX`.
pub const PATH_BYTES: usize = 4096;

/// Says what is wrong with a path that a peer named, if anything is: the protocol wants
/// [absolute paths](https://agentclientprotocol.com/protocol/v1/overview#argument-requirements), and
/// no system takes a NUL byte or a path without end.
///
/// ```
/// use std::path::Path;
/// use duologue_schema::path_fault;
///
/// assert_eq!(path_fault(Path::new("/home/me")), None);
/// assert_eq!(path_fault(Path::new("../me")), Some("must be absolute"));
/// ```
#[must_use]
pub fn path_fault(path: &Path) -> Option<&'static str> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if !path.is_absolute() {
        Some("must be absolute")
    } else if bytes.contains(&0) {
        Some("must not hold a NUL byte")
    } else if bytes.len() > PATH_BYTES {
        Some("is longer than 4096 bytes")
    } else {
        None
    }
}
