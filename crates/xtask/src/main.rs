//! Chores of this repository: schema export, interop, and the page in a browser.

mod browser;
mod fuzz;
mod interop;
mod loom;
mod reliability;
mod schema;
mod target;

use std::process::ExitCode;

const USAGE: &str = "cargo xtask schema [--check] | interop [--peers | --real | --recorded | --exchange] | browser \
    | fuzz [--seconds N | --runs N] [TARGET..] | loom [loom | shuttle | miri] [--runs N] \
    | reliability [--quick] [--ours] [--keep] [BAR..] | soak --minutes M [--seed N]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, args) = args.split_first().map_or(("", args.as_slice()), |(name, args)| (name, args));
    let outcome = match command {
        "browser" => browser::run(),
        "fuzz" => fuzz::run(args),
        "interop" => interop::run(args),
        "loom" => loom::run(args),
        "reliability" => reliability::run(args),
        "schema" => schema::run(args),
        "soak" => reliability::soak(args),
        part => {
            interop::part(part, args).or_else(|| reliability::part(part, args)).unwrap_or(Err(USAGE.into()))
        }
    };
    outcome.map_or_else(fail, |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "this is a program")]
fn fail(error: Box<dyn std::error::Error>) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
