//! The two SDKs joined in memory: seeded schedules of sessions, prompts, permissions, cancellations,
//! drops and ends, on a clock that moves only when nobody can go on.
#![allow(unreachable_pub, reason = "as in support")]

mod support;

#[path = "simulation/actors.rs"]
mod actors;
#[path = "simulation/story.rs"]
mod story;
/// What the simulation of the core dawdles with, and its wire.
#[path = "../crates/rpc/src/simulation/whim.rs"]
mod whim;
#[path = "../crates/rpc/src/simulation/wire.rs"]
#[allow(dead_code, reason = "shared with the core's own simulation")]
mod wire;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use duologue_rpc::Transport;

/// Plays one story. What still waits after an hour of its clock waits for ever.
fn play<T>(story: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let played = tokio::time::timeout(Duration::from_secs(3600), story).await;
        played.unwrap_or_else(|_| Err("something waits for ever".into()))
    })
}

/// Plays a story for each seed and adds up what came of them. One that fails is played again with
/// the command in the panic.
fn campaign<T: Default + std::ops::AddAssign>(
    name: &str,
    runs: u64,
    story: impl Fn(u64) -> Result<T, String>,
) -> T {
    let first = support::seed();
    let runs = if std::env::var_os("DUOLOGUE_SEED").is_some() { support::runs(1) } else { runs };
    let mut total = T::default();
    for run in 0..runs {
        let seed = first.wrapping_add(run);
        let played = std::panic::catch_unwind(AssertUnwindSafe(|| story(seed)));
        match played.unwrap_or_else(|_| Err("a panic".into())) {
            Ok(tally) => total += tally,
            Err(why) => panic!(
                "{why}\n  schedule {run}; play it again with\n  \
                 DUOLOGUE_SEED={seed} cargo test -p duologue-tests --test simulation {name}"
            ),
        }
    }
    total
}
