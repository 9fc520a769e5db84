//! The command line: one module for each subcommand.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use duologue_client::Command as AgentCommand;
use duologue_transcript::{IgnoredPaths, Transcript};

use crate::error::{Error, Result};
use crate::exit::{self, Exit};
use crate::runtime;
use crate::ui::{self, DIM};

#[cfg(feature = "serve")]
mod agents;
#[cfg(feature = "serve")]
mod attach;
mod cancel;
mod check;
mod completions;
mod connect;
#[cfg(feature = "serve")]
mod dead_letters;
mod delegate;
mod dialogue;
mod diff;
mod discover;
#[cfg(all(unix, feature = "serve"))]
mod guard;
#[cfg(feature = "serve")]
mod inbox;
mod mock;
mod notify;
mod peer;
mod ping;
mod proxy;
mod query;
mod record;
mod replay;
pub(crate) mod run;
mod schema;
#[cfg(feature = "serve")]
mod serve;
mod show;
mod status;
mod subscribe;
#[cfg(feature = "serve")]
mod tasks;
mod validate;
mod work;

/// Talk to Agent Client Protocol agents: run, record, show, replay, compare and check them.
#[derive(Parser)]
#[command(name = "duologue", version, after_long_help = exit::HELP, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(after_help = run::EXAMPLES)]
    Run(run::RunArgs),
    Record(record::RecordArgs),
    Proxy(proxy::ProxyArgs),
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    #[cfg(feature = "serve")]
    Attach(attach::AttachArgs),
    Connect(connect::ConnectArgs),
    #[cfg(feature = "serve")]
    Agents(agents::AgentsArgs),
    #[cfg(feature = "serve")]
    Tasks(tasks::TasksArgs),
    #[cfg(feature = "serve")]
    #[command(visible_alias = "messages")]
    Inbox(inbox::InboxArgs),
    #[cfg(feature = "serve")]
    DeadLetters(dead_letters::DeadLettersArgs),
    #[command(after_help = "\
Examples:
  duologue show hello.jsonl
  duologue show --html hello.jsonl > hello.html")]
    Show(show::ShowArgs),
    Replay(replay::ReplayArgs),
    #[command(after_help = "\
Examples:
  duologue diff before.jsonl after.jsonl
  duologue diff --ignore update.used before.jsonl after.jsonl")]
    Diff(diff::DiffArgs),
    #[command(after_help = "Examples:\n  duologue validate hello.jsonl")]
    Validate(validate::ValidateArgs),
    #[command(after_help = "\
Examples:
  duologue check -- my-agent
  duologue check --prompt \"Read README.md\" --json -- my-agent
  duologue check --protocol 2 --slow-prompt \"Write a long story\" -- my-agent")]
    Check(check::CheckArgs),
    #[command(after_help = "\
Examples:
  duologue peer ping -- my-agent
  duologue peer query \"Who is on call?\" -- my-agent
  duologue peer work order.json --apply . -- my-agent")]
    Peer(peer::PeerArgs),
    /// End the agents of a server that was killed. `serve` starts it
    #[cfg(all(unix, feature = "serve"))]
    #[command(hide = true)]
    Guard,
    #[command(hide = true)]
    Ping(ping::PingArgs),
    #[command(hide = true)]
    Query(query::QueryArgs),
    #[command(hide = true)]
    Delegate(delegate::DelegateArgs),
    #[command(hide = true)]
    Discover(discover::DiscoverArgs),
    #[command(after_help = "\
Examples:
  duologue run tools -- duologue mock
  duologue run hello -- duologue mock --faults noise,fragment=7 --seed 1")]
    Mock(mock::MockArgs),
    Schema(schema::SchemaArgs),
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  duologue completions fish > ~/.config/fish/completions/duologue.fish"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// An agent's program; it always follows `--`.
#[derive(Args)]
pub(crate) struct AgentArgs {
    /// The agent's program and its arguments
    #[arg(last = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

impl AgentArgs {
    /// Returns the program, if one was given.
    pub(crate) fn given(&self) -> Option<AgentCommand> {
        let (program, args) = self.agent.split_first()?;
        Some(AgentCommand::new(program).args(args))
    }

    /// Returns true if a program was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.agent.is_empty()
    }

    /// Returns the program, or the error that there is none.
    pub(crate) fn required(&self) -> Result<AgentCommand> {
        self.given().ok_or_else(AgentArgs::missing)
    }

    /// Returns the error that no agent was given.
    pub(crate) fn missing() -> Error {
        Error::Usage("no agent given: its command follows `--`".into())
    }

