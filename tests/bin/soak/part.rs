//! Visits for a number of seconds, and reports of what the process holds at rest.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use duologue_tests::Result;
use duologue_tests::process::status;
use serde_json::json;

/// Grace periods end, the longest after 10 s, and killed processes are collected.
const REST: Duration = Duration::from_secs(11);

/// Panics that nobody ordered.
static PANICS: AtomicU64 = AtomicU64::new(0);
/// The message of an ordered panic.
pub(crate) const ORDERED: &str = "an ordered panic";

/// The counters of a part.
#[derive(Default)]
pub(crate) struct Counts {
    visits: AtomicU64,
    pub(crate) hung: AtomicU64,
}

/// Plays visits until the time is over, some at once, with a moment of rest every so often.
pub(crate) fn run<Visit: Future<Output = ()> + Send>(
    [seed, seconds]: [&str; 2],
    visit: impl Fn(fastrand::Rng, &'static Counts) -> Visit,
) -> Result<()> {
    static COUNTS: Counts = Counts { visits: AtomicU64::new(0), hung: AtomicU64::new(0) };
    let (seed, seconds) = (seed.parse()?, Duration::from_secs(seconds.parse()?));
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        // A message that is put together is a `String`, unless the compiler has done it.
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        if message != Some(ORDERED) {
            PANICS.fetch_add(1, Relaxed);
            show(info);
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (mut rng, begun) = (fastrand::Rng::with_seed(seed), Instant::now());
        let between = (seconds / 20).clamp(Duration::from_secs(15), Duration::from_secs(60));
        let mut rest = between;
        while begun.elapsed() < seconds {
            let one = |rng: &mut fastrand::Rng| {
                let rng = rng.fork();
                async {
                    visit(rng, &COUNTS).await;
                    COUNTS.visits.fetch_add(1, Relaxed);
                }
            };
            futures::future::join3(one(&mut rng), one(&mut rng), one(&mut rng)).await;
            tokio::time::sleep(Duration::from_millis(rng.u64(0..600))).await;
            if begun.elapsed() > rest {
                rest += between + REST;
                tokio::time::sleep(REST).await;
                say_at_rest(&COUNTS);
            }
        }
    });
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn say_at_rest(counts: &Counts) {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let children: usize = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .map(|list| list.split_whitespace().count())
        .sum();
    println!(
        "{}",
        json!({
            "kib": status(std::process::id(), "VmRSS:"),
            "descriptors": count("/proc/self/fd"),
            "threads": count("/proc/self/task"),
            "tasks": tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            "children": children,
            "visits": counts.visits.load(Relaxed),
            "panics": PANICS.load(Relaxed),
            "hung": counts.hung.load(Relaxed),
        })
    );
}
