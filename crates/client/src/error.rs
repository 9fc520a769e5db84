//! The errors of a client.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use duologue_rpc::Closed;
use duologue_schema::{AuthMethod, Error as WireError, ErrorCode, NotOffered, ProtocolVersion, printable};

/// An error of a request to the agent, or of its start.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The agent responded with an error. The connection continues.
    #[error("the agent responded with an error: {0}")]
    Response(WireError),
    /// The agent requires a login. Call [`Connection::authenticate`](crate::Connection::authenticate) with
    /// one of the methods, then retry.
    #[error("the agent requires a login: {message}")]
    AuthRequired {
        /// The login methods of the agent.
        methods: Vec<AuthMethod>,
        /// The message of the agent.
        message: String,
    },
    /// The process of the agent exited. Every later call fails the same way.
    #[error("{0}")]
    AgentExited(AgentExited),
    /// The agent's program could not be started.
    #[error("cannot start {program}: {error}{}", spawn_hint(error))]
    Spawn {
        /// The program.
        program: String,
        /// The error of the system.
        error: std::sync::Arc<std::io::Error>,
    },
    /// The server of the agent cannot be reached, or has refused the connection.
    #[cfg(feature = "http")]
    #[error("{0}")]
    Remote(std::sync::Arc<duologue_http::Error>),
    /// The agent did not respond to `initialize` in time and was ended.
    #[error("the agent did not respond to initialize within {after:?}{}", last_output(stderr, noise))]
    StartTimeout {
        /// The timeout, see [`Client::start_timeout`](crate::Client::start_timeout).
        after: Duration,
        /// The unescaped end of its stderr.
        stderr: String,
        /// The last lines of its stdout that were not messages.
        noise: Vec<String>,
    },
    /// The agent does not support the protocol version of this client.
    #[error("the agent uses protocol version {agent:?}, this client {ours:?}; update the older of the two")]
    UnsupportedVersion {
        /// The version of the agent.
        agent: ProtocolVersion,
        /// The version of this client.
        ours: ProtocolVersion,
    },
    /// The agent did not advertise the required capability. Nothing was sent.
    #[error("the agent did not advertise {capability}")]
    NotSupported {
        /// The path of the capability in the response to `initialize`.
        capability: &'static str,
    },
    /// The session has no such mode, config option or value. Nothing was sent.
    #[error(transparent)]
    NotOffered(#[from] NotOffered),
    /// Another turn is running in the session. Finish or cancel it first.
    #[error("a turn is already running in this session; finish, cancel or drop it first")]
    Busy,
    /// The prompt has no content, which version 2 forbids. Nothing was sent.
    #[error("the prompt has no content; add text or another block")]
    EmptyPrompt,
    /// The path is relative, but the protocol requires absolute paths.
    #[error("{} is not an absolute path", path.display())]
    RelativePath {
        /// The path.
        path: PathBuf,
    },
    /// The agent did not end a cancelled turn in time. The session accepts prompts again, but the agent may
    /// still work on the old one.
    #[error("the agent did not end the cancelled turn within {after:?}")]
    CancelIgnored {
        /// The timeout, see [`Client::cancel_patience`](crate::Client::cancel_patience).
        after: Duration,
    },
    /// The agent always has another page of its sessions.
    #[error("the agent lists its sessions on more than {limit} pages; the list was ended")]
    TooManyPages {
        /// The limit, [`limits::LISTED_PAGES`](crate::limits::LISTED_PAGES).
        limit: usize,
    },
    /// An error of a query or a delegation to the agent.
    #[cfg(feature = "exchange")]
    #[error(transparent)]
    Exchange(duologue_exchange::Error),
    /// An error of the connection: it ended, a timeout, an invalid response, a message over the limit, or
    /// updates that were not taken in time.
    #[error(transparent)]
    Connection(duologue_rpc::Error),
}

/// The result of requests to the agent.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The exit of the agent's process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentExited {
    /// The exit code or signal; `None` if it is unknown.
    pub status: Option<ExitStatus>,
    /// The end of its stderr, at most 64 KiB. It is not escaped: escape it before you print it, as the message of this
    /// error does.
    pub stderr: String,
    /// The last lines of its stdout that were not messages.
    pub noise: Vec<String>,
}

