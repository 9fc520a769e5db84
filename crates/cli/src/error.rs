//! What can stop a command.

use std::io;

use duologue_client::Error as ClientError;
use duologue_client::exchange::Error as Exchanged;
use duologue_rpc::Error as RpcError;

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
    /// The agent requires a login: the message, and the commands that log in.
    #[error("{0}")]
    Login(String),
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

    /// Maps the error to the exit code, for every command. `exit::HELP` documents the codes.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Error::Agent(error) => of_client(error),
            Error::Exchange(error) => of_exchange(error),
            Error::Login(_) => Exit::Found,
            Error::NotSpoken(_) => Exit::NotSpoken,
            Error::Serve(_) | Error::Start(_) => Exit::Agent,
            Error::Transcript(_) | Error::Io(_) => Exit::File,
            Error::Usage(_) => Exit::Usage,
        }
    }
}

fn of_client(error: &ClientError) -> Exit {
    match error {
        // It answered, and the answer is no.
        ClientError::Agent(_) | ClientError::AuthRequired { .. } => Exit::Found,
        ClientError::NotSupported { .. } => Exit::NotSpoken,
        ClientError::RelativePath { .. } => Exit::Usage,
        ClientError::Exchange(error) => of_exchange(error),
        ClientError::Connection(error) => of_connection(error),
        _ => Exit::Agent,
    }
}

fn of_exchange(error: &Exchanged) -> Exit {
    match error {
        Exchanged::Fault(_) | Exchanged::Refused(_) => Exit::Found,
        Exchanged::NotSupported { .. } => Exit::NotSpoken,
        Exchanged::Connection(error) => of_connection(error),
        _ => Exit::Agent,
    }
}

fn of_connection(error: &RpcError) -> Exit {
    match error {
        RpcError::Response(_) => Exit::Found,
        // Our message is too long: a prompt, a question or a context of the command line.
        RpcError::FrameTooLarge { .. } => Exit::Usage,
        _ => Exit::Agent,
    }
}
