//! `cargo xtask ci fast | full [STEP..]`: the checks of a change, each declared once.
//!
//! `fast` is for every edit. `full` is what has to hold before a change is merged; it leaves out the steps of `fast`
//! that one of its own steps repeats. With the names of steps it runs those alone.

mod examples;
mod repeats;
mod skips;
mod steps;
mod tools;

use std::time::{Duration, Instant};

use crate::interop::Result;
use steps::{STEPS, Step};
pub(crate) use steps::{passes, root};

const USAGE: &str = "cargo xtask ci fast | full [STEP..]";

/// A set of steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Fast,
    Full,
}

/// Runs the steps of a tier up to the first one that fails, and prints the time of each and the skipped checks.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (tier, names) = match args.split_first() {
        Some((tier, names)) if tier == "fast" => (Tier::Fast, names),
        Some((tier, names)) if tier == "full" => (Tier::Full, names),
        _ => return Err(USAGE.into()),
    };
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.tiers.contains(&tier)).collect();
    if let Some(name) = names.iter().find(|name| !steps.iter().any(|step| step.name == **name)) {
        let all: Vec<&str> = steps.iter().map(|step| step.name).collect();
        return Err(format!("no step `{name}`; there are {}", all.join(", ")).into());
    }
    let chosen =
        steps.into_iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name));
    skips::collected(args, || run_steps(chosen))
}

fn run_steps(steps: impl Iterator<Item = &'static Step>) -> Result<()> {
    let begun = Instant::now();
    let mut times = Vec::new();
    for step in steps {
        print(&format!("\n== {}", step.name));
        let start = Instant::now();
        step.run().map_err(|error| format!("step `{}` failed: {error}", step.name))?;
        let took = start.elapsed();
        print(&line(step.name, took));
        times.push((step.name, took));
    }
    print("\n== times");
    for (name, took) in &times {
        print(&line(name, *took));
    }
    print(&line("total", begun.elapsed()));
    Ok(())
}

/// Returns the row of a step in the table of times.
fn line(name: &str, took: Duration) -> String {
    format!("{name:<14}{:>8.1} s", took.as_secs_f64())
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_steps_are_unique_in_their_tier() {
        for tier in [Tier::Fast, Tier::Full] {
            let mut names: Vec<&str> =
                STEPS.iter().filter(|step| step.tiers.contains(&tier)).map(|step| step.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn a_wrong_step_is_named() {
        let error = run(&["fast".to_owned(), "nope".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no step `nope`; there are format, "), "{error}");
        assert_eq!(run(&[]).unwrap_err().to_string(), USAGE);
    }
}
