//! The connection core under seeded schedules: no I/O, no wall clock, no threads.
//!
//! Two peers, or one and a script, are joined by a wire that exists only here (`wire.rs`). Every
//! poll of it, every handler and every caller follows from the seed, and time passes only when
//! nobody can go on: a schedule is a function of its seed, and one that fails is played again with
//! the command it prints.
//!
//! What the tests hold against the core is in `ledger.rs`: who said and heard what, in which order.

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

/// Plays one test of many runs. If it fails, the panic has the command that plays the same runs again.
fn replayable<T>(test: &str, seed: u64, runs: u64, play: impl FnOnce() -> Result<T, String>) -> T {
    attempt(play).unwrap_or_else(|why| {
        panic!(
            "{why}\n  play it again with\n  \
             DUOLOGUE_SEED={seed} DUOLOGUE_RUNS={runs} cargo test -p duologue-rpc simulation::{test}"
        )
    })
}

/// A panic of a handler, without the noise of the hook.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("a handler of the simulation"))
}
