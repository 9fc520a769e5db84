//! `duologue mock`.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use duologue_testkit::{FaultError, Faults, InvalidFault, MockAgent, Scenario};

use crate::error::{Error, Result};
use crate::exit::{self, Exit};
use crate::{runtime, ui};

/// Run a deterministic agent that shows every feature of the protocol
///
/// It is an agent on stdin and stdout. Configure it in an editor, and prompt it with the name of a scenario. The
/// same prompts get the same responses, ids included.
///
/// To a query (`duologue peer query`) it repeats the question. It completes any task (`duologue peer delegate`) in three
/// steps. The first word of both selects another response: `slow`, `hostile`, `crash` or the code of an error such
/// as `not_authorized`, and for a task also `fail`, `partial`, `refuse`, `overloaded`, `stubborn`, `stream`
/// (output in chunks) and `colleague`, with which it sends envelopes to the delegating agent. It supports the work
/// orders `specify`, `fail` and `escalate`, and repeats the messages of dialogues.
///
/// With `--faults` it misbehaves, for the test of a client. `--faults noise,fragment=7` writes log lines between
/// its messages and splits all output into fragments. `--faults crash=SEGV@12` dies after its twelfth message.
/// `--faults list` describes all faults and their values, such as FRAME. The faults are logged to stderr. An agent
/// that does not end when it should is ended ten minutes later.
#[derive(clap::Args)]
pub(crate) struct MockArgs {
    /// The scenario of every turn; without it the first word of each prompt selects one
    #[arg(hide_possible_values = true, value_parser = scenarios())]
    scenario: Option<ScenarioArg>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Wait so many milliseconds between two words
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pace: u64,
    /// Apply these faults, separated by commas; `list` describes them. May be given more than once
    #[arg(long, value_name = "SPEC")]
    faults: Vec<String>,
    /// Seed the random choices of --faults; the seed of a run is on its stderr
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// This process was started by the fault `wrapper`
    #[arg(long, hide = true)]
    wrapped: bool,
}

/// The argument of `duologue mock`.
#[derive(Clone, Copy, PartialEq)]
enum ScenarioArg {
    Play(Scenario),
    /// The word `help`, which lists the scenarios as it does in a prompt.
    Help,
}

pub(crate) fn run(args: MockArgs) -> Result<Exit> {
    if args.list || args.scenario == Some(ScenarioArg::Help) {
        write!(ui::stdout(), "{}", Scenario::list())?;
        return Ok(Exit::Ok);
    }
    if args.faults.iter().any(|spec| spec == "list") {
        write!(ui::stdout(), "{}", duologue_testkit::faults_help())?;
        return Ok(Exit::Ok);
    }
    // Without a fault there is nothing to parse.
    let faults = match args.faults.as_slice() {
        [] => Faults::default(),
        specs => specs.join(",").parse::<Faults>().map_err(unknown_fault)?,
    };
    if faults.has_wrapper() && !args.wrapped {
        return wrap();
    }
    let mut mock = MockAgent::new().exit_at_crash().pace(Duration::from_millis(args.pace));
    if let Some(ScenarioArg::Play(scenario)) = args.scenario {
        mock = mock.scenario(scenario);
    }
    let runtime = runtime::current_thread()?;
    if args.faults.is_empty() {
        runtime.block_on(async { mock.server()?.serve_stdio().await })?;
    } else {
        let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(()));
        let served = runtime.block_on(duologue_testkit::serve_stdio(mock, faults.seed(seed)));
        // Pending reads and writes are not waited for.
        runtime.shutdown_background();
        served.map_err(|error| match error {
            FaultError::Agent(error) => Error::Serve(error),
            FaultError::Io(error) => Error::Io(error),
            error => Error::Serve(duologue_agent::Error::other(error)),
        })?;
    }
    Ok(Exit::Ok)
}

/// Returns the error of a wrong fault, with the option that describes all faults.
fn unknown_fault(error: InvalidFault) -> Error {
    Error::Usage(format!("{error}; see `duologue mock --faults list`"))
}

/// Runs this program again as a child with the same stdin and stdout, and ends as the child does.
fn wrap() -> Result<Exit> {
    let program = std::env::current_exe()?;
    let status =
        std::process::Command::new(program).args(std::env::args_os().skip(1)).arg("--wrapped").status()?;
    let code = exit::agent_code(&duologue_transcript::ProcessExit::from(status));
    Ok(Exit::AgentCode(code.unwrap_or(1)))
}

fn scenarios() -> impl clap::builder::TypedValueParser<Value = ScenarioArg> {
    let names =
        Scenario::ALL.iter().map(|scenario| PossibleValue::new(scenario.name()).help(scenario.about()));
    // The parser accepts known names only, and of these `help` alone is no scenario.
    PossibleValuesParser::new(names.chain([PossibleValue::new("help").hide(true)]))
        .map(|name| name.parse().map_or(ScenarioArg::Help, ScenarioArg::Play))
}
