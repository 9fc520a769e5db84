//! Errors of the hub.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::{Error as RpcError, ProtocolVersion};
use duologue_store::{CursorGoneReason, LogCursor};

/// The code of an error over a limit.
pub(crate) const LIMIT_REACHED: &str = "limit_reached";

/// An error of the hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program of the agent could not be started.
    #[error("{0}")]
    Start(duologue_client::Error),
    /// The agent is on another machine and cannot be reached.
    #[error("the agent is offline: {reason}; retry when it is back")]
    Offline {
        /// The reason.
        reason: String,
    },
    /// The agent ended before it answered a request of the hub.
    #[error("{method} failed: {reason}")]
    AgentEnded {
        /// The method.
        method: String,
        /// The exit status and the last lines of stderr, escaped.
        reason: String,
    },
    /// The agent did not answer a request of the hub in time.
    #[error(
        "the agent did not answer {method} within {limit:?} (`HubSettings::agent_timeout`); its process was ended"
    )]
    AgentTimeout {
        /// The method.
        method: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Another client's attempt to start the agent failed while this one waited for it.
    #[error("{0}")]
    Introduction(Arc<Error>),
    /// The agent answered a request of the hub with an error.
    #[error("the agent answered {method} with an error: {error}")]
    Agent {
        /// The method.
        method: String,
        /// The error.
        error: RpcError,
    },
    /// The agent speaks another version of the protocol.
    #[error(
        "the agent has answered `initialize` with the protocol version {version:?}, and the server has offered 1; update the agent"
    )]
    Version {
        /// The version.
        version: ProtocolVersion,
    },
    /// A response of the agent is invalid.
    #[error("a response of the agent is invalid: {0}")]
    Decode(serde_json::Error),
    /// A message could not be written.
    #[error("a message could not be written: {0}")]
    Encode(serde_json::Error),
    /// The log of a session failed.
    #[error("{0}")]
    Log(#[from] duologue_store::Error),
    /// The log of a session failed, and the session has ended.
    #[error("the log of the session failed: {0}")]
    LogFailed(Arc<Error>),
    /// No record of the log of a session can be read any more.
    #[error(
        "the log of the session is empty, damaged as a whole or gone, and with it the conversation; restore its files, or delete the session"
    )]
    LogLost,
    /// A record of a log is invalid.
    #[error("{0}")]
    Record(#[from] crate::InvalidRecord),
    /// There are too many sessions.
    #[error("session limit reached ({limit} sessions are open); close one or raise `HubSettings::sessions`")]
    Sessions {
        /// The limit.
        limit: usize,
    },
    /// The principal has too many sessions.
    #[error(
        "session limit reached ({limit} sessions of yours are open at this agent); close one or raise `limits.principal_sessions` (`HubSettings::principal_sessions`)"
    )]
    PrincipalSessions {
        /// The limit.
        limit: usize,
    },
    /// The logs have reached their limit.
    #[error(
        "disk limit reached: the logs of the sessions have {limit} bytes or more (`HubSettings::disk_bytes`, `--disk`, `agents.disk_bytes`); delete sessions, or let the server remove old ones (`--keep`)"
    )]
    Disk {
        /// The limit.
        limit: u64,
    },
    /// The logs of a principal have reached their limit.
    #[error(
        "disk limit reached: the logs of your sessions at this agent have {limit} bytes or more (`limits.principal_disk_bytes`, `HubSettings::principal_disk_bytes`); delete sessions"
    )]
    PrincipalDisk {
        /// The limit.
        limit: u64,
    },
    /// Too many requests that belong to no session run.
    #[error(
        "request limit reached ({limit} requests without a session run); retry later or raise `HubSettings::requests_without_session`"
    )]
    Requests {
        /// The limit.
        limit: usize,
    },
    /// A folder of the server cannot be used.
    #[error("{}: {error}", path.display())]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The reason.
        error: Arc<std::io::Error>,
    },
    /// A secret of the configuration cannot be read.
    #[error("{place}: {reason}")]
    Secret {
        /// The key of the configuration, and the agent or principal.
        place: String,
        /// The source of its value if it has one, and the reason.
        reason: String,
    },
    /// The server does not allow what a session would use.
    #[error("{reason}")]
    NotAllowed {
        /// The folder or program, and the reason.
        reason: String,
    },
    /// The session does not exist, or belongs to somebody else.
    #[error("unknown session: create, load or resume it first")]
    UnknownSession,
    /// The log does not have the position that a client names, or the frames that it has from there on.
    #[error("the log does not have the frames of the client behind {cursor}: {reason}; load the session")]
    CursorGone {
        /// The position of the client.
        cursor: LogCursor,
        /// The reason.
        reason: CursorGoneReason,
    },
    /// The hub is shutting down.
    #[error("the server is shutting down; retry when it is back")]
    Closed,
}

impl Error {
    /// Returns the error for a client.
    pub(crate) fn to_wire(&self) -> RpcError {
        let code = match self {
            Error::Introduction(error) => return error.to_wire(),
            // Such as a required login: the client acts on it.
            Error::Agent { error, .. } => return error.clone(),
            Error::Log(duologue_store::Error::BadIndexCursor { .. }) => {
                return RpcError::invalid_params(self.to_string());
            }
            Error::UnknownSession => return RpcError::resource_not_found(self.to_string()),
            Error::NotAllowed { .. } => return RpcError::invalid_params(self.to_string()),
            Error::Start(_)
            | Error::Version { .. }
            | Error::Offline { .. }
            | Error::AgentEnded { .. }
            | Error::AgentTimeout { .. }
            | Error::Secret { .. } => "agent_unavailable",
            Error::Log(_)
            | Error::LogFailed(_)
            | Error::LogLost
            | Error::Record(_)
            | Error::Folder { .. } => "log_failed",
            Error::Sessions { .. }
            | Error::PrincipalSessions { .. }
            | Error::Requests { .. }
            | Error::Disk { .. }
            | Error::PrincipalDisk { .. } => LIMIT_REACHED,
            Error::CursorGone { .. } => "cursor_gone",
            Error::Closed => "closed",
            Error::Decode(_) | Error::Encode(_) => "internal",
        };
        RpcError::internal(self.to_string()).coded(code, self.is_retryable())
    }

    /// Returns true if the same request may succeed later.
    fn is_retryable(&self) -> bool {
        use duologue_store::Error as StoreError;

        match self {
            Error::Decode(_)
            | Error::Encode(_)
            | Error::Record(_)
            | Error::LogLost
            | Error::Version { .. } => false,
            Error::LogFailed(error) => error.is_retryable(),
            // Records that are damaged, or of a newer version, stay as they are.
            Error::Log(error) => matches!(
                error,
                StoreError::File { .. }
                    | StoreError::DiskFull { .. }
                    | StoreError::DiskReserve { .. }
                    | StoreError::FileSizeLimit { .. }
                    | StoreError::LogFull { .. }
                    | StoreError::InUse { .. }
                    | StoreError::Changed { .. }
                    | StoreError::SyncFailed { .. }
                    | StoreError::Index { .. }
            ),
            _ => true,
        }
    }
}
