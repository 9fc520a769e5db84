//! `duologue mock`.

use std::io::Write as _;
use std::time::Duration;

use crate::error::Result;
use crate::exit::Exit;
use crate::mock::{Mock, Scenario};
use crate::ui;

/// A deterministic agent that shows everything an agent can do
///
/// It is an agent on stdin and stdout: configure it in an editor, and prompt it with the name of a
/// scenario. The same prompts get the same words, ids included.
///
/// To other agents (`duologue query`, `duologue delegate`) it says back what it is asked, and does any task
/// in three steps. The first word may choose what becomes of it instead: of both `slow`, `hostile`, `crash`
/// or the code of an error such as `not_authorized`, of a task also `fail`, `partial`, `refuse`, `overloaded`,
/// `stubborn` and `colleague`, with which it turns to whoever gave it the task. It takes the work orders `specify`,
/// `fail` and `escalate`, and says back what it is told in dialogues.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do in every turn; else the first word of each prompt says it
    #[arg(hide_possible_values = true)]
    scenario: Option<Scenario>,
    /// Print the scenarios
    #[arg(long)]
    list: bool,
    /// How many milliseconds to wait between two words; 0 is as fast as it goes
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pace: u64,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    if args.list {
        write!(ui::stdout(), "{}", Scenario::list())?;
        return Ok(Exit::Ok);
    }
    let mock = Mock::new(args.scenario, Duration::from_millis(args.pace));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { mock.server()?.serve_stdio().await })?;
    Ok(Exit::Ok)
}
