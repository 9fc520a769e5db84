//! `duologue run`.

use std::path::PathBuf;
use std::time::Duration;

use crate::commands::AgentArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::run;

/// The kinds of tools there are.
const KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// Talk to an agent, once or interactively
///
/// With PROMPT it runs one turn and ends; without, it prompts until /exit or Ctrl-D. Without an agent
/// it talks to the mock.
///
/// On a terminal everything is shown as it happens, and a draft that the agent takes back disappears. In a
/// pipe there are only the agent's words, each message once it is final. Ctrl-C cancels the turn; a second
/// one leaves.
///
/// The agent may read and write files in the folder, and run programs, which nothing confines. What it
/// asks permission for is put to you, or refused where nobody can be asked.
///
/// With --json each line is an object with `sessionId` and one of: `update`, a session update as the protocol
/// has it; `outcome`, the answer to the prompt, with its `stopReason`; `error`, with a `message`, if the turn
/// failed, or the session did not come about (then `sessionId` may be null).
///
/// Ends with 0 when the agent ended its turn, 1 when it stopped for another reason (a limit, a refusal). With
/// several prompts in a pipe the worst of the turns counts, from a terminal none.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to ask; `-` reads it from stdin
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// The folder of the session, if not this one
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print every update as JSON, one a line, and how each turn ended
    #[arg(long)]
    pub(crate) json: bool,
    /// Allow whatever the agent asks permission for
    #[arg(long)]
    pub(crate) yes: bool,
    /// Allow tools of these kinds without asking
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = KINDS, conflicts_with = "yes")]
    pub(crate) allow: Vec<String>,
    /// Write no files and run no programs for the agent
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Read no files for the agent either
    #[arg(long)]
    pub(crate) no_tools: bool,
    /// Log in first, by one of the agent's methods
    #[arg(long, value_name = "METHOD")]
    pub(crate) login: Option<String>,
    /// List the agent's sessions
    #[arg(long, conflicts_with_all = ["prompt", "load", "resume", "json"])]
    pub(crate) list: bool,
    /// Go on with a session and show what was said in it
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    pub(crate) load: Option<String>,
    /// Go on with a session
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Switch to a mode first
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// Set an option of the session first
    #[arg(long, value_name = "NAME=VALUE", value_parser = option)]
    pub(crate) option: Vec<(String, String)>,
    /// How many seconds the agent may take to start, and again to begin a session
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: u32,
    /// Record the conversation into a new file
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Replace the file of --record if it exists
    #[arg(long, requires = "record")]
    pub(crate) force: bool,
    /// Show what the agent writes to stderr, and on stdout beside the protocol
    #[arg(short = 'v', long)]
    pub(crate) stderr: bool,
}

fn option(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("it takes NAME=VALUE".into()),
    }
}

impl Args {
    /// The agent's program, for the user.
    pub(crate) fn program(&self) -> String {
        self.agent.words().into_iter().next().unwrap_or_else(|| "the mock".into())
    }

    /// How long the agent may take for each step of its start.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// The folder of the session, absolute.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let folder = std::path::absolute(self.cwd.as_deref().unwrap_or(".".as_ref()))?;
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(Error::Usage(format!("{} is no folder", folder.display())))
    }
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let exit = runtime.block_on(run::run(args));
    // A file that is still being read for an agent that is gone is nobody's concern.
    runtime.shutdown_timeout(Duration::from_millis(100));
    exit
}
