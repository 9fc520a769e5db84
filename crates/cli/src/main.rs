//! The `duologue` command.
#![forbid(unsafe_code)]

mod commands;
mod error;
mod exit;
mod files;
#[cfg(feature = "serve")]
mod hub_request;
mod recording;
mod relay;
mod remote_sessions;
mod run;
mod runtime;
mod server_args;
#[cfg(feature = "serve")]
mod server_log;
mod session_folder;
mod show;
mod signals;
mod source;
mod state_folder;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run() {
        Ok(exit) => exit.into(),
        Err(error) if error.is_closed_output() => exit::Exit::ClosedOutput.into(),
        Err(error) => {
            ui::print_error(&error);
            error.exit().into()
        }
    }
}
