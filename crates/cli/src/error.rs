//! The errors of commands.

use std::io;

use duologue_client::Error as ClientError;
use duologue_client::exchange::{Error as Exchanged, dialogue};
use duologue_rpc::Error as RpcError;
use duologue_transcript::Error as TranscriptError;

use crate::exit::Exit;

/// The result of a command or of a part of one.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason for which a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An error of the agent or of the connection to it.
    #[error("{0}")]
    Agent(#[from] duologue_client::Error),
    /// A response of the agent with an error: the message, and the detail for its developer.
    #[error("{0}")]
    AgentDetail(String),
    /// An error of our own agent.
    #[error("{0}")]
    Serve(#[from] duologue_agent::Error),
    /// An error of a server for sessions.
    #[cfg(feature = "serve")]
    #[error("{0}")]
    Hub(#[from] duologue_hub::Error),
    /// A hub refused a request or cannot be reached: the reason with the remedy, and the exit code.
    #[cfg(feature = "serve")]
    #[error("{0}")]
    HubRequest(String, Exit),
    #[cfg(feature = "serve")]
    #[error(transparent)]
    HubConfig(#[from] duologue_hub::gateway::ConfigError),
    /// An error of a transcript.
    #[error("{0}")]
    Transcript(#[from] duologue_transcript::Error),
    /// An error of input or output.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The reason for which no session could be started, and the remedy.
    #[error("{0}")]
    Start(String),
    /// The agent requires a login: the message, and the commands that log in.
    #[error("{0}")]
    Login(String),
    /// An error of an exchange with the agent as a peer agent.
    #[error("{0}")]
    Exchange(Exchanged),
    /// An error of a dialogue with the agent.
    #[error("{0}")]
    Dialogue(#[from] dialogue::Error),
    /// A request that the agent does not support, and the capability that it would have to advertise.
    #[error("{0}")]
    NotAdvertised(String),
    /// A mistake on the command line.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Returns true if the reader of our output has closed it, as `head` does. An error of a file has its name and no
    /// number.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Error::Io(error) if error.kind() == io::ErrorKind::BrokenPipe && error.raw_os_error().is_some())
    }

    /// Adds the `detail` in the data of an error of the agent, which is for its developer.
    pub(crate) fn with_detail(self) -> Self {
        let detail = match &self {
            Error::Agent(ClientError::Response(error)) => error.data_member::<String>("detail"),
            _ => None,
        };
        match detail {
            Some(detail) => Error::AgentDetail(format!("{self}\ndetail: {detail}")),
            None => self,
        }
    }

    /// Maps the error to the exit code, for every command. `exit::HELP` documents the codes.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Error::Agent(error) => of_client(error),
            Error::Exchange(error) => of_exchange(error),
            Error::Login(_) | Error::AgentDetail(_) => Exit::Found,
            Error::NotAdvertised(_) | Error::Dialogue(dialogue::Error::NotSupported) => Exit::NotAdvertised,
            Error::Dialogue(error) => of_dialogue(error),
            #[cfg(feature = "serve")]
            Error::Hub(duologue_hub::Error::Log(_) | duologue_hub::Error::Folder { .. }) => Exit::File,
            #[cfg(feature = "serve")]
            Error::HubConfig(duologue_hub::gateway::ConfigError::File { .. }) => Exit::File,
            #[cfg(feature = "serve")]
            Error::HubConfig(_) | Error::Hub(duologue_hub::Error::Secret { .. }) => Exit::Usage,
            #[cfg(feature = "serve")]
            Error::Hub(_) => Exit::Agent,
            #[cfg(feature = "serve")]
            Error::HubRequest(_, exit) => *exit,
            Error::Serve(_) | Error::Start(_) => Exit::Agent,
            Error::Transcript(TranscriptError::Flood { .. }) => Exit::Agent,
            Error::Transcript(_) | Error::Io(_) => Exit::File,
            Error::Usage(_) => Exit::Usage,
        }
    }
}

fn of_client(error: &ClientError) -> Exit {
    match error {
        // The agent answered with an error.
        ClientError::Response(_) | ClientError::AuthRequired { .. } | ClientError::NotOffered(_) => {
            Exit::Found
        }
        ClientError::NotSupported { .. } => Exit::NotAdvertised,
        ClientError::RelativePath { .. } => Exit::Usage,
        ClientError::Exchange(error) => of_exchange(error),
        ClientError::Connection(error) => of_connection(error),
        _ => Exit::Agent,
    }
}

fn of_dialogue(error: &dialogue::Error) -> Exit {
    match error {
        dialogue::Error::Response(_) | dialogue::Error::Failed(_) => Exit::Found,
        dialogue::Error::Connection(error) => of_connection(error),
        dialogue::Error::NoAnswer { .. } | dialogue::Error::Ended | dialogue::Error::Other(_) => Exit::Agent,
        // Nothing was sent: a name, a field, a key or a move of the command line is wrong.
        _ => Exit::Usage,
    }
}

fn of_exchange(error: &Exchanged) -> Exit {
    match error {
        Exchanged::Response(_) | Exchanged::Declined(_) => Exit::Found,
        Exchanged::NotSupported { .. } => Exit::NotAdvertised,
        Exchanged::Connection(error) => of_connection(error),
        // Nothing was sent: the id, the files or the session of the command line are wrong.
        Exchanged::AttachmentsTooLarge { .. } | Exchanged::IdInUse { .. } | Exchanged::NoSession { .. } => {
            Exit::Usage
        }
        _ => Exit::Agent,
    }
}

fn of_connection(error: &RpcError) -> Exit {
    match error {
        RpcError::Response(_) => Exit::Found,
        // A prompt, a question or a context of the command line makes the message too long.
        RpcError::FrameTooLarge { .. } => Exit::Usage,
        _ => Exit::Agent,
    }
}
