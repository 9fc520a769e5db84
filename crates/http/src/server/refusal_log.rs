//! The log of requests without access: a wrong token, host or origin.

use std::sync::Mutex;
use std::time::Duration;

use duologue_rpc::Lock as _;
use tokio::time::Instant;

/// The most refusals that are logged in a second. Others are counted.
const PER_SECOND: u32 = 10;
/// The bytes of a method, a path and a reason that are logged.
const SHOWN_BYTES: usize = 256;

/// Logs refused requests, as events of the target `duologue::audit`.
#[derive(Debug)]
pub(crate) struct RefusalLog {
    started: Instant,
    rate: Mutex<RefusalRate>,
}

impl Default for RefusalLog {
    fn default() -> Self {
        RefusalLog { started: Instant::now(), rate: Mutex::default() }
    }
}

impl RefusalLog {
    pub(crate) fn note(&self, method: &str, path: &str, status: u16, reason: &str) {
        let Some(dropped) = self.rate.lock_unpoisoned().take(self.started.elapsed()) else { return };
        let [method, path, reason] = [method, path, reason].map(beginning);
        // As strings their control characters are escaped.
        tracing::warn!(target: "duologue::audit", event = "access_refused", method, path, status, reason, dropped);
    }
}

/// The refusals of the current second.
#[derive(Debug, Default)]
struct RefusalRate {
    /// Its beginning, since the start of the server.
    since: Option<Duration>,
    count: u32,
    /// The refusals that were not logged since the last one that was.
    dropped: u64,
}

impl RefusalRate {
    /// Returns the number of refusals that were not logged before, or `None` if this one is not logged either.
    fn take(&mut self, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_sub(since) >= Duration::from_secs(1)) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count >= PER_SECOND {
            self.dropped += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

fn beginning(text: &str) -> &str {
    let cut = (0..=SHOWN_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    cut.and_then(|end| text.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_a_rate_are_counted() {
        let start = Duration::from_secs(9);
        let mut rate = RefusalRate::default();
        let logged = (0..25).filter(|_| rate.take(start).is_some()).count();
        assert_eq!(logged, PER_SECOND as usize);
        assert_eq!(rate.take(start + Duration::from_secs(1)), Some(15));
        assert_eq!(rate.take(start + Duration::from_secs(1)), Some(0));
        assert_eq!(beginning(&"é".repeat(SHOWN_BYTES)).len(), SHOWN_BYTES);
    }
}
