//! Commands of this repository: checks, generated files, and long campaigns.

mod bench;
mod browser;
mod campaign;
mod commands;
mod fuzz;
mod instructions;
mod interop;
mod loom;
mod mutants;
mod prose;
mod reliability;
mod rest;
mod schema;
mod target;
mod test;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, args) = args.split_first().map_or(("", args.as_slice()), |(name, args)| (name, args));
    commands::run(name, args).map_or_else(fail, |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "this is a program")]
fn fail(error: Box<dyn std::error::Error>) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
