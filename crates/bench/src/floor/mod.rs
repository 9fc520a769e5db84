//! The floors: a client and an agent without an SDK, which do no more than a pipe and the bytes on it demand.
//!
//! `nl` looks for the ends of lines, and into those that it has to answer; `serde` also reads every line into a struct
//! that borrows from it. Both write what ours writes, from prepared pieces, 64 KiB at a time or whenever they wait.

pub mod agent;
pub mod client;
mod line;
mod pipe;

use line::Scan;

/// Which of the two, by its name.
fn scan(name: Option<String>) -> Result<Scan, Box<dyn std::error::Error>> {
    match name.as_deref() {
        Some("nl") => Ok(line::newline),
        Some("serde") => Ok(line::borrowed),
        _ => Err("nl or serde comes first".into()),
    }
}
