//! `duologue check`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anstream::AutoStream;
use duologue_client::Command as AgentCommand;
use duologue_conformance::{
    Check, CheckResult, Error as CheckError, Report, Suite, TextReport, TransportSuite,
};

use crate::commands::AgentArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::server_args::{ServerArgs, TransportName};
use crate::signals::Signals;
use crate::{runtime, ui};

const EXAMPLES: &str = "\
Examples:
  duologue check -- my-agent --acp
  duologue check --url http://127.0.0.1:8931/acp";

/// Check whether an agent, or a server of agents, keeps to the protocol
///
/// The agent is started several times and gets a few short prompts. It may read and write files in the
/// sessions' folder, and its permission requests are allowed.
///
/// With --url nothing is started. The checks open connections to the server over HTTP with SSE and over WebSocket, and its
/// agent gets a few sessions and prompts.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Run only these checks or groups
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// List the checks with their rules and the pages of the specification
    #[arg(long)]
    list: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Also write the results to a file as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Wait so many seconds for each response; the first may take three times as long
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    timeout: Duration,
    /// The folder of the sessions [default: a new temporary folder; with --url that of temporary files]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The prompt; one that makes the agent stream text for a while and request a permission exercises most checks
    #[arg(long, value_name = "TEXT", default_value = "Say hello.")]
    prompt: String,
    /// The prompt that makes the agent request a permission [default: the prompt]
    #[arg(long, value_name = "TEXT")]
    permission_prompt: Option<String>,
    /// The prompt whose turn is cancelled; it should last for a second or more [default: the prompt]
    #[arg(long, value_name = "TEXT")]
    slow_prompt: Option<String>,
    /// Set this mode in each session, for an agent that requests permissions only in some modes
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Log in by this method if the agent requires it
    #[arg(long, alias = "auth", value_name = "METHOD")]
    login: Option<String>,
    /// Check the agent against this version of the protocol. Version 2 is a draft
    #[arg(long, value_name = "VERSION", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=2))]
    protocol: u16,
    /// Check the transports of the server at this address: http, https, ws or wss
    #[arg(long, value_name = "URL", conflicts_with_all = ["agent", "protocol", "mode", "permission_prompt", "slow_prompt"])]
    url: Option<String>,
    /// The transports to check: a WebSocket, HTTP with server-sent events, or both
    #[arg(long, value_name = "NAME", value_enum, default_value_t = TransportName::Auto, requires = "url")]
    transport: TransportName,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= 86_400.0 => Ok(time),
        _ => Err("more than nothing and at most a day".into()),
    }
}

pub(crate) fn run(mut args: CheckArgs) -> Result<Exit> {
    match args.url.take() {
        Some(url) => check_server(args, &url),
        None => check_agent(args),
    }
}

fn check_agent(args: CheckArgs) -> Result<Exit> {
    let agent = args.agent;
    let command = agent.given();
    let mut suite = Suite::new(move || agent.given().unwrap_or_else(|| AgentCommand::new("")))
        .timeout(args.timeout)
        .prompt(args.prompt);
    if args.protocol == 2 {
        suite = suite.protocol_v2();
    }
    suite = suite.only(&args.only)?;
    let mut output = CheckOutput::new(args.json, args.junit);
    if args.list {
        return output.list(suite.checks());
    }
    if command.is_none() {
        return Err(AgentArgs::missing());
    }
    let mut signals = Signals::listen()?;
    // Removed when the checks are over.
    let mut temporary = None;
    let folder = match args.cwd {
        Some(folder) => folder
            .canonicalize()
            .map_err(|error| Error::Usage(format!("--cwd {}: {error}", folder.display())))?,
        None => {
            let created = tempfile::Builder::new().prefix("duologue-check-").tempdir()?;
            let path = created.path().to_owned();
            signals.last_resort(move || drop(std::fs::remove_dir_all(path)));
            temporary.insert(created).path().to_owned()
        }
    };
    suite = suite.working_dir(folder);
    if let Some(method) = args.login {
        suite = suite.login(method);
    }
    if let Some(text) = args.permission_prompt {
        suite = suite.permission_prompt(text);
    }
    if let Some(text) = args.slow_prompt {
        suite = suite.slow_prompt(text);
    }
    if let Some(mode) = args.mode {
        suite = suite.mode(mode);
    }
    let runtime = runtime::current_thread()?;
    // Dropping the run ends the agents.
    let report = runtime.block_on(signals.interrupt(suite.run_with(|result| output.result(result))));
    // A file that is read without end is not waited for.
    runtime.shutdown_background();
    match report {
        Ok(report) => output.finish(&report?, "agent"),
        Err(signal) => Ok(Exit::Signal(signal)),
    }
}

