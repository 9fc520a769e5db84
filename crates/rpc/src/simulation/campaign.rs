//! Playing schedules by their seeds. The simulation of the two SDKs plays its own with it too.

use std::fmt;
use std::ops::AddAssign;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// `DUOLOGUE_RUNS`, `DUOLOGUE_SEED` or `DUOLOGUE_STEPS`.
pub(super) fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.replace('_', "").parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// Where the random choices of a test begin.
pub(super) fn seed() -> u64 {
    number("DUOLOGUE_SEED").unwrap_or_else(|| fastrand::u64(..))
}

/// Plays a schedule for each seed and adds up what came of them: `default` of them in `cargo test`,
/// `DUOLOGUE_RUNS` for the bars, one when a seed is played again. `play` is given the seed and the number of steps
/// it may take. The panic about one that fails has the command that plays it again; `test` is its end.
pub(super) fn campaign<T: Default + AddAssign + fmt::Display>(
    test: &str,
    default: u64,
    play: impl Fn(u64, usize) -> Result<T, String>,
) {
    let default = if number("DUOLOGUE_SEED").is_some() { 1 } else { default };
    let runs = number("DUOLOGUE_RUNS").unwrap_or(default);
    let steps = number("DUOLOGUE_STEPS").map_or(usize::MAX, |steps| steps as usize);
    let first = seed();
    let attempt = |seed, steps| attempt(|| play(seed, steps));
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
                     DUOLOGUE_SEED={seed} DUOLOGUE_STEPS={steps} cargo test -p {test}"
                );
            }
        }
    }
    measured(format_args!("{runs} schedules, {total}"));
}

/// What came of it; a panic is a failure like any other.
pub(super) fn attempt<T>(play: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let played = std::panic::catch_unwind(AssertUnwindSafe(play));
    played.unwrap_or_else(|panic| Err(said_by(&*panic)))
}

/// Plays one story on a clock that moves only when nobody can go on. What still waits after an hour
/// of it waits for ever.
pub(super) fn play<T>(story: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let played = tokio::time::timeout(Duration::from_secs(3600), story).await;
        played.unwrap_or_else(|_| Err("something waits for ever".into()))
    })
}

/// A cell of `tests/RELIABILITY.md`.
#[allow(clippy::print_stdout, reason = "the campaign reads it")]
pub(super) fn measured(text: impl fmt::Display) {
    println!("measured: {text}");
}

fn said_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or("a panic".into())
}
