//! Code shared by the programs under test on all SDKs: their arguments, numbers about
//! themselves, and their output, one line of JSON each.

use std::alloc::System;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Sessions that are busy at once, unless the scenario measures just that.
pub const AT_ONCE: usize = 8;

/// The command line: `SCENARIO [ARG…] -- AGENT [ARG…]`.
pub struct Asked {
    pub scenario: String,
    pub args: VecDeque<String>,
    pub agent: Vec<String>,
}

impl Asked {
    pub fn read() -> Self {
        let mut args: VecDeque<String> = std::env::args().skip(1).collect();
        let end = args.iter().position(|arg| arg == "--").expect("an agent after --");
        let agent = args.split_off(end).into_iter().skip(1).collect();
        let scenario = args.pop_front().expect("a scenario");
        Asked { scenario, args, agent }
    }

    pub fn text(&mut self) -> String {
        self.args.pop_front().expect("one more argument")
    }

    pub fn number(&mut self) -> usize {
        self.text().parse().expect("a number")
    }
}

/// Says something, in a line of its own.
#[allow(clippy::print_stdout, reason = "its output is its result")]
pub fn say(what: &Value) {
    println!("{what}");
}

/// Says that the first session is there, and how much memory that took.
pub fn ready() {
    say(&json!({"ready": true, "kib": memory("VmRSS:")}));
}

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the allocated memory in KiB. Resident memory is larger, as the C library keeps freed pages.
pub fn in_use() -> u64 {
    let stats = HEAP.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64 / 1024
}

/// The updates of a turn so far.
#[derive(Default)]
pub struct Seen {
    updates: AtomicU64,
    bytes: AtomicU64,
}

impl Seen {
    /// Counts an update; its text, if it is one of a message.
    pub fn update(&self, text: Option<&str>) {
        self.updates.fetch_add(1, Relaxed);
        self.bytes.fetch_add(text.map_or(0, |text| text.len() as u64), Relaxed);
    }

    /// Returns the number of updates.
    pub fn updates(&self) -> u64 {
        self.updates.load(Relaxed)
    }

    /// Says how the turn ended, and when that was known; the next one is counted anew.
    pub fn end(&self, begun: Instant, end: Result<String, String>) {
        say(&json!({
            "updates": self.updates.swap(0, Relaxed),
            "bytes": self.bytes.swap(0, Relaxed),
            "stop": end.as_ref().ok(),
            "error": end.as_ref().err(),
            "ms": begun.elapsed().as_millis() as u64,
            "at_ns": now_ns(),
        }));
    }
}

/// Returns the wall-clock time.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Says how long it took to close the agent, and what is left of it a moment later, zombies included.
pub fn closed(begun: Instant) {
    let took = begun.elapsed();
    while held()["children"] != 0 && begun.elapsed() < took + Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(10));
    }
    say(&json!({"close_ms": took.as_millis() as u64, "children": held()["children"]}));
}

/// Returns the maximum and the 99th percentile of durations, in milliseconds.
pub fn spread(mut took: Vec<Duration>) -> Value {
    took.sort_unstable();
    let ms = |place: usize| took.get(place).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let last = took.len().saturating_sub(1);
    json!({"times": took.len(), "p50_ms": ms(last / 2), "p99_ms": ms(last * 99 / 100), "max_ms": ms(last)})
}

/// A number of this process's status, in KiB where it is memory.
pub fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or_default()
}

/// Returns the resources of this process: memory, descriptors, threads, and children, zombies included.
pub fn held() -> Value {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let mut children = 0;
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let list = std::fs::read_to_string(thread.path().join("children"));
        children += list.unwrap_or_default().split_whitespace().count();
    }
    json!({
        "kib": memory("VmRSS:"),
        "descriptors": count("/proc/self/fd"),
        "threads": count("/proc/self/task"),
        "children": children,
    })
}