fn check_server(args: CheckArgs, url: &str) -> Result<Exit> {
    let (_, options) = args.server.target(Some(url), None, args.transport)?;
    let mut suite = TransportSuite::new(url, options).timeout(args.timeout).prompt(args.prompt);
    // The token of this user may be that of another server.
    suite = suite.requires_token(args.server.has_token()).only(&args.only)?;
    let mut output = CheckOutput::new(args.json, args.junit);
    if args.list {
        return output.list(suite.checks());
    }
    if let Some(folder) = args.cwd {
        if !folder.is_absolute() {
            return Err(Error::Usage(format!("--cwd {}: it has to be absolute", folder.display())));
        }
        suite = suite.working_dir(folder);
    }
    if let Some(method) = args.login {
        suite = suite.login(method);
    }
    let mut signals = Signals::listen()?;
    let runtime = runtime::current_thread()?;
    let report = runtime.block_on(signals.interrupt(suite.run_with(|result| output.result(result))));
    match report {
        Ok(report) => output.finish(&report?, "server"),
        Err(signal) => Ok(Exit::Signal(signal)),
    }
}

/// The report on stdout and in a file.
struct CheckOutput {
    is_json: bool,
    junit: Option<PathBuf>,
    text: TextReport<AutoStream<std::io::Stdout>>,
}

impl CheckOutput {
    fn new(is_json: bool, junit: Option<PathBuf>) -> Self {
        CheckOutput { is_json, junit, text: TextReport::coloured(ui::stdout()) }
    }

    fn list(&mut self, checks: impl Iterator<Item = &'static Check>) -> Result<Exit> {
        for check in checks {
            if self.is_json { json_row(check)? } else { self.text.description(check)? }
        }
        Ok(Exit::Ok)
    }

    fn result(&mut self, result: &CheckResult) -> std::io::Result<()> {
        if self.is_json { json_row(result) } else { self.text.result(result) }
    }

    /// Writes the summary. `subject` names the side that was tested.
    fn finish(&mut self, report: &Report, subject: &str) -> Result<Exit> {
        if self.is_json {
            json_row(&BTreeMap::from([("summary", report.summary())]))?;
        } else {
            self.text.summary(report.summary())?;
        }
        if let Some(file) = &self.junit {
            std::fs::write(file, report.to_junit())?;
        }
        if let Some(reason) = report.untested() {
            ui::print_error(&format_args!(
                "the {subject} could not be tested: {reason} (--login METHOD, --prompt TEXT)"
            ));
        }
        Ok(match (report.summary().fail, report.passed()) {
            (1.., _) => Exit::Found,
            // The agent opened no session or answered no prompt.
            (0, false) if report.untested().is_some() => Exit::Found,
            // The agent never answered `initialize`.
            (0, false) => Exit::Agent,
            (0, true) => Exit::Ok,
        })
    }
}

fn json_row(row: &impl serde::Serialize) -> std::io::Result<()> {
    ui::json_line(&mut ui::stdout(), row)
}

impl From<CheckError> for Error {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::UnknownCheck(name) => Error::Usage(format!(
                "there is no check and no group named {name}; see `duologue check --list`"
            )),
            CheckError::Start(error) => error.into(),
            CheckError::Server(error) => Error::Start(server_error(&error)),
            CheckError::Io(error) => error.into(),
            error => Error::Usage(error.to_string()),
        }
    }
}

/// Returns the error of a server that cannot be checked.
fn server_error(error: &duologue_http::Error) -> String {
    match error {
        duologue_http::Error::Refused { status: 401 | 403, .. } => {
            format!("{error}; name the file with the token by --token-file")
        }
        error => error.to_string(),
    }
}