impl AgentExited {
    /// Creates it from the exit status and the end of stderr, for a program that runs an
    /// [`AgentProcess`](crate::AgentProcess) itself.
    #[must_use]
    pub fn new(status: Option<ExitStatus>, stderr: impl Into<String>) -> Self {
        AgentExited { status, stderr: stderr.into(), noise: Vec::new() }
    }

    /// Returns the last lines of the output for the end of an error message, escaped, or an empty text.
    #[must_use]
    pub fn last_output(&self) -> String {
        last_output(&self.stderr, &self.noise)
    }
}

impl std::fmt::Display for AgentExited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "the agent ended with {status}")?,
            None => f.write_str("the agent ended")?,
        }
        f.write_str(&self.last_output())
    }
}

impl std::error::Error for AgentExited {}

fn spawn_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; is it installed and on the PATH?",
        _ => "",
    }
}

/// Returns the last lines of stderr and of noise on stdout, for the end of an error message. Either can contain the
/// reason.
fn last_output(stderr: &str, noise: &[String]) -> String {
    let output =
        [last_lines("stderr", stderr.lines()), last_lines("stdout", noise.iter().map(String::as_str))];
    let output: Vec<String> = output.into_iter().flatten().collect();
    if output.is_empty() { String::new() } else { format!("; {}", output.join("\n")) }
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
            // The exit of the agent is always the same error.
            duologue_exchange::Error::Connection(error @ duologue_rpc::Error::Closed(_)) => error.into(),
            other => Error::Exchange(other),
        }
    }
}

impl Error {
    /// Returns the code in the `data` of the agent's error, such as `interrupted` or `busy` from a server for sessions, or the
    /// code of an exchange. It is a name, unlike the number of [`Error::Response`].
    ///
    /// ```
    /// use duologue_client::{Error, schema};
    /// use serde_json::json;
    ///
    /// let error = schema::Error::internal("the agent ended").data(json!({"code": "interrupted", "retryable": true}));
    /// let error = Error::Response(error);
    /// assert_eq!((error.code().as_deref(), error.is_retryable()), (Some("interrupted"), true));
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<String> {
        match self {
            Error::Response(error) => error.data_member("code"),
            #[cfg(feature = "exchange")]
            Error::Exchange(error) => Some(error.code().as_str().to_owned()),
            _ => None,
        }
    }

    /// Returns true if the same request may succeed later: `data` has `retryable`, or another turn is running.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Response(error) => error.data_member("retryable").unwrap_or(false),
            #[cfg(feature = "exchange")]
            Error::Exchange(error) => error.is_retryable(),
            Error::Busy => true,
            _ => false,
        }
    }

    /// Converts the error `-32000` to [`Error::AuthRequired`].
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

    use duologue_schema::Error as WireError;
    use serde_json::json;

    use super::{AgentExited, Error};

    #[test]
    fn only_a_missing_program_has_the_hint_to_install_it() {
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
    fn the_message_contains_noise_of_stdout() {
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
    fn the_code_is_that_of_the_data() {
        let response = |data: serde_json::Value| Error::Response(WireError::internal("no").data(data));
        for (error, code, is_retryable) in [
            (response(json!({"code": "busy", "retryable": true})), Some("busy"), true),
            (response(json!({"code": "context_lost", "retryable": false})), Some("context_lost"), false),
            (response(json!({"code": 7, "retryable": "yes"})), None, false),
            (response(json!("busy")), None, false),
            (Error::Response(WireError::internal("no")), None, false),
            (Error::Busy, None, true),
        ] {
            assert_eq!((error.code().as_deref(), error.is_retryable()), (code, is_retryable), "{error:?}");
        }
    }

    #[test]
    fn the_last_output_is_escaped_and_keeps_its_lines() {
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
            format!("the agent did not respond to initialize within 1s; its stderr ended with:\n{expected}")
        );
    }
}
