//! Runs schedules by their seeds. The simulation of the two SDKs uses it too.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Returns the number in an environment variable such as `DUOLOGUE_RUNS`.
pub(super) fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.replace('_', "").parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// Returns the seed of the random choices of a test: `DUOLOGUE_SEED` to reproduce a failure, else
/// `DUOLOGUE_FIRST_SEED`, which CI sets, else a random one.
pub(super) fn seed() -> u64 {
    number("DUOLOGUE_SEED").or_else(|| number("DUOLOGUE_FIRST_SEED")).unwrap_or_else(|| fastrand::u64(..))
}

/// Counts of what happened in some schedules, by the name of the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventCounts(BTreeMap<&'static str, u64>);

impl EventCounts {
    pub(super) fn add(&mut self, event: &'static str, count: u64) {
        *self.0.entry(event).or_default() += count;
    }
}

impl AddAssign for EventCounts {
    fn add_assign(&mut self, other: Self) {
        other.0.into_iter().for_each(|(event, count)| self.add(event, count));
    }
}

impl fmt::Display for EventCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (event, count)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {event}")?;
        }
        Ok(())
    }
}

/// A test that plays a schedule for each seed.
pub(super) struct Campaign {
    /// The end of the command that runs the campaign.
    pub(super) test: &'static str,
    /// The number of schedules in `cargo test`. `DUOLOGUE_RUNS` sets another one, `DUOLOGUE_SEED` plays one.
    pub(super) schedules: u64,
    /// The events that have to happen, and how often at least in a hundred schedules. A campaign in which
    /// nothing happens finds nothing.
    pub(super) minimum: &'static [(&'static str, u64)],
    /// Written behind the counts: the faults that no schedule showed.
    pub(super) shown: &'static str,
}

/// A campaign of fewer schedules is not compared with the minimum: chance decides what happens in it.
const COMPARED: u64 = 200;

impl Campaign {
    /// Plays the schedules on all processors and adds up their tallies. `play` is given the seed and the number of
    /// steps it may take. The panic about one that fails has the command that plays it again.
    pub(super) fn play(&self, play: impl Fn(u64, usize) -> Result<EventCounts, String> + Sync) {
        let default = if number("DUOLOGUE_SEED").is_some() { 1 } else { self.schedules };
        let runs = number("DUOLOGUE_RUNS").unwrap_or(default);
        let steps = number("DUOLOGUE_STEPS").map_or(usize::MAX, |steps| steps as usize);
        let first = seed();
        let total = self.total(first, runs, steps, play);
        measured(format_args!("{runs} schedules, {total}{}", self.shown));
        if runs >= COMPARED && steps == usize::MAX {
            self.compare(&total, runs).unwrap_or_else(|why| panic!("{why}; the first seed was {first}"));
        }
    }

    fn total(
        &self,
        first: u64,
        runs: u64,
        steps: usize,
        play: impl Fn(u64, usize) -> Result<EventCounts, String> + Sync,
    ) -> EventCounts {
        let attempt = |run, steps| attempt(|| play(first.wrapping_add(run), steps));
        let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
        // Plays schedules until one fails on any thread.
        let worker = || {
            let mut total = EventCounts::default();
            while !has_failed.load(Relaxed) {
                let run = next.fetch_add(1, Relaxed);
                if run >= runs {
                    break;
                }
                match attempt(run, steps) {
                    Ok(tally) => total += tally,
                    Err(why) => {
                        has_failed.store(true, Relaxed);
                        return (total, Some((run, why)));
                    }
                }
            }
            (total, None)
        };
        let played: Vec<_> = thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().expect("a failure is caught")).collect()
        });
        let mut total = EventCounts::default();
        let mut failed: Option<(u64, String)> = None;
        for (tally, failure) in played {
            total += tally;
            failed = failed.into_iter().chain(failure).min();
        }
        if let Some((run, why)) = failed {
            self.fail(first, run, steps, why, attempt);
        }
        total
    }

    /// Panics with the command that plays a schedule again, in its shortest beginning that fails too.
    fn fail(
        &self,
        first: u64,
        run: u64,
        steps: usize,
        why: String,
        attempt: impl Fn(u64, usize) -> Result<EventCounts, String>,
    ) -> ! {
        let shortest = (0..64).find_map(|steps| Some((steps, attempt(run, steps).err()?)));
        let (steps, why) = shortest.unwrap_or((steps.min(1 << 20), why));
        panic!(
            "{why}\n  schedule {run} of this campaign; play it again with\n  \
             DUOLOGUE_SEED={} DUOLOGUE_STEPS={steps} cargo test -p {}",
            first.wrapping_add(run),
            self.test
        );
    }

    /// Fails with the events that happened less often than they have to.
    fn compare(&self, total: &EventCounts, runs: u64) -> Result<(), String> {
        let rare = |&(event, per_hundred): &(&str, u64)| {
            let (count, least) = (total.0.get(event).copied().unwrap_or_default(), per_hundred * runs / 100);
            (count < least).then(|| format!("{count} {event} (at least {least})"))
        };
        let rare: Vec<_> = self.minimum.iter().filter_map(rare).collect();
        if rare.is_empty() {
            return Ok(());
        }
        Err(format!("too little happened in {runs} schedules to show anything: {}", rare.join(", ")))
    }

    /// Plays a hundred schedules against a peer that refuses everything and holds that the campaign would fail
    /// for each of the `missing` events.
    pub(super) fn misses(
        &self,
        missing: &[&str],
        play: impl Fn(u64, usize) -> Result<EventCounts, String> + Sync,
    ) {
        const RUNS: u64 = 100;
        let total = self.total(0, RUNS, usize::MAX, play);
        let why = self.compare(&total, RUNS).expect_err("a campaign in which everything is refused");
        for event in missing {
            assert!(
                why.split([',', ':']).any(|rare| rare
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
                    .starts_with(&format!("{event} (at least"))),
                "{event} are not missed: {why}"
            );
        }
    }
}

/// Runs a schedule. A panic is a failure too.
pub(super) fn attempt<T>(play: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let played = std::panic::catch_unwind(AssertUnwindSafe(play));
    played.unwrap_or_else(|panic| Err(panic_message(&*panic)))
}

/// Runs a simulation on a clock that moves only when no task can run. A simulation that is not finished
/// after an hour of this clock hangs.
pub(super) fn play<T>(story: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let played = tokio::time::timeout(Duration::from_secs(3600), story).await;
        played.unwrap_or_else(|_| Err("something waits for ever".into()))
    })
}

/// Prints a figure of a requirement.
#[allow(clippy::print_stdout, reason = "the campaign reads it")]
pub(super) fn measured(text: impl fmt::Display) {
    println!("measured: {text}");
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or("a panic".into())
}
