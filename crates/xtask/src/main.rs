//! Chores of this repository: schema export, interop, and the page in a browser.

mod browser;
mod fuzz;
mod interop;
mod loom;
mod reliability;
mod schema;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("browser") => browser::run(),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("interop") => interop::run(&args[1..]),
        Some("interop-agent") => interop::agent::main().map_err(Into::into),
        Some("interop-client") => interop::client::drive(&args[1..]),
        Some("interop-exchange-agent") => interop::exchange::agent(),
        Some("interop-exchange-client") => interop::exchange::client(&args[1..]),
        Some("loom") => loom::run(&args[1..]),
        Some("raw-client") => reliability::raw_client(&args[1..]),
        Some("raw-agent") => reliability::raw_agent(&args[1..]),
        Some("reliability") => reliability::run(&args[1..]),
        Some("soak") => reliability::soak(&args[1..]),
        Some("soak-agent") => reliability::soak_agent(&args[1..]),
        Some("soak-client") => reliability::soak_client(&args[1..]),
        Some("schema") => schema::run(&args[1..]),
        _ => Err(
            "cargo xtask interop [--peers | --real | --recorded | --exchange] | reliability [--quick] [BAR..] \
             | soak --minutes M [--seed N] | schema [--check] \
             | fuzz [--seconds N | --runs N] [TARGET..] \
             | loom [loom | shuttle | miri] [--runs N] | browser"
                .into(),
        ),
    };
    outcome.map_or_else(fail, |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "this is a program")]
fn fail(error: Box<dyn std::error::Error>) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
