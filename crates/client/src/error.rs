//! What can go wrong for a client.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use duologue_rpc::Closed;
use duologue_schema::{AuthMethod, Error as WireError, ErrorCode, ProtocolVersion, printable};

/// Why a call to the agent failed, or the agent did not start.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The agent answered with an error. The connection is fine.
    #[error("the agent answered: {0}")]
    Response(WireError),
    /// The agent wants the user to log in: call
    /// [`Connection::authenticate`](crate::Connection::authenticate) with one of the methods, then
    /// try again.
    #[error("the agent wants a login: {message}")]
    AuthRequired {
        /// The ways to log in that the agent offered.
        methods: Vec<AuthMethod>,
        /// What the agent said.
        message: String,
    },
    /// The agent's process ended. Every later call fails the same way.
    #[error("{0}")]
    AgentExited(AgentExited),
    /// The agent's program could not be started.
    #[error("cannot start {program}: {error}{}", spawn_hint(error))]
    Spawn {
        /// The program.
        program: String,
        /// What the system says.
        error: std::sync::Arc<std::io::Error>,
    },
    /// The agent did not answer `initialize` in time and was ended.
    #[error("the agent did not answer initialize within {after:?}{}", last_words(stderr, noise))]
    StartTimeout {
        /// The time that was allowed, see [`Client::start_timeout`](crate::Client::start_timeout).
        after: Duration,
        /// The end of what it wrote to stderr, as it wrote it.
        stderr: String,
        /// The last lines on its stdout that were no messages.
        noise: Vec<String>,
    },
    /// The agent speaks no version of the protocol that this client speaks.
    #[error("the agent speaks protocol version {agent:?}, this client {ours:?}; update the older of the two")]
    UnsupportedVersion {
        /// The agent's version.
        agent: ProtocolVersion,
        /// Our version.
        ours: ProtocolVersion,
    },
    /// The agent did not advertise what the call needs. Nothing was sent.
    #[error("the agent did not advertise {capability}")]
    NotSupported {
        /// The capability, as its path in the answer to `initialize`.
        capability: &'static str,
    },
    /// A turn is running in this session. Finish or cancel it first.
    #[error("a turn is already running in this session; finish, cancel or drop it first")]
    Busy,
    /// The protocol wants absolute paths.
    #[error("{} is not an absolute path", path.display())]
    RelativePath {
        /// The path.
        path: PathBuf,
    },
    /// The agent did not end a cancelled turn in time. The session is usable again, but the agent
    /// may still be at work in it.
    #[error("the agent did not end the cancelled turn within {after:?}")]
    CancelIgnored {
        /// The time that was allowed.
        after: Duration,
    },
    /// The agent as one that talks to agents: what became of a question to it, or of a task for it.
    #[cfg(feature = "exchange")]
    #[error(transparent)]
    Exchange(duologue_exchange::Error),
    /// The connection: it ended, the answer took too long or did not fit, the message was too
    /// large, or the updates were not taken in time.
    #[error(transparent)]
    Connection(duologue_rpc::Error),
}

/// What calls to the agent return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How the agent's process ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentExited {
    /// Exit code or signal; `None` if the system did not tell.
    pub status: Option<ExitStatus>,
    /// The end of what it wrote to stderr, at most 64 KiB, as it wrote it: what prints it has to escape it, as the
    /// message of this error does.
    pub stderr: String,
    /// The last lines on its stdout that were no messages.
    pub noise: Vec<String>,
}

impl std::fmt::Display for AgentExited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "the agent ended with {status}")?,
            None => f.write_str("the agent ended")?,
        }
        f.write_str(&last_words(&self.stderr, &self.noise))
    }
}

impl std::error::Error for AgentExited {}

fn spawn_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; is it installed and on the PATH?",
        _ => "",
    }
}

