//! `duologue mock`.

use std::io::Write as _;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mock::faults::{self, Faults};
use crate::mock::{Mock, Scenario};
use crate::{runtime, ui};

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
///
/// With `--faults` it misbehaves, so that a client can be tested: `--faults noise,fragment=7` writes log lines
/// between its messages and all of it in pieces, `--faults crash=SEGV@12` dies after its twelfth message.
/// `--faults list` explains all there are. What it did is on stderr. An agent that does not leave when it should is
/// gone ten minutes later.
///
/// FRAME in the list counts the messages it writes: 1 is its answer to `initialize`, 2 that to `session/new`, 3 the
/// commands of the session, 4 the first of a turn; 0 is before it reads or writes anything. `hang=0` never answers,
/// `exit=3@5` ends with code 3 in a turn, `stderr=1MiB@2` fills stderr before one.
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
    /// What goes wrong: faults with a comma between them; `list` explains them. May be given more than once
    #[arg(long, value_name = "SPEC")]
    faults: Vec<String>,
    /// Makes the random choices of --faults the same every time; the seed of a run is on its stderr
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// This process was started by the fault `wrapper`
    #[arg(long, hide = true)]
    wrapped: bool,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    if args.list {
        write!(ui::stdout(), "{}", Scenario::list())?;
        return Ok(Exit::Ok);
    }
    if args.faults.iter().any(|spec| spec == "list") {
        write!(ui::stdout(), "{}", faults::help())?;
        return Ok(Exit::Ok);
    }
    let faults = Faults::read(&args.faults).map_err(Error::Usage)?;
    if !args.wrapped
        && let Some(code) = faults::wrap(&faults)?
    {
        return Ok(Exit::AsTheAgent(code));
    }
    let mock = Mock::new(args.scenario, Duration::from_millis(args.pace));
    let runtime = runtime::current_thread()?;
    if args.faults.is_empty() {
        runtime.block_on(async { mock.server()?.serve_stdio().await })?;
    } else {
        let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
        let served = runtime.block_on(faults::serve(mock, faults, seed));
        // What is still being read or written is nobody's concern.
        runtime.shutdown_background();
        served?;
    }
    Ok(Exit::Ok)
}
