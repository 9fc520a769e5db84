//! The resource usage of a program, and the line that a client prints. The programs on the official Rust crate include this
//! file too.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::play::Latency;

/// Returns the resource usage of this process so far: CPU time of all threads, memory now and at its peak, and allocations
/// if they are counted.
pub fn usage(allocations: Option<usize>) -> Value {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_us = cpu.tv_sec * 1_000_000 + cpu.tv_nsec / 1000;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or_default()
    };
    json!({"cpu_us": cpu_us, "rss_kib": kib("VmRSS:"), "peak_kib": kib("VmHWM:"), "allocations": allocations})
}

/// The result of a play, filled on the way and printed at its end.
#[derive(Debug, Default)]
pub struct Figures {
    /// Messages that arrived.
    pub messages: usize,
    /// Bytes in them.
    pub bytes: usize,
    /// The whole duration.
    pub wall: Duration,
    /// The duration of each message.
    pub latency: Latency,
    /// The usage of both sides before and after the play.
    pub usage: Vec<(Value, Value)>,
}

impl Figures {
    /// The line for the runner.
    pub fn line(&self) -> String {
        let Latency { mean, p50, p99 } = self.latency;
        let client: Vec<&Value> = self.usage.iter().map(|(client, _)| client).collect();
        let agent: Vec<&Value> = self.usage.iter().map(|(_, agent)| agent).collect();
        json!({
            "messages": self.messages,
            "bytes": self.bytes,
            "wall_ns": self.wall.as_nanos() as u64,
            "latency_ns": {"mean": mean, "p50": p50, "p99": p99},
            "client": client,
            "agent": agent,
        })
        .to_string()
    }
}

/// Times things that are done one after the other.
#[derive(Debug)]
pub struct Watch {
    begun: Instant,
    last: Instant,
    took: Vec<Duration>,
}

impl Watch {
    /// Starts, with room for so many.
    pub fn start(count: usize) -> Self {
        let begun = Instant::now();
        Watch { begun, last: begun, took: Vec::with_capacity(count) }
    }

    /// One more is done; the next one begins.
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.took.push(now - self.last);
        self.last = now;
    }

    /// The next one begins only now.
    pub fn again(&mut self) {
        self.last = Instant::now();
    }

    /// Returns the whole duration, and those of the messages.
    pub fn stop(self) -> (Duration, Latency) {
        (self.begun.elapsed(), Latency::of(self.took))
    }
}

/// The chunk an agent sends when it has read its files: how many, how many bytes, and how long each took.
pub fn reads(count: usize, bytes: usize, latency: Latency) -> String {
    json!({"count": count, "bytes": bytes, "mean": latency.mean, "p50": latency.p50, "p99": latency.p99})
        .to_string()
}

/// Takes such a chunk.
pub fn take_reads(figures: &mut Figures, text: &str) -> Option<()> {
    let said: Value = serde_json::from_str(text).ok()?;
    figures.messages = usize::try_from(said["count"].as_u64()?).ok()?;
    figures.bytes = usize::try_from(said["bytes"].as_u64()?).ok()?;
    let ns = |name: &str| said[name].as_f64();
    figures.latency = Latency { mean: ns("mean")?, p50: ns("p50")?, p99: ns("p99")? };
    Some(())
}
