//! What can stop a command.

use std::io;

use duologue_client::exchange::Error as Exchanged;

use crate::exit::Exit;

/// The result of a command and its parts.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The agent, or the way to it.
    #[error("{0}")]
    Agent(#[from] duologue_client::Error),
    /// Our own side of a conversation in which we are the agent.
    #[error("{0}")]
    Serve(#[from] duologue_agent::Error),
    /// A transcript.
    #[error("{0}")]
    Transcript(#[from] duologue_transcript::Error),
    /// Input or output.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Why there is no session with the agent, and what to do about it.
    #[error("{0}")]
    Start(String),
    /// What came of an exchange with the agent as with another agent.
    #[error("{0}")]
    Exchange(Exchanged),
    /// Why the agent cannot be asked what was to be asked, and what it would have to advertise.
    #[error("{0}")]
    NotSpoken(String),
    /// A sentence for the user about the command line.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Whoever read our output has left, as `head` does. That is no error.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The code the command ends with.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            // It answered, and the answer is no.
            Error::Exchange(Exchanged::Fault(_) | Exchanged::Refused(_)) => Exit::Found,
            Error::Exchange(Exchanged::NotSupported { .. }) | Error::NotSpoken(_) => Exit::NotSpoken,
            Error::Agent(_) | Error::Serve(_) | Error::Start(_) | Error::Exchange(_) => Exit::Agent,
            Error::Transcript(_) | Error::Io(_) => Exit::File,
            Error::Usage(_) => Exit::Usage,
        }
    }
}
