//! How fast it is, beside the official SDKs and beside a pipe.
//!
//! `cargo xtask bench` builds and installs all that plays, has every pair play every workload, and writes `BENCHMARKS.md` and
//! `BENCHMARKS.svg` in the root of the repository. With the name of a [workload](workloads) it plays that one, and with `--quick`
//! all of them small, with nobody but the floors and the official Rust crate; either prints its tables and writes nothing.
//!
//! # What plays
//!
//! A pair is two processes with pipes between them: a client is told on its command line [what to play](play::Play) and which
//! agent to start, and tells the agent [what to do](play::Ask) in the text of its prompts. All of it is plain ACP, so any client
//! plays with any agent. There are programs on
//!
//! - our SDK ([`client`], [`agent`]), written as the README writes programs, on a runtime of one thread as an agent or a script
//!   would choose it, and once more on the one that a bare `#[tokio::main]` makes;
//! - the official Rust crate, as its documentation writes programs (stock), and on one thread with writes that leave where they are
//!   made, on both sides, which is the fastest that a few lines make it;
//! - the official TypeScript SDK, on the node that is found and on node 24;
//! - the official Python SDK, on the loop of the standard library and on uvloop;
//! - no SDK at all: the [floors](floor), which say what the pipe and the bytes cost. One finds the ends of lines, the other also
//!   reads each line into a struct that borrows from it. They write the very lines that ours writes, message ids included; the
//!   other SDKs write none, so their lines are 50 bytes shorter.
//!
//! # How to read the figures
//!
//! - Runs of different pairs alternate, every second round from the last to the first; a figure is the median of its runs, and the
//!   lowest and the highest stand beside it. **Times** hardly mean anything on a machine that does something else meanwhile; **CPU
//!   time** hardly changes with it.
//! - **To the floor** is by how many times a pair is as good as the floor that parses, **duologue is** by how many times ours is as
//!   good as that pair: above 1 is better in both, whatever is measured.
//! - **CPU** is user and system time of all threads of a process, by the number of messages; it and the allocations are of the
//!   workload alone, without start and end. The **peak** is that of the whole process, in MiB of resident memory; a runtime's own
//!   tens of MiB are in it because its user pays for them.
//! - **Allocations** are counted in a run of their own, with programs that count them and are slower for it.
//! - A run in which a message or a byte is missing ends the benchmark with an error: nothing counts that has lost data.
//! - Clients of the TypeScript and Python SDKs wait for the updates after the answer, since those SDKs may resolve it first.
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
