//! `duologue run`.

use crate::commands::{AgentSessionArgs, block_on};
use crate::error::Result;
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
/// asks permission for is put to you, or refused where nobody can be asked. A question shows the kind, the
/// title, the input, the files, the content and the changes of the tool call; if they do not fit the window, it
/// says how many lines are missing, and `v` pages through all of them.
///
/// Every file that the agent writes and every program that it starts through this command is a line on the
/// screen, refused ones included, and so is every answer to a question.
///
/// With --json nobody is asked: --yes or --allow allows what the agent asks for. Each line is an object with `sessionId` and one of: `update`, a session update as the protocol
/// has it; `outcome`, the answer to the prompt, with its `stopReason`; `error`, with a `message`, if the turn
/// failed, or the session did not come about (then `sessionId` may be null); `write`, with the `path` and the
/// `bytes` of a file; `terminal`, with the `command`, `args`, `env` and `cwd` of a program; `answer`, with the
/// `toolCallId`, `title`, `kind` and `command` of a tool call, the chosen `option`, and `by`: `rule` or `nobody`.
/// The last three have an `outcome`: `done`, `refused`, `failed` or `unfinished`
/// for a write and a terminal, `allowed`, `rejected`, `cancelled` or `refused` for an answer.
///
/// Ends with 0 when the agent ended its turn, 1 when it stopped for another reason (a limit, a refusal) or
/// answered with an error, 3 when it died, 5 when it did not advertise what an option needs, and 6 when you, a
/// rule or the lack of a user refused it something and nothing worse happened. With several prompts in a pipe
/// the worst of the turns counts, from a terminal none.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to ask; `-` reads it from stdin
    pub(crate) prompt: Option<String>,
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
    #[command(flatten)]
    pub(crate) session: AgentSessionArgs,
}

fn option(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("it takes NAME=VALUE".into()),
    }
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(run::run(args))
}
