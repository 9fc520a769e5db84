//! The command line: one module a subcommand.

use std::ffi::OsString;
use std::io::Write as _;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use duologue_client::Command as AgentCommand;

use crate::error::{Error, Result};
use crate::exit::{self, Exit};
use crate::ui;

mod check;
mod diff;
mod mock;
mod record;
mod replay;
pub(crate) mod run;
mod schema;
mod show;
mod validate;

/// Talk to Agent Client Protocol agents: run, record, show, replay, compare and check them.
#[derive(Parser)]
#[command(name = "duologue", version, after_long_help = exit::HELP, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Record(record::Args),
    Show(show::Args),
    Replay(replay::Args),
    Diff(diff::Args),
    Validate(validate::Args),
    Check(check::Args),
    Mock(mock::Args),
    Schema(schema::Args),
    /// Print completions for a shell
    Completions {
        /// Which shell
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
    /// The program as it was given, if one was.
    pub(crate) fn given(&self) -> Option<AgentCommand> {
        let (program, args) = self.agent.split_first()?;
        Some(AgentCommand::new(program).args(args))
    }

    /// The program, or a complaint.
    pub(crate) fn required(&self) -> Result<AgentCommand> {
        self.given().ok_or_else(|| Error::Usage("no agent given: its command follows `--`".into()))
    }

    /// The words of the command, for people and headers.
    pub(crate) fn words(&self) -> Vec<String> {
        self.agent.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// Does what the command line says.
pub(crate) fn run() -> Result<Exit> {
    let cli = Cli::parse();
    // `-- $AGENT` with nothing in it must not come to mean no agent at all.
    let mut after = std::env::args_os().skip_while(|word| word != "--");
    if after.next().is_some() && after.next().is_none() {
        return Err(Error::Usage("no agent follows `--`".into()));
    }
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Record(args) => record::run(args),
        Command::Show(args) => show::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Check(args) => check::run(args),
        Command::Mock(args) => mock::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Completions { shell } => {
            // The generator panics when it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "duologue", &mut script);
            let mut stdout = ui::stdout();
            stdout.write_all(&script)?;
            stdout.flush()?;
            Ok(Exit::Ok)
        }
    }
}
