//! `duologue run`.

use crate::commands::{AgentSessionArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::run;

/// The names of the kinds of tools.
const KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// Prompt an agent, once or interactively
///
/// With PROMPT it runs one turn; without, it reads prompts until /exit or Ctrl-D. Without an agent
/// it starts the mock agent.
///
/// On a terminal everything is shown as it happens, and a draft that the agent clears disappears. In a
/// pipe only the agent's messages are printed, each when it is final. Esc or Ctrl-C cancels the turn; a second
/// Ctrl-C exits.
///
/// At the prompt, Alt-Enter or a backslash at the end begins a new line, and a paste keeps its lines. Tab
/// completes the agent's commands, and `:help` lists those of this program. The arrows go through the prompts
/// of this run; no history is written to a file.
///
/// The agent may read and write files in the folder, and run programs, which nothing confines. Its permission
/// requests are put to you, or refused if there is no terminal. A request shows the kind, the
/// title, the input, the files, the content and the changes of the tool call. If they do not fit the window, it
/// shows the number of missing lines, and `v` pages through all of them.
///
/// On a terminal the agent's text has a margin: only rows of this program, such as a permission request, and those that you
/// typed begin in the first column.
///
/// Every file that the agent writes and every program that it starts through this command is a line on the
/// screen, refused ones included, and so is every answer to a permission request.
///
/// With --json there are no questions: --yes or --allow answers permission requests. Each line is an object with
/// `sessionId` and one of: `update`, a session update as the protocol has it; `outcome`, the answer to the prompt, with its `stopReason`; `error`, with a `message`, if the turn
/// failed, or the session did not come about (then `sessionId` may be null); `write`, with the `path` and the
/// `bytes` of a file; `terminal`, with the `command`, `args`, `env` and `cwd` of a program; `answer`, with the
/// `toolCallId`, `title`, `kind` and `command` of a tool call, the chosen `option`, and `by`: `rule` or `nobody`.
/// Those three have an `outcome`: `done`, `refused`, `failed` or `unfinished`
/// for a write and a terminal, `allowed`, `rejected`, `cancelled` or `refused` for an answer. With --settings
/// the line is `settings`, with the `modes` and `configOptions` of the session as the protocol has them.
///
/// --timeout limits the wait for each answer before the first turn: the start, the session, the next update of one that
/// is loaded, the next entry of --list, a mode and an option. A login has no limit, since you take part in it, and
/// neither has a turn.
///
/// Exits with 0 if the agent ended its turn, 1 if it stopped for another reason (a limit, a refusal) or
/// answered with an error, 3 if it died, 5 if it did not advertise a capability that an option needs, and 6 if you, a
/// rule or the lack of a terminal refused a request and nothing worse happened. With several prompts in a pipe
/// the worst of the turns counts, from a terminal none.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The prompt; `-` reads it from stdin
    pub(crate) prompt: Option<String>,
    /// Print every update and the outcome of each turn as JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Grant every permission request
    #[arg(long)]
    pub(crate) yes: bool,
    /// Grant permission requests for tools of these kinds
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
    /// List the session's modes and options: their ids, names and values, with a star at the current one
    #[arg(long, conflicts_with_all = ["prompt", "list"])]
    pub(crate) settings: bool,
    /// Load a session, and show its conversation on a terminal or with --json
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    pub(crate) load: Option<String>,
    /// Resume a session without its conversation
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Switch to a mode first
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// Continue a session whose conversation the agent has lost without the conversation, after the error `context_lost` of
    /// `duologue serve`
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Offer this version of the protocol; the agent may choose an older one. Version 2 is a draft
    #[arg(long, value_name = "VERSION", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=2))]
    pub(crate) protocol: u16,
    /// Show the states of the session, which version 2 has
    #[arg(long)]
    pub(crate) verbose: bool,
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

/// The examples in `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  duologue run hello                       one turn with the built-in agent
  duologue run -- my-agent --acp           talk to an agent
  duologue run --json --allow read \"Summarise README.md\" -- my-agent
  duologue run --settings -- my-agent      list its modes and options
  duologue run --mode plan --option model=large hello -- my-agent
  duologue run --protocol 2 hello          the draft of the next version";

pub(crate) fn run(args: RunArgs) -> Result<Exit> {
    if let Some(program) = args.prompt.as_deref().filter(|_| !args.session.agent.is_given()) {
        let is_path = program.contains(std::path::MAIN_SEPARATOR) && !program.contains(char::is_whitespace);
        if is_path && std::path::Path::new(program).is_file() {
            let text = format!(
                "{program} is a file and would be the prompt; start an agent with `duologue run -- {program}`"
            );
            return Err(Error::Usage(text));
        }
    }
    block_on(run::run(args))
}
