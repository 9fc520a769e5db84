//! The user of the program on the other side of a Unix socket.

use std::io;

use tokio::net::UnixStream;

/// Checks that the peer of a socket runs as this user.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] for another user, or the error of the system.
pub(crate) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let (peer, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if peer == own {
        return Ok(());
    }
    let why =
        format!("the program at the other end of the socket runs as the user {peer}, and this one as {own}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
