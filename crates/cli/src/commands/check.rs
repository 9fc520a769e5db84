//! `duologue check`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use duologue_client::Command as AgentCommand;
use duologue_conformance::{Error as CheckError, Suite, TextReport};

use crate::commands::AgentArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::signals::Signals;
use crate::{runtime, ui};

/// Check whether an agent keeps to the protocol
///
/// The agent is started several times and gets a few short prompts. It may read and write files in the
/// sessions' folder, and its permission requests are allowed.
#[derive(clap::Args)]
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
    /// The folder of the sessions [default: a new temporary folder]
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

pub(crate) fn run(args: CheckArgs) -> Result<Exit> {
    let agent = args.agent;
    let command = agent.given();
    let mut suite = Suite::new(move || agent.given().unwrap_or_else(|| AgentCommand::new("")))
        .timeout(args.timeout)
        .prompt(args.prompt);
    if args.protocol == 2 {
        suite = suite.protocol_v2();
    }
    suite = suite.only(&args.only)?;
    let mut text = TextReport::coloured(ui::stdout());
    if args.list {
        for check in suite.checks() {
            if args.json { json_row(check)? } else { text.description(check)? }
        }
        return Ok(Exit::Ok);
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
    let report = runtime.block_on(async {
        let run = suite.run_with(|result| if args.json { json_row(result) } else { text.result(result) });
        tokio::select! {
            report = run => report.map(Ok),
            // Dropping the run ends the agents.
            signal = signals.next() => Ok(Err(signal)),
        }
    });
    // A file that is read without end is not waited for.
    runtime.shutdown_background();
    let report = match report? {
        Ok(report) => report,
        Err(signal) => return Ok(Exit::Signal(signal)),
    };
    if args.json {
        json_row(&BTreeMap::from([("summary", report.summary())]))?;
    } else {
        text.summary(report.summary())?;
    }
    if let Some(file) = args.junit {
        std::fs::write(file, report.to_junit())?;
    }
    if let Some(reason) = report.untested() {
        ui::print_error(&format_args!(
            "the agent could not be tested: {reason} (--login METHOD, --prompt TEXT)"
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
            CheckError::Io(error) => error.into(),
            error => Error::Usage(error.to_string()),
        }
    }
}
