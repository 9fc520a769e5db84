//! Runs checks against an agent.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use duologue_client::Command;
use duologue_schema::Meta;

use crate::checks::{checks, checks_v2, named};
use crate::error::{Error, Result};
use crate::finding::{Check, CheckFunction, Finding, Running, Severity, Verdict};
use crate::harness::{Harness, Settings, Waits};
use crate::report::{CheckResult, Report};

/// A selection of checks and the agent to run them against.
///
/// The agent is started several times and gets a few short prompts. It may read and write files in the sessions'
/// folder, and its permission requests are allowed.
///
/// ```no_run
/// use duologue_conformance::{Command, Suite};
///
/// # fn main() -> duologue_conformance::Result<()> {
/// Suite::new(|| Command::new("my-agent").arg("--acp")).run_blocking()?.assert_passed();
/// # Ok(())
/// # }
/// ```
pub struct Suite {
    command: Box<dyn Fn() -> Command>,
    chosen: Vec<&'static Check>,
    working_dir: Option<PathBuf>,
    timeout: Duration,
    waits: Waits,
    prompt: String,
    permission_prompt: Option<String>,
    slow_prompt: Option<String>,
    mode: Option<String>,
    login: Option<String>,
    login_meta: Option<Meta>,
    is_v2: bool,
}

impl Suite {
    /// Creates a suite of all checks of version 1. `command` makes the agent's command each time a process is needed.
    #[must_use]
    pub fn new(command: impl Fn() -> Command + 'static) -> Self {
        Suite {
            command: Box::new(command),
            chosen: checks().collect(),
            working_dir: None,
            timeout: Duration::from_secs(20),
            waits: Waits::default(),
            prompt: "Say hello.".into(),
            permission_prompt: None,
            slow_prompt: None,
            mode: None,
            login: None,
            login_meta: None,
            is_v2: false,
        }
    }

    /// Selects all checks of the draft of version 2, which may change. The agent has to choose that version.
    ///
    /// It replaces an earlier selection by [`only`](Self::only).
    #[must_use]
    pub fn protocol_v2(mut self) -> Self {
        self.is_v2 = true;
        self.chosen = checks_v2().collect();
        self
    }

    fn all_checks(&self) -> impl Iterator<Item = &'static Check> {
        let (old, new) = if self.is_v2 { (None, Some(checks_v2())) } else { (Some(checks()), None) };
        old.into_iter().flatten().chain(new.into_iter().flatten())
    }

    /// Selects the checks and groups of these names. Without a name the suite runs all checks.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCheck`] for a name that is neither a check nor a group.
    pub fn only(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let matches = |check: &Check, name: &str| check.name == name || check.group == name;
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        if let Some(unknown) = names.iter().find(|name| !self.all_checks().any(|check| matches(check, name)))
        {
            return Err(Error::UnknownCheck(unknown.clone()));
        }
        let is_chosen = |check: &Check| names.is_empty() || names.iter().any(|name| matches(check, name));
        self.chosen = self.all_checks().filter(|check| is_chosen(check)).collect();
        Ok(self)
    }

    /// Sets the folder of the sessions. The default is a new temporary folder, which is removed after the run.
    #[must_use]
    pub fn working_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.working_dir = Some(folder.into());
        self
    }

    /// Sets the time that the agent may take for a response; 20 seconds if not set. The first response may take
    /// three times as long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time to wait for a message that must not come, and the time after a cancel in which a turn may end by itself.
    /// They are 300 ms and one second if not set. Tests of this crate set others.
    #[doc(hidden)]
    #[must_use]
    pub fn waits(mut self, quiet: Duration, crossed: Duration) -> Self {
        self.waits = Waits { quiet, crossed };
        self
    }

    /// Sets the text of the prompts. A prompt that makes the agent stream text for a while and request a permission
    /// exercises most checks. Its turn has to end by itself within the timeout; otherwise the checks that need an
    /// answered prompt are skipped.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.prompt = text.into();
        self
    }

    /// Sets the text of the prompt that makes the agent request a permission; that of [`prompt`](Self::prompt) if not set.
    /// Without such a prompt the check `permission-cancelled` is skipped.
    #[must_use]
    pub fn permission_prompt(mut self, text: impl Into<String>) -> Self {
        self.permission_prompt = Some(text.into());
        self
    }

    /// Sets the text of the prompt whose turn is cancelled; that of [`prompt`](Self::prompt) if not set. Its turn has to
    /// last for a second or more, and may last longer than the timeout. Without such a prompt the checks of cancelled
    /// turns are skipped.
    #[must_use]
    pub fn slow_prompt(mut self, text: impl Into<String>) -> Self {
        self.slow_prompt = Some(text.into());
        self
    }

    /// Sets the mode of each session, for an agent that needs another mode than its first one to request permissions. In
    /// version 2 it is a value of the config option of the category `mode`.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<String>) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// Sets the authentication method to use when the agent requires a login.
    #[must_use]
    pub fn login(mut self, method: impl Into<String>) -> Self {
        self.login = Some(method.into());
        self
    }

    /// Sets the `_meta` of the request that logs in, for an agent that gets its key there.
    #[must_use]
    pub fn login_meta(mut self, meta: impl Into<Meta>) -> Self {
        self.login_meta = Some(meta.into());
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
    /// [`Error::Start`] if the agent's program cannot be started, [`Error::Io`] if the folder cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the agent's processes.
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
        let mut temporary = None;
        let folder = match self.working_dir {
            Some(folder) => folder,
            None => {
                let folder = tempfile::Builder::new().prefix("duologue-check-").tempdir()?;
                temporary.insert(folder).path().to_owned()
            }
        };
        let mut harness = Harness::new(Settings {
            command: self.command,
            cwd: canonical(&folder)?,
            timeout: self.timeout,
            waits: self.waits,
            prompt: self.prompt,
            permission_prompt: self.permission_prompt,
            slow_prompt: self.slow_prompt,
            mode: self.mode,
            login: self.login,
            login_meta: self.login_meta,
            is_v2: self.is_v2,
        });
        harness.chosen = self.chosen.iter().map(|check| check.name).collect();
        let mut results = Vec::with_capacity(self.chosen.len());
        for check in self.chosen {
            let start = Instant::now();
            judge(&mut harness, check).await;
            if let Some(error) = harness.start_error.take() {
                return Err(Error::Start(error));
            }
            if let Some(finding) = harness.finding(check.name) {
                let result = CheckResult::new(check, finding.clone(), start.elapsed());
                on_result(&result)?;
                results.push(result);
            }
        }
        let (has_agent, untested) = (harness.has_agent(), harness.untested());
        harness.finish().await;
        Ok(Report { results, has_agent, untested })
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(self.run());
        // A read of a file that never returns would keep the runtime waiting.
        runtime.shutdown_background();
        report
    }
}

