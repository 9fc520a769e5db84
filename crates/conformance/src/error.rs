//! The reasons for which no report can be made.

use std::io;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A reason for which the checks cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name in [`Suite::only`](crate::Suite::only) is neither a check nor a group of that suite.
    #[error("there is no check and no group named {0}; `duologue_conformance::checks` lists them")]
    UnknownCheck(String),
    /// The agent's program cannot be started.
    #[error("{0}")]
    Start(#[source] duologue_client::Error),
    /// The server cannot be reached, or refuses the token.
    #[cfg(feature = "http")]
    #[error("{0}")]
    Server(#[source] duologue_http::Error),
    /// The folder of the sessions or the output of the report cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
}
