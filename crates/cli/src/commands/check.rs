//! `duologue check`.

use std::path::PathBuf;
use std::time::Duration;

use crate::check::{Bench, Chosen, Settings};
use crate::commands::AgentArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::runtime;
use crate::signals::Signals;

/// Check whether an agent keeps to the protocol
///
/// The agent is started several times and gets a few short prompts. It may read and write files in the
/// sessions' folder, and what it asks permission for is allowed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these checks or groups
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// Say what is checked, and where the specification asks for it
    #[arg(long)]
    list: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// How long to wait for any one answer, in seconds; the first may take three times as long
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    timeout: Duration,
    /// Where the sessions work [default: a new temporary folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// What to prompt with; one that makes the agent talk for a while and ask for permission shows most
    #[arg(long, value_name = "TEXT", default_value = "Say hello.")]
    prompt: String,
    /// Log in by this method when the agent asks for it
    #[arg(long, value_name = "METHOD")]
    auth: Option<String>,
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

pub(crate) fn run(args: Args) -> Result<Exit> {
    let chosen = Chosen::new(&args.only)?;
    if args.list {
        chosen.list(args.json)?;
        return Ok(Exit::Ok);
    }
    args.agent.required()?;
    let mut signals = Signals::listen()?;
    // Removed when the checks are over.
    let mut folder = None;
    let cwd = match &args.cwd {
        Some(dir) => dir.clone(),
        None => {
            folder.insert(tempfile::Builder::new().prefix("duologue-check-").tempdir()?).path().to_owned()
        }
    };
    let cwd =
        cwd.canonicalize().map_err(|error| Error::Usage(format!("--cwd {}: {error}", cwd.display())))?;
    let agent = args.agent;
    let bench = Bench::new(Settings {
        command: Box::new(move || agent.required()),
        cwd,
        timeout: args.timeout,
        prompt: args.prompt,
        auth: args.auth,
    });
    if let Some(folder) = &folder {
        let folder = folder.path().to_owned();
        signals.last_resort(move || drop(std::fs::remove_dir_all(folder)));
    }
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(async {
        tokio::select! {
            exit = chosen.run(bench, args.json) => exit,
            // Dropping the bench ends the agents.
            signal = signals.next() => Ok(Exit::Signal(signal)),
        }
    });
    // A file that takes for ever is not waited for.
    runtime.shutdown_background();
    exit
}