    /// Returns the words of the command, for messages and headers.
    pub(crate) fn words(&self) -> Vec<String> {
        self.agent.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// The parts of messages that a comparison ignores.
#[derive(Args)]
pub(crate) struct IgnoreArgs {
    /// Do not compare this part of params, or of a `result`: `update.used`, `result.usage`,
    /// `mcpServers.*.env`, or a JSONPath like `$..timeout`
    #[arg(long, value_name = "PATH")]
    ignore: Vec<String>,
}

impl IgnoreArgs {
    /// Returns the paths.
    pub(crate) fn paths(&self) -> Result<IgnoredPaths> {
        let mut paths = IgnoredPaths::default();
        for path in &self.ignore {
            paths.add(path).map_err(|error| Error::Usage(error.to_string()))?;
        }
        Ok(paths)
    }

    /// Warns of paths that match nothing in these recordings.
    pub(crate) fn warn_of_unmatched(paths: &IgnoredPaths, transcripts: &[&Transcript]) -> Result<()> {
        for path in paths.unmatched(transcripts) {
            writeln!(ui::stderr(), "{DIM}nothing in the recording is at {}{DIM:#}", ui::printable(path))?;
        }
        Ok(())
    }
}

/// The arguments of a conversation: the agent, its folder, its start and its recording.
#[derive(Args)]
pub(crate) struct AgentSessionArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// The folder of the session, if not this one
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Log in first, by one of the agent's methods. A login in the terminal runs a program, after a question
    #[arg(long, alias = "auth", value_name = "METHOD")]
    pub(crate) login: Option<String>,
    /// Wait so many seconds for the agent to start, and again for each of its answers before the first turn
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Record the conversation into a new file
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Replace the file of --record if it exists
    #[arg(long, requires = "record")]
    pub(crate) force: bool,
    /// Show the agent's stderr, the lines of its stdout that are no messages, and the detail of its errors
    #[arg(short = 'v', long)]
    pub(crate) stderr: bool,
}

/// The arguments of a command that sends one envelope.
#[derive(Args)]
pub(crate) struct EnvelopeArgs {
    /// Print each message of the agent as JSON, one a line: its kind and its payload
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) session: AgentSessionArgs,
}

impl AgentSessionArgs {
    /// Returns the name of the agent's program, for messages.
    pub(crate) fn program(&self) -> String {
        self.agent.words().into_iter().next().unwrap_or_else(|| "the mock".into())
    }

    /// Returns the time that the agent may take for each answer before the first turn.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Returns the absolute folder of the session.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let folder = std::path::absolute(self.cwd.as_deref().unwrap_or(".".as_ref()))?;
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(Error::Usage(format!("{} is no folder", folder.display())))
    }
}

/// Runs a conversation with an agent to its end.
fn block_on(conversation: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let runtime = runtime::multi_thread(2)?;
    let exit = runtime.block_on(conversation);
    // Pending reads of files for the agent are not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    exit
}

/// Returns true for a word that may be the agent's program, in front of which the `--` is missing.
fn misplaces_agent(error: &clap::Error) -> bool {
    let takes_agent = matches!(
        error.get(ContextKind::Usage),
        Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("-- <AGENT>")
    );
    let is_word = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if !word.starts_with('-')
    );
    takes_agent && is_word
}

/// Parses the command line and runs the subcommand.
pub(crate) fn run() -> Result<Exit> {
    let cli = Cli::try_parse().unwrap_or_else(|mut error| {
        // A misspelt option behind `--` would be the agent's program.
        if error.kind() == ErrorKind::UnknownArgument {
            error.remove(ContextKind::Suggested);
            if misplaces_agent(&error) {
                let tip = vec!["the agent's command follows `--`".into()];
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
            }
        }
        error.exit()
    });
    // `-- $AGENT` with an empty variable must be an error, and not a command without an agent.
    let mut after = std::env::args_os().skip_while(|word| word != "--");
    if after.next().is_some() && after.next().is_none() {
        return Err(Error::Usage("no agent follows `--`".into()));
    }
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Record(args) => record::run(args),
        Command::Proxy(args) => proxy::run(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args),
        #[cfg(feature = "serve")]
        Command::Attach(args) => attach::run(args),
        #[cfg(all(unix, feature = "serve"))]
        Command::Guard => guard::run(),
        Command::Connect(args) => connect::run(args),
        #[cfg(feature = "serve")]
        Command::Agents(args) => agents::run(args),
        #[cfg(feature = "serve")]
        Command::Tasks(args) => tasks::run(args),
        #[cfg(feature = "serve")]
        Command::Inbox(args) => inbox::run(args),
        #[cfg(feature = "serve")]
        Command::DeadLetters(args) => dead_letters::run(args),
        Command::Show(args) => show::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Check(args) => check::run(args),
        Command::Peer(args) => peer::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Query(args) => query::run(args),
        Command::Delegate(args) => delegate::run(args),
        Command::Discover(args) => discover::run(args),
        Command::Mock(args) => mock::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Completions { shell } => {
            // The generator panics if it cannot write, so it writes to memory.
            let script = completions::script(shell, &mut Cli::command());
            let mut stdout = ui::stdout();
            stdout.write_all(&script)?;
            stdout.flush()?;
            Ok(Exit::Ok)
        }
    }
}
