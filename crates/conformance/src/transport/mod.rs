//! Runs checks against a server of the remote transports: HTTP with SSE, and WebSocket.

mod checks;
pub(crate) mod harness;
mod http;
mod web_socket;
mod wire;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use duologue_http::{ConnectOptions, RemoteTransport};

use crate::error::{Error, Result};
use crate::finding::{Check, CheckFunction, Severity, Verdict, skip};
use crate::report::{CheckResult, Report};
use crate::transport::harness::{ServerHarness, ServerSettings};

pub use checks::checks_transport;

/// A selection of checks and the server to run them against.
///
/// The checks send single requests and messages, by the rules of the published transport. The server gets some connections,
/// and its agent a few sessions and short prompts, whose permission requests are allowed.
/// A difference between the published toolkits is no failure.
///
/// ```no_run
/// use duologue_conformance::{ConnectOptions, TransportSuite};
///
/// # fn main() -> duologue_conformance::Result<()> {
/// let mut options = ConnectOptions::default();
/// options.bearer_token = Some("a token".into());
/// TransportSuite::new("http://127.0.0.1:8931/acp", options).run_blocking()?.assert_passed();
/// # Ok(())
/// # }
/// ```
pub struct TransportSuite {
    url: String,
    options: ConnectOptions,
    chosen: Vec<&'static Check>,
    settings: ServerSettings,
}

impl TransportSuite {
    /// Creates a suite of all checks of the transports in the options. With [`RemoteTransport::Auto`] it tests both, and
    /// skips the checks of one that the server does not have.
    #[must_use]
    pub fn new(url: impl Into<String>, options: ConnectOptions) -> Self {
        let chosen = of_transport(options.transport).collect();
        let settings = ServerSettings {
            timeout: Duration::from_secs(20),
            prompt: "Say hello.".into(),
            folder: std::env::temp_dir(),
            login: None,
            requires_token: options.bearer_token.is_some(),
        };
        TransportSuite { url: url.into(), options, chosen, settings }
    }

    /// Selects the checks and groups of these names. Without a name the suite runs all checks.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCheck`] for a name that is neither a check nor a group of these transports.
    pub fn only(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let all = || of_transport(self.options.transport);
        let matches = |check: &Check, name: &String| check.name == name || check.group == name;
        if let Some(unknown) = names.iter().find(|name| !all().any(|check| matches(check, name))) {
            return Err(Error::UnknownCheck(unknown.clone()));
        }
        let is_chosen = |check: &Check| names.is_empty() || names.iter().any(|name| matches(check, name));
        self.chosen = all().filter(|check| is_chosen(check)).collect();
        Ok(self)
    }

    /// Sets the time that the server may take for an answer; 20 seconds if not set. The first one may take three times as
    /// long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets the text of the prompts. Its turn has to end within the timeout.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.settings.prompt = text.into();
        self
    }

    /// Sets the folder of the sessions, on the machine of the agent. The default is the folder for temporary files of this
    /// machine.
    #[must_use]
    pub fn working_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.folder = folder.into();
        self
    }

    /// Sets the authentication method to use when the agent requires a login.
    #[must_use]
    pub fn login(mut self, method: impl Into<String>) -> Self {
        self.settings.login = Some(method.into());
        self
    }

    /// Makes it a failure, or none, that the server accepts a request without the token. The default is a failure if the
    /// options have a token. Otherwise the check is skipped for such a server.
    #[must_use]
    pub fn requires_token(mut self, requires_token: bool) -> Self {
        self.settings.requires_token = requires_token;
        self
    }

    /// Returns the selected checks.
    pub fn checks(&self) -> impl Iterator<Item = &'static Check> {
        self.chosen.iter().copied()
    }

    /// Runs the checks, one after the other.
    ///
    /// The future is not `Send`: await it in the function of the test, since it cannot be spawned.
    ///
    /// # Errors
    ///
    /// [`Error::Server`] if the server cannot be reached, if the address is invalid or the token is refused.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn run(self) -> Result<Report> {
        self.run_with(|_| Ok(())).await
    }

    /// Runs the checks and passes each result to `on_result` as soon as it is known.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and any error that `on_result` returns.
    #[doc(hidden)]
    pub async fn run_with(self, mut on_result: impl FnMut(&CheckResult) -> io::Result<()>) -> Result<Report> {
        let mut harness = ServerHarness::connect(&self.url, self.options, self.settings).await?;
        let mut results = Vec::with_capacity(self.chosen.len());
        for check in self.chosen {
            let start = Instant::now();
            let mark = harness.log_length();
            let mut finding = match (check.run, harness.missing_transport(check.name)) {
                (_, Some(reason)) => skip(reason),
                (CheckFunction::Server(run), None) => {
                    run(&mut harness).await.unwrap_or_else(|finding| finding)
                }
                // This suite selects none of them.
                (CheckFunction::Agent(_), None) => continue,
            };
            if finding.verdict == Verdict::Fail && check.severity == Severity::Should {
                finding.verdict = Verdict::Warn;
            }
            if matches!(finding.verdict, Verdict::Fail | Verdict::Warn)
                && let Some(explanation) = harness.explanation(&finding)
            {
                finding = explanation;
            }
            finding.shown = harness.log_since(mark);
            harness.end_connections().await;
            harness.store(check.name, finding.clone());
            let result = CheckResult::new(check, finding, start.elapsed());
            on_result(&result)?;
            results.push(result);
        }
        Ok(Report { results, has_agent: harness.has_agent(), untested: harness.untested() })
    }

    /// Runs the checks on a runtime of its own, for a test without an async runtime.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Inside an async runtime, such as in a `#[tokio::test]`: await [`run`](Self::run) there.
    pub fn run_blocking(self) -> Result<Report> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.run())
    }
}

/// Returns the checks of a transport, and those of both.
fn of_transport(transport: RemoteTransport) -> impl Iterator<Item = &'static Check> {
    checks_transport().filter(move |check| match TransportKind::of(check.name) {
        Some(TransportKind::Http) => transport != RemoteTransport::WebSocket,
        Some(TransportKind::WebSocket) => transport != RemoteTransport::Events,
        None => true,
    })
}

/// The transport that a check tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Http,
    WebSocket,
}

impl TransportKind {
    /// Returns the transport of a check by its name, or `None` for one that concerns both.
    pub(crate) fn of(check: &str) -> Option<Self> {
        match check.split('-').next() {
            Some("http" | "sse") => Some(TransportKind::Http),
            Some("ws") => Some(TransportKind::WebSocket),
            _ => None,
        }
    }
}
