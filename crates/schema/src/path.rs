//! The requirements of the protocol for paths.

use std::path::Path;

/// The greatest length of a path in bytes: `PATH_MAX` of Linux.
pub const PATH_BYTES: usize = 4096;

const TOO_LONG: &str = {
    assert!(PATH_BYTES == 4096);
    "is longer than 4096 bytes"
};

/// Returns the error of an invalid path from a peer, as the continuation of a sentence.
///
/// The protocol requires
/// [absolute paths](https://agentclientprotocol.com/protocol/v1/overview#argument-requirements).
/// Operating systems reject NUL bytes and very long paths.
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
        Some("must not contain a NUL byte")
    } else if bytes.len() > PATH_BYTES {
        Some(TOO_LONG)
    } else {
        None
    }
}
