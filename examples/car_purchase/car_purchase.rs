//! A car is bought. Three agents, each a process of its own, talk in signed dialogues over stdio:
//!
//! ```text
//! buyer <-> seller <-> car details -> cars.json
//! ```
//!
//! `car-purchase [FOLDER]` is the buyer. It starts `car-purchase seller`, which starts `car-purchase car-details`;
//! any other program that knows the tasks would do. Database and recordings are left in FOLDER, if there is one.
//!
//! The same agents can be those of a hub: `car-purchase attached ROLE KEYS` is one of them, for `duologue attach`, and
//! `car-purchase keys` prints keys for the three.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the buyer's stdout is the user's")]

mod account;
mod attached;
mod buyer;
mod car_details;
mod keys;
mod partner;
mod seller;
mod tasks;

use std::path::Path;
use std::process::ExitCode;

use duologue_transcript::printable;

/// Whatever goes wrong. The user reads it.
type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("seller") => seller::run().await,
        Some("car-details") => car_details::run().await,
        Some("attached") => attached::run(std::env::args().skip(2)).await,
        Some("keys") => keys::print(),
        Some(option) if option.starts_with('-') => Err("usage: car-purchase [FOLDER]".into()),
        Some(folder) => buyer::run(Path::new(folder)).await,
        None => run_without_traces().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("car-purchase: {}", printable(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

async fn run_without_traces() -> Result {
    let folder = tempfile::tempdir()?;
    buyer::run(folder.path()).await
}
