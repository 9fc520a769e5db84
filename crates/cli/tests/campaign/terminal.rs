//! `duologue run` in a real pseudo terminal: keys at any moment, and payloads in every place.
#![cfg(target_os = "linux")]

#[path = "../it/terminal/emulator.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod emulator;
mod hostile;
mod interruptions;
mod payloads;
mod typing;

use emulator::Terminal;

/// Starts the command with the mock agent.
fn start(rows: u16, columns: u16, args: &[&str], pace: &str) -> Terminal {
    let mock = ["--", env!("CARGO_BIN_EXE_duologue"), "mock", "--pace", pace];
    Terminal::start(rows, columns, &[&["run"], args, &mock].concat(), &[])
}