fn canonical(folder: &Path) -> io::Result<PathBuf> {
    folder
        .canonicalize()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
}

/// Runs a check and stores its finding, unless it has run before.
///
/// A failure becomes a skip if a check that tests its cause fails as well: one cause is one failure.
fn judge<'a>(harness: &'a mut Harness, check: &'static Check) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async move {
        if harness.finding(check.name).is_some() {
            return;
        }
        let marks = harness.marks();
        let run: Running<'_> = match check.run {
            CheckFunction::Agent(run) => run(harness),
            // This suite selects none of them.
            #[cfg(feature = "http")]
            CheckFunction::Server(_) => return,
        };
        let mut finding = run.await.unwrap_or_else(|finding| finding);
        if let Some(lost) = harness.take_lost_agent() {
            finding = lost;
        } else if finding.verdict == Verdict::Fail {
            harness.retire_shared();
            if check.severity == Severity::Should {
                finding.verdict = Verdict::Warn;
            }
        }
        if finding.shown.is_empty() {
            finding.shown = harness.since(&marks);
        }
        harness.close_sessions().await;
        let (verdict, causes) = (finding.verdict, finding.causes.clone());
        // Stored before its causes are tested, so that two checks that name each other both end.
        harness.store(check.name, finding);
        if matches!(verdict, Verdict::Fail | Verdict::Warn)
            && let Some(explanation) = explained(harness, check.name, verdict, &causes).await
        {
            harness.store(check.name, explanation);
        }
    })
}

/// Returns the finding of a skip if a selected check that tests one of the causes of `name` fails. A warning explains
/// only another warning.
pub(crate) async fn explained(
    harness: &mut Harness,
    name: &str,
    verdict: Verdict,
    causes: &[&'static str],
) -> Option<Finding> {
    for cause in causes.iter().filter(|cause| **cause != name) {
        let check = named(cause, harness.is_v2());
        let Some(check) = check.filter(|check| harness.chosen.contains(check.name)) else { continue };
        judge(harness, check).await;
        let Some(found) = harness.finding(check.name) else { continue };
        if found.verdict == Verdict::Warn && verdict != Verdict::Warn {
            continue;
        }
        // If two checks name each other as causes, the first one stays a failure and explains the second one.
        if let Some(explanation) = found.explains(check.name)
            && explanation.because != Some(name)
        {
            return Some(explanation);
        }
    }
    None
}
