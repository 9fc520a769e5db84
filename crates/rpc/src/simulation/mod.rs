//! The connection core under seeded schedules: no I/O, no wall clock, no threads.
//!
//! Two peers, or a peer and a script, are joined by a simulated wire (`wire.rs`). The seed determines every
//! poll of it, every handler and every caller. Time passes only when no task can run. Thus a schedule is a
//! function of its seed, and a failing one prints the command that replays it.
//!
//! `ledger.rs` records the messages of each side in their order and checks them.

mod caller;
mod campaign;
mod drops;
mod ledger;
mod pair;
mod panics;
mod random_delay;
mod script;
mod side;
mod splits;
mod wire;

use campaign::{Campaign, EventCounts, attempt, measured, number, play, seed};

use crate::transport::Transport;

/// Runs a test. If it fails, the panic contains the command that replays it.
fn replayable<T>(test: &str, seed: u64, runs: u64, play: impl FnOnce() -> Result<T, String>) -> T {
    attempt(play).unwrap_or_else(|why| {
        panic!(
            "{why}\n  play it again with\n  \
             DUOLOGUE_SEED={seed} DUOLOGUE_RUNS={runs} cargo test -p duologue-rpc simulation::{test}"
        )
    })
}

/// Panics in a handler without the output of the panic hook.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("a handler of the simulation"))
}
