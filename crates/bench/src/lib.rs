//! The benchmark: the speed of our SDK beside the official SDKs and beside a pipe.
//!
//! `cargo xtask bench` builds and installs all that plays, has every pair play every workload, and writes `BENCHMARKS.md` and
//! `BENCHMARKS.svg` in the root of the repository. With the name of a [workload](workloads) it plays that one, with `--rust` only
//! our programs, the floors and those on the official Rust crate play, so that neither node nor Python is needed, and `--quick` is
//! the same small and with fewer rounds. All three print their tables and write nothing. `cargo xtask bench --rust a40` is the cheap
//! way to check a row; `cargo xtask bench --help` has the rest.
//!
//! # Programs
//!
//! A pair is two processes with pipes between them. The command line of the client names the [play](play::Play) and the agent to
//! start. The text of its prompts is a [command](play::PromptCommand) for the agent. All of it is plain ACP, so any client
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
//! # Reading the figures
//!
//! - Runs of different pairs alternate, every second round from the last to the first; a figure is the median of its runs, and the
//!   lowest and the highest stand beside it. **Times** hardly mean anything on a machine that does something else meanwhile; **CPU
//!   time** hardly changes with it.
//! - The median of two runs is their average.
//! - **To the floor** is by how many times a pair is as good as the floor that parses, **duologue is** by how many times ours is as
//!   good as that pair: above 1 is better in both, whatever is measured.
//! - **Lowest – highest** belongs to the first figure of the column before it: to the mean where that has a mean and a p99, to the
//!   sum where it has both sides.
//! - The floor that looks for newlines only may be slower than the one that parses: it is the pipe that is measured there.
//! - **CPU** is user and system time of all threads of a process, by the number of messages; it and the allocations are of the
//!   workload alone, without start and end. The **peak** is that of the whole process, in MiB of resident memory; a runtime's own
//!   tens of MiB are in it because its user pays for them.
//! - **Allocations** are counted in a run of their own, with programs that count them and are slower for it.
//! - A run in which a message or a byte is missing ends the benchmark with an error: nothing counts that has lost data.
//! - Clients of the TypeScript and Python SDKs wait for the updates after the answer, since those SDKs may resolve it first.
//! - **Build time** is in no figure. The first run builds for minutes before it plays, and says on stderr what it is at.
//! - Targets for memory are in MB, a million bytes, and what is measured stands beside them in MB; all else is in KiB and MiB.
//!
//! # Your own program
//!
//! A client or an agent of your own plays with ours, which `cargo build --release -p duologue-bench` puts into
//! `target/release`.
//!
//! ```text
//! target/release/bench-client stream 10 4 -- your-agent
//! your-client stream 10 4 -- target/release/bench-agent
//! ```
//!
//! An **agent** has to understand `initialize`, `session/new` and prompts with these texts, which [`PromptCommand`](play::PromptCommand) lists. It sends
//! each chunk as an `agent_message_chunk` of text, then ends the turn with `end_turn`. Each play but `start` asks for `usage` before
//! and after, and for what it is about:
//!
//! - `stream COUNT BYTES` (plays `stream` and `sessions`): so many chunks of so many bytes;
//! - `end` (`prompts`): nothing;
//! - `read COUNT` (`read`): `fs/read_text_file` of `/bench/file` so many times, one after the other, then one chunk with
//!   `{"count":..,"bytes":..,"mean":..,"p50":..,"p99":..}`, times in nanoseconds;
//! - `image`, beside an image (`image`): one chunk with the length of its base64;
//! - `redraw ROUNDS BYTES` (`redraw`): in each round the next piece, a clear, and the whole, as long as [`growth`](play::growth) says;
//!   our client wants an `agent_message_clear` for the clear, those on the other SDKs a chunk without text;
//! - `usage`: one chunk with `{"cpu_us":..,"rss_kib":..,"peak_kib":..}`; with `{}` `bench-client` still plays.
//!
//! A **client** takes [`PLAY NUMBER.. -- AGENT ARG..`](play::Play), starts that agent and prints one line to stdout, from which
//! the runner wants `messages`, `bytes` and `wall_ns`, and uses `latency_ns` (`mean`, `p50`, `p99`), `client` and `agent` (the usage
//! of each before and after) if they are there:
//!
//! ```text
//! {"messages":10,"bytes":40,"wall_ns":250000,"latency_ns":{"mean":0,"p50":0,"p99":0},"client":[{..},{..}],"agent":[{..},{..}]}
//! ```
//!
//! To have it in the tables, name both programs in `runner/pairs.rs`. To see where the time goes, let `perf` follow both processes, or
//! put valgrind before your agent:
//!
//! ```text
//! perf record -g target/release/bench-client stream 200000 40 -- your-agent
//! perf report --no-children --sort comm,sym
//! target/release/bench-client stream 2000 40 -- valgrind --tool=callgrind your-agent
//! ```
//!
//! Our own programs do not get through `usage` under valgrind 3.19: rustix asks the vDSO for the clock, and crashes there. Count their
//! instructions with `cargo xtask instructions`.
//!
//! # Adding a workload
//!
//! One of the plays there are, at another size, is an entry in [`WORKLOADS`](workloads::WORKLOADS) and nothing else. Let it last at least
//! 100 ms with our pair, or the noise is larger than what it measures. An entry that ends in `..STREAM` inherits all that it
//! does not say, `mixed` too: say `mixed: false` unless our programs are to play it with those of the others as well.
//!
//! A new play is first a word of the language, in `play.rs`: in [`Play`](play::Play) what it is, how it is read and written and
//! what it promises, in [`PromptCommand`](play::PromptCommand) the command for the agent. Then each program has to learn it: [`client`] and [`agent`],
//! the [floors](floor) (or the workload says `floor: false`), and those in `crates/xtask/interop`: `rust/src/bench_*.rs`,
//! `ts/bench-*.mjs` and `python/bench_*.py`. Its target stands in `runner/targets.rs`; `tests/it/plays.rs` plays it.
#![forbid(unsafe_code)]

pub mod agent;
pub mod client;
pub mod command_line;
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
