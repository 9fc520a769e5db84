//! Connections between two peers in one process.

use duologue_rpc::Transport;

use crate::scripted::ScriptedPeer;

/// The kind of a connection between two peers in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// Two buffers in memory.
    Memory,
    /// Two pipes of the operating system.
    #[cfg(unix)]
    Pipes,
}

impl Wire {
    /// The bytes that a writer can write before it has to wait, on both kinds of wire.
    pub const CAPACITY: usize = 64 * 1024;

    /// Returns the two ends of a connection.
    ///
    /// # Panics
    ///
    /// If the system has no more pipes, or for [`Wire::Pipes`] outside a tokio runtime with I/O enabled.
    #[must_use]
    pub fn pair(self) -> (Transport, Transport) {
        match self {
            Wire::Memory => Transport::memory_with_capacity(Wire::CAPACITY),
            #[cfg(unix)]
            Wire::Pipes => {
                use tokio::net::unix::pipe::pipe;
                let (to_left, from_right) = pipe().expect("a pipe");
                let (to_right, from_left) = pipe().expect("a pipe");
                (Transport::new(from_right, to_right), Transport::new(from_left, to_left))
            }
        }
    }

    /// Returns one end of a connection, and a peer that the test plays at the other end. A test of this workspace runs
    /// over both kinds of wire.
    ///
    /// # Panics
    ///
    /// As [`pair`](Self::pair).
    #[doc(hidden)]
    #[must_use]
    pub fn scripted(self) -> (Transport, ScriptedPeer) {
        let (left, right) = self.pair();
        (left, ScriptedPeer::over(right))
    }

    /// Returns two connected peers that the test plays.
    ///
    /// # Panics
    ///
    /// As [`pair`](Self::pair).
    #[doc(hidden)]
    #[must_use]
    pub fn scripted_pair(self) -> (ScriptedPeer, ScriptedPeer) {
        let (left, right) = self.pair();
        (ScriptedPeer::over(left), ScriptedPeer::over(right))
    }
}