/// The last lines of stderr and of stdout noise, to end an error message with: the reason may be in either.
fn last_words(stderr: &str, noise: &[String]) -> String {
    let said = [last_lines("stderr", stderr.lines()), last_lines("stdout", noise.iter().map(String::as_str))];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!("; {}", said.join("\n")) }
}

fn last_lines<'a>(source: &str, lines: impl DoubleEndedIterator<Item = &'a str>) -> Option<String> {
    let mut last: Vec<_> =
        lines.rev().filter(|line| !line.trim().is_empty()).take(5).map(printable).collect();
    last.reverse();
    (!last.is_empty()).then(|| format!("its {source} ended with:\n{}", last.join("\n")))
}

impl From<duologue_rpc::Error> for Error {
    fn from(error: duologue_rpc::Error) -> Self {
        match error {
            duologue_rpc::Error::Response(error) => Error::Response(error),
            duologue_rpc::Error::Closed(Closed::Cause(cause)) => match cause.downcast_ref::<AgentExited>() {
                Some(exited) => Error::AgentExited(exited.clone()),
                None => Error::Connection(duologue_rpc::Error::Closed(Closed::Cause(cause))),
            },
            other => Error::Connection(other),
        }
    }
}

#[cfg(feature = "exchange")]
impl From<duologue_exchange::Error> for Error {
    fn from(error: duologue_exchange::Error) -> Self {
        match error {
            // How the agent ended is told in one way.
            duologue_exchange::Error::Connection(error @ duologue_rpc::Error::Closed(_)) => error.into(),
            other => Error::Exchange(other),
        }
    }
}

impl Error {
    /// Turns `-32000` into the error one can act on.
    pub(crate) fn with_login(self, methods: &[AuthMethod]) -> Self {
        match self {
            Error::Response(error) if error.code == ErrorCode::AUTH_REQUIRED => {
                Error::AuthRequired { methods: methods.to_vec(), message: error.message.into_owned() }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::{AgentExited, Error};

    #[test]
    fn only_a_program_that_is_not_there_may_have_to_be_installed() {
        let text = |kind: ErrorKind| {
            let error = std::io::Error::from(kind).into();
            Error::Spawn { program: "agent".into(), error }.to_string()
        };
        assert_eq!(
            text(ErrorKind::NotFound),
            "cannot start agent: entity not found; is it installed and on the PATH?"
        );
        assert_eq!(text(ErrorKind::PermissionDenied), "cannot start agent: permission denied");
    }

    #[test]
    fn the_reason_may_be_on_stdout_too() {
        let noise = vec!["Please log in".into(), " ".into()];
        let mut exited = AgentExited { status: None, stderr: "a warning\n".into(), noise };
        assert_eq!(
            exited.to_string(),
            "the agent ended; its stderr ended with:\na warning\nits stdout ended with:\nPlease log in"
        );
        exited.stderr.clear();
        assert_eq!(exited.to_string(), "the agent ended; its stdout ended with:\nPlease log in");
    }

    #[test]
    fn last_words_are_escaped_and_keep_their_lines() {
        let stderr =
            "panic at \"C:\\x\":\n\tcafé \u{1f600} 10%\r100%\n\u{1b}]0;title\u{7} \u{202e}txt.exe\u{9b}2J\n";
        let expected = "panic at \"C:\\x\":\n\tcafé \u{1f600} 10%\\r100%\n\
                        \\u{1b}]0;title\\u{7} \\u{202e}txt.exe\\u{9b}2J";
        let exited = AgentExited { status: None, stderr: stderr.into(), noise: Vec::new() };
        assert_eq!(exited.to_string(), format!("the agent ended; its stderr ended with:\n{expected}"));
        let error = Error::StartTimeout {
            after: std::time::Duration::from_secs(1),
            stderr: stderr.into(),
            noise: Vec::new(),
        };
        assert_eq!(
            error.to_string(),
            format!("the agent did not answer initialize within 1s; its stderr ended with:\n{expected}")
        );
    }
}
