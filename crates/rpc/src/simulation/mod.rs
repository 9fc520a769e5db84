//! The connection core under seeded schedules: no I/O, no wall clock, no threads.
//!
//! Two peers, or one and a script, are joined by a wire that exists only here (`wire.rs`). Every
//! poll of it, every handler and every caller follows from the seed, and time passes only when
//! nobody can go on: a schedule is a function of its seed, and one that fails is played again with
//! the command it prints.
//!
//! What the tests hold against the core is in `ledger.rs`: who said and heard what, in which order.

mod caller;
mod drops;
mod ledger;
mod pair;
mod panics;
mod script;
mod side;
mod splits;
mod whim;
mod wire;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::transport::Transport;

/// Schedules of a campaign: `default` of them in `cargo test`, `DUOLOGUE_RUNS` for the bars. Each is
/// played with its seed and the number of steps it may take.
fn campaign<T: Default + std::ops::AddAssign + fmt::Display>(
    name: &str,
    default: u64,
    play: impl Fn(u64, usize) -> Result<T, String>,
) {
    let seed = number("DUOLOGUE_SEED");
    let runs = number("DUOLOGUE_RUNS").unwrap_or(if seed.is_some() { 1 } else { default });
    let steps = number("DUOLOGUE_STEPS").map_or(usize::MAX, |steps| steps as usize);
    let first = seed.unwrap_or_else(|| fastrand::u64(..));
    let attempt = |seed, steps| match std::panic::catch_unwind(AssertUnwindSafe(|| play(seed, steps))) {
        Ok(played) => played,
        Err(panic) => Err(said_by(&*panic)),
    };
    let mut total = T::default();
    for run in 0..runs {
        let seed = first.wrapping_add(run);
        match attempt(seed, steps) {
            Ok(tally) => total += tally,
            Err(why) => {
                // The shortest beginning of the schedule that fails too.
                let shortest = (0..64).map(|steps| (steps, attempt(seed, steps)));
                let (steps, why) = shortest
                    .filter_map(|(steps, played)| Some((steps, played.err()?)))
                    .next()
                    .unwrap_or((steps.min(1 << 20), why));
                panic!(
                    "{why}\n  schedule {run} of this campaign; play it again with\n  \
                     DUOLOGUE_SEED={seed} DUOLOGUE_STEPS={steps} cargo test -p duologue-rpc simulation::{name}"
                );
            }
        }
    }
    measured(format_args!("{runs} schedules, {total}"));
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.replace('_', "").parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// A cell of `tests/RELIABILITY.md`.
#[allow(clippy::print_stdout, reason = "the campaign reads it")]
fn measured(text: impl fmt::Display) {
    println!("measured: {text}");
}

fn said_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or("a panic".into())
}

/// Plays one story on a clock that moves only when nobody can go on. What still waits after an hour
/// of it waits for ever.
fn play<T>(story: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let played = tokio::time::timeout(Duration::from_secs(3600), story).await;
        played.unwrap_or_else(|_| Err("something waits for ever".into()))
    })
}

/// A panic of a handler, without the noise of the hook.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("a handler of the simulation"))
}
