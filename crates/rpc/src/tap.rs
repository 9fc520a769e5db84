//! Seeing every frame: what recorders and debuggers hook into.

use std::future::Future;
use std::pin::Pin;

use tokio::time::Instant;

/// Which way a frame went, seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer.
    Incoming,
    /// To the peer.
    Outgoing,
}

/// One line that crossed the connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TappedFrame<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// When it was read, or handed to the writer.
    pub at: Instant,
    /// The line as it was, without its end; not always UTF-8.
    pub bytes: &'a [u8],
    /// Whether it was a message, as opposed to noise.
    pub is_message: bool,
}

/// Sees every line of a connection, in the order of the wire.
///
/// It runs inside the reader and under the writer's lock: hand the bytes on and return.
///
/// ```
/// use std::sync::Mutex;
/// use duologue_rpc::{Tap, TappedFrame};
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Tap for Log {
///     fn frame(&self, frame: TappedFrame<'_>) {
///         let line = String::from_utf8_lossy(frame.bytes).into_owned();
///         self.0.lock().unwrap().push(format!("{:?} {line}", frame.direction));
///     }
/// }
/// ```
pub trait Tap: Send + Sync + 'static {
    /// Called once a line.
    fn frame(&self, frame: TappedFrame<'_>);

    /// Lets the wire wait: when this returns a future, nothing more is read or written before it is
    /// done. For a recorder whose disk is slower than the conversation.
    ///
    /// Called once a buffer and not once a line, so what one read brings still comes. A conversation
    /// that is held up for long ends as over any pipe that is not taken.
    fn wait(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}
