//! How fast it is.
#![forbid(unsafe_code)]

pub mod agent;
pub mod client;
pub mod figures;
pub mod floor;
pub mod play;
pub mod runner;
pub mod workloads;

use std::fmt::Display;
use std::process::ExitCode;

/// The first argument with which our programs start the runtime that `#[tokio::main]` makes: a thread a core.
pub const MANY_THREADS: &str = "--many-threads";

/// Runs one of our programs to its end.
#[expect(clippy::print_stderr, reason = "this is what a program does")]
pub fn run<E: Display>(program: impl Future<Output = Result<(), E>>) -> ExitCode {
    let mut builder = if std::env::args().nth(1).is_some_and(|arg| arg == MANY_THREADS) {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let ended = match builder.enable_all().build() {
        Ok(runtime) => runtime.block_on(program).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
