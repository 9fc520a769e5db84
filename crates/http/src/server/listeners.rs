//! The sockets that a server accepts connections on: a TCP port, and a Unix socket for the programs of its own user.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::sleep;

/// The pause after an error of the system, such as too many open files. It is also the rate of the warnings.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The sockets of a server.
///
/// ```no_run
/// # async fn run() -> std::io::Result<()> {
/// use duologue_http::Listeners;
/// use tokio::net::TcpListener;
///
/// let listeners = Listeners::from(TcpListener::bind("127.0.0.1:8931").await?);
/// # #[cfg(unix)]
/// let listeners = listeners.and_local(duologue_http::LocalListener::bind("/home/me/.my-server/socket")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listeners {
    pub(super) tcp: Option<TcpListener>,
    #[cfg(unix)]
    pub(super) local: Option<LocalListener>,
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Listeners {
            tcp: Some(tcp),
            #[cfg(unix)]
            local: None,
        }
    }
}

/// A TCP port without encryption.
pub(super) struct PlainListener(pub(super) TcpListener);

impl Listener for PlainListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (socket, peer) = accepted_socket(|context| self.0.poll_accept(context)).await;
        // Small messages must not wait for the acknowledgement of earlier ones.
        let _ = socket.set_nodelay(true);
        (socket, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Returns the next socket. While the system has no descriptor for one, that is logged, and clients wait.
pub(super) async fn accepted_socket<T>(mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>) -> T {
    /// As many clients can fail in a row.
    const FAILURES: u32 = 16;
    let mut failures = 0;
    loop {
        let error = match poll_fn(&mut accept).await {
            Ok(socket) => return socket,
            Err(error) => error,
        };
        // Errors of the network belong to one connection, which the peer has closed, for example.
        let is_of_peer = matches!(
            error.kind(),
            ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
                | ErrorKind::TimedOut
        );
        if is_of_peer && failures < FAILURES {
            failures += 1;
            yield_now().await;
        } else {
            tracing::warn!(%error, pause = ?ACCEPT_PAUSE, "a connection was not accepted; clients wait");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

#[cfg(unix)]
pub use unix::{FileId, LocalListener};

#[cfg(unix)]
mod unix {
    use std::fs;
    use std::io;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
    use std::path::{Path, PathBuf};

    use axum::serve::Listener;
    use tokio::net::unix::SocketAddr;
    use tokio::net::{UnixListener, UnixStream};

    use super::{Listeners, accepted_socket};

    /// The longest path of a socket, in bytes. The systems have 104 or 108, with a zero at the end.
    const PATH_BYTES: usize = 100;

    /// A Unix socket for the programs of this user. Its requests need no token: the system tells the user of a peer, and a
    /// connection of another one is closed.
    ///
    /// The file is removed when the listener is dropped.
    #[derive(Debug)]
    pub struct LocalListener {
        listener: UnixListener,
        path: PathBuf,
        /// The file of the socket. Another program may have bound its own since.
        id: Option<FileId>,
    }

    /// The identity of a file: its device and its number there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[doc(hidden)]
    pub struct FileId(u64, u64);

    impl FileId {
        /// Returns the identity of the file with this name, which may be a link, if it is there.
        #[must_use]
        pub fn of(path: &Path) -> Option<Self> {
            let found = fs::symlink_metadata(path).ok()?;
            Some(FileId(found.dev(), found.ino()))
        }
    }

    impl LocalListener {
        /// Creates the socket, with mode 0600. One that a server has left is replaced.
        ///
        /// # Errors
        ///
        /// [`io::ErrorKind::InvalidInput`] if the path has more than 100 bytes. [`io::ErrorKind::AddrInUse`] if a program
        /// listens there, or a file that is no socket has the name. Otherwise the error of the system. All name the path.
        ///
        /// # Panics
        ///
        /// Outside a tokio runtime.
        pub fn bind(path: impl Into<PathBuf>) -> io::Result<Self> {
            let path = path.into();
            let length = path.as_os_str().len();
            if length > PATH_BYTES {
                let why =
                    format!("{}: the path has {length} bytes, the limit is {PATH_BYTES}", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            remove_left(&path).map_err(named)?;
            let listener = UnixListener::bind(&path).map_err(named)?;
            // The file goes with the listener if this fails.
            let bound = LocalListener { listener, id: FileId::of(&path), path: path.clone() };
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(named)?;
            Ok(bound)
        }

        /// Returns the path of the socket.
        #[must_use]
        pub fn path(&self) -> &Path {
            &self.path
        }
    }

    /// Removes the socket of a server that has ended without removing it.
    fn remove_left(path: &Path) -> io::Result<()> {
        let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => in_use("the file is not a socket"),
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => in_use("a program listens there"),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
                Err(error) => Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    impl Drop for LocalListener {
        fn drop(&mut self) {
            // If it is gone already, there is nothing to do.
            if self.id == FileId::of(&self.path) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    impl Listener for LocalListener {
        type Io = UnixStream;
        type Addr = SocketAddr;

        async fn accept(&mut self) -> (UnixStream, SocketAddr) {
            loop {
                let listener = &self.listener;
                let (stream, address) = accepted_socket(|context| listener.poll_accept(context)).await;
                match crate::socket_user::check_peer(&stream) {
                    Ok(()) => return (stream, address),
                    Err(error) => tracing::warn!(%error, "a connection was closed"),
                }
            }
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.listener.local_addr()
        }
    }

    impl From<LocalListener> for Listeners {
        fn from(local: LocalListener) -> Self {
            Listeners { tcp: None, local: Some(local) }
        }
    }

    impl Listeners {
        /// Adds a Unix socket. [`ServerOptions::token`](crate::ServerOptions::token) is for the others.
        #[must_use]
        pub fn and_local(mut self, local: LocalListener) -> Self {
            self.local = Some(local);
            self
        }

        /// Adds a TCP port.
        #[must_use]
        pub fn and_tcp(mut self, tcp: tokio::net::TcpListener) -> Self {
            self.tcp = Some(tcp);
            self
        }
    }
}
