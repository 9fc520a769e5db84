//! `cargo xtask reliability [--quick] [BAR..]`: how hard it is to break, in numbers.
//!
//! A bar is a number that has to be reached. Some are tests of the workspace, run at the scale the bar asks for; the
//! others are scenes, played with a program on our SDK and with the same program on the official Rust SDK, one after
//! the other on the same machine. A full run replaces its rows of `tests/RELIABILITY.md`.

mod agent;
mod bars;
mod client;
mod measure;
mod soak;
mod stage;
mod table;

use std::time::Instant;

pub(crate) use agent::doomed as raw_client;
pub(crate) use client::raw_agent::main as raw_agent;
pub(crate) use soak::agent::main as soak_agent;
pub(crate) use soak::client::main as soak_client;
pub(crate) use soak::run as soak;

use super::interop::Result;
use bars::{BARS, Bar, How};
use stage::{Measured, Stage, Subject};
use table::Row;

/// Runs the bars `args` name, by their number or by number and part, or all of them; with `--quick`, the scenes
/// alone, small, and without touching the table.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let wanted: Vec<&String> = args.iter().filter(|arg| *arg != "--quick").collect();
    let named = |bar: &Bar| wanted.is_empty() || wanted.iter().any(|name| bar.is_called(name));
    let bars: Vec<&Bar> = BARS.iter().filter(|bar| named(bar) && (!quick || bar.is_scene())).collect();
    if bars.is_empty() {
        let all: Vec<_> = BARS.iter().map(Bar::name).collect();
        return Err(format!("no such bar; there are {}", all.join(", ")).into());
    }
    let stage = Stage::prepare(!quick, bars.iter().any(|bar| bar.is_scene()))?;
    let mut short = 0;
    for bar in bars {
        let begun = Instant::now();
        let mut row = measure(bar, &stage)?;
        if quick && !row.met {
            // A short run is for finding what is broken, and the machine may have been busy with something else.
            row = measure(bar, &stage)?;
        }
        short += usize::from(!row.met);
        println!("{row}  ({:.1} s)", begun.elapsed().as_secs_f64());
        if !quick {
            table::replace(&row)?;
        }
    }
    if short > 0 { Err(format!("{short} bars were not reached").into()) } else { Ok(()) }
}

fn measure(bar: &Bar, stage: &Stage) -> Result<Row> {
    let (ours, theirs) = match bar.how {
        How::Test(test) => (test.run()?, None),
        How::Chore(args) => (bars::chore(args)?, None),
        How::Scene(play) => {
            // A scene that cannot be played to its end is a result, not the end of the run.
            let [ours, theirs] = [Subject::Duologue, Subject::Official].map(|subject| {
                play(stage, subject).unwrap_or_else(|error| Measured::short(error.to_string()))
            });
            (ours, Some(theirs))
        }
    };
    Ok(Row::new(bar, ours, theirs))
}
