//! Benchmarks against the official SDKs and against a bare pipe.
//!
//! `cargo xtask bench` builds and installs all programs, runs every pair on every workload, and writes `BENCHMARKS.md` and
//! `BENCHMARKS.svg` in the root of the repository. The name of a [workload](workloads) selects one. `--rust` runs only our
//! programs, the floors and the official Rust crate, so neither node nor Python is needed. `--quick` is small. All three print
//! their tables and write nothing. `cargo xtask bench --rust a40` is the quickest check of a row; `--help` lists the rest.
//!
//! # The pairs
//!
//! A pair is two processes with pipes between them. The command line of the client names [the workload](play::Play) and the
//! agent to start. The text of each prompt gives the agent [its task](play::PromptCommand). All of it is plain ACP, so any client runs
//! with any agent. There are programs on
//!
//! - our SDK ([`client`], [`agent`]), written in the style of the README, on a runtime of one thread, and once more on the
//!   runtime of a plain `#[tokio::main]`. In `a40` a third pair records the connection to a file in the temporary folder. In
//!   `a40` and `b1` the messages of another pair pass three stages of `duologue-proxy` in the client's process;
//! - the official Rust crate, as in its documentation (stock), and on one thread with synchronous writes on both sides, its
//!   fastest form within a few lines;
//! - the official TypeScript SDK, on the installed node and on node 24;
//! - the official Python SDK, on the loop of the standard library and on uvloop;
//! - no SDK at all: the [floors](floor), which show the cost of the pipe and the bytes. One finds the ends of lines, the other
//!   also reads each line into a borrowing struct. They write exactly our lines, message ids included. The other SDKs write no
//!   message ids, so their lines are 50 bytes shorter.
//!
//! # Reading the figures
//!
//! - Runs of different pairs alternate, every second round in reverse order. A figure is the median of its runs, with the lowest
//!   and the highest beside it. **Times** mean little on a busy machine; **CPU time** hardly changes with the load.
//! - The median of two runs is their average.
//! - **To the floor** is the factor by which a pair beats the parsing floor, **duologue is** the factor by which ours beats that
//!   pair. Above 1 is better in both, whatever is measured.
//! - **Lowest – highest** belongs to the first figure of the column before it: to the mean where that has a mean and a p99, to
//!   the sum where it has both sides.
//! - The floor of newlines may be slower than the parsing one, because it measures the pipe.
//! - **CPU** is user and system time of all threads of a process, divided by the number of messages. It and the allocations cover
//!   the workload alone, without start and end. The **peak** is the resident memory of the whole process in MiB, including a
//!   runtime's own.
//! - **Allocations** are counted in a separate run, with slower programs that count them.
//! - A run in which a message or a byte is missing ends the benchmark with an error.
//! - Clients of the TypeScript and Python SDKs wait for the updates after the response, since those SDKs may resolve it first.
//! - **Build time** is in no figure. The first run builds for minutes, and prints its progress on stderr.
//! - Targets for memory are in MB, a million bytes, with the measured MB beside them. All else is in KiB and MiB.
//!
//! # Over a network
//!
//! `cargo xtask bench remote` plays [over WebSocket and HTTP with SSE](remote), and writes `BENCHMARKS-REMOTE.md`. A server is an
//! agent that prints its address, and a client takes the address in place of the agent's command line. [A client on no
//! SDK](remote::load) opens many plain sockets on the server of any SDK. `runner/remote/programs.rs` has the programs, and
//! `runner/remote/page.rs` the targets.
//!
//! # A hub
//!
//! `cargo xtask bench hub` prints the load figures of a hub and its store, which need the feature `hub`. A person copies them to
//! the last section of `BENCHMARKS.md`. `cargo xtask bench` keeps this section.
//!
//! # Your own program
//!
//! A client or an agent of your own runs with ours. `cargo build --release -p duologue-bench` puts them into `target/release`.
//!
//! ```text
//! target/release/bench-client stream 10 4 -- your-agent
//! your-client stream 10 4 -- target/release/bench-agent
//! ```
//!
//! An **agent** has to support `initialize`, `session/new` and prompts with these texts, which [`PromptCommand`](play::PromptCommand) lists. It sends
//! each chunk as an `agent_message_chunk` of text, then ends the turn with `end_turn`. Each workload except `start` sends `usage`
//! before and after, and its own task:
//!
//! - `stream COUNT BYTES` (workloads `stream` and `sessions`): this many chunks of this many bytes;
//! - `end` (`prompts`): nothing;
//! - `read COUNT` (`read`): `fs/read_text_file` of `/bench/file` this many times, one after the other, then one chunk with
//!   `{"count":..,"bytes":..,"mean":..,"p50":..,"p99":..}`, times in nanoseconds;
//! - `image`, beside an image (`image`): one chunk with the length of its base64;
//! - `redraw ROUNDS BYTES` (`redraw`): in each round the next piece, a clear, and the whole text, of the length that
//!   [`growth`](play::growth) returns. Our client expects an `agent_message_clear` for the clear, the others a chunk without text;
//! - `usage`: one chunk with `{"cpu_us":..,"rss_kib":..,"peak_kib":..}`; `bench-client` also accepts `{}`.
//!
//! A **client** takes [`PLAY NUMBER.. -- AGENT ARG..`](play::Play), starts that agent and prints one line to stdout. The runner
//! requires `messages`, `bytes` and `wall_ns`. It uses `latency_ns` (`mean`, `p50`, `p99`), `client` and `agent` (the usage of
//! each before and after) if they are there:
//!
//! ```text
//! {"messages":10,"bytes":40,"wall_ns":250000,"latency_ns":{"mean":0,"p50":0,"p99":0},"client":[{..},{..}],"agent":[{..},{..}]}
//! ```
//!
//! To add it to the tables, name both programs in `runner/pairs.rs`. To find the location of the cost, let `perf` follow both
//! processes, or put valgrind before your agent:
//!
//! ```text
//! perf record -g target/release/bench-client stream 200000 40 -- your-agent
//! perf report --no-children --sort comm,sym
//! target/release/bench-client stream 2000 40 -- valgrind --tool=callgrind your-agent
//! ```
//!
//! Our own programs crash in `usage` under valgrind 3.19, because rustix reads the clock from the vDSO. Count their instructions
//! with `cargo xtask instructions`.
//!
//! # Adding a workload
//!
//! A known kind of workload at another size is an entry in [`WORKLOADS`](workloads::WORKLOADS) and nothing else. It should last at
//! least 100 ms with our pair, or the noise is larger than the measure. An entry that ends in `..STREAM` inherits everything that
//! it does not set, including `mixed`. Set `mixed: false` unless our programs should also run it with those of the others.
//!
//! A new kind begins in `play.rs`: its form and its expected result in [`Play`](play::Play), and its task for the agent in
//! [`PromptCommand`](play::PromptCommand). Then each program has to support it: [`client`] and [`agent`], the [floors](floor) (or the workload sets
//! `floor: false`), and those in `crates/xtask/interop`: `rust/src/bench_*.rs`, `ts/bench-*.mjs` and `python/bench_*.py`. Its
//! targets are in `runner/targets.rs`, and `tests/it/plays.rs` runs it.
#![forbid(unsafe_code)]

pub mod agent;
pub mod client;
pub mod command_line;
pub mod figures;
pub mod floor;
#[cfg(feature = "hub")]
pub mod hub;
pub mod play;
pub mod remote;
pub mod runner;
pub mod workloads;

use std::fmt::Display;
use std::process::ExitCode;

/// The first argument with which our programs start the runtime that `#[tokio::main]` makes: a thread a core.
pub const MANY_THREADS: &str = "--many-threads";
/// The first argument with which our client records the connection to a file, on a runtime of one thread.
pub const RECORD: &str = "--record";

/// The first argument with which our agent serves many clients over a network, at an address that it prints.
pub const SERVE: &str = "--serve";
/// The first argument with which our agent connects each client of a network with a process of its own. The agent's command
/// line follows.
pub const BRIDGE: &str = "--bridge";
/// The environment variable with the token for the server of our client.
pub const TOKEN: &str = "BENCH_TOKEN";

/// The first argument with which our client has three stages that pass everything, on a runtime of one thread.
pub const STAGES: &str = "--stages";

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
