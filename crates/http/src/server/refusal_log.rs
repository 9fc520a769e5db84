//! The log of requests without access (a wrong token, host or origin), and of connections that are closed before a request.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_rpc::raw_message::beginning;
use tokio::time::Instant;

/// The most refusals that are logged in a [`PERIOD`]. Others are counted.
const PER_PERIOD: u32 = 10;
/// The time after which the number of the others is logged too.
const PERIOD: Duration = Duration::from_secs(1);
/// The bytes of a method, a path, a reason and a peer that are logged.
const SHOWN_BYTES: usize = 256;

/// Logs refused requests and connections, as events of the target `duologue::audit`.
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
    pub(crate) fn note(self: &Arc<Self>, method: &str, path: &str, status: u16, reason: &str) {
        let Some(dropped) = self.take() else { return };
        let [method, path, reason] = [method, path, reason].map(|text| beginning(text, SHOWN_BYTES));
        // As strings their control characters are escaped.
        tracing::warn!(target: "duologue::audit", event = "access_refused", method, path, status, reason, dropped);
    }

    /// Logs a connection that was closed, with the address of its peer.
    pub(crate) fn note_connection(self: &Arc<Self>, peer: impl Debug, reason: &str) {
        let Some(dropped) = self.take() else { return };
        let peer = format!("{peer:?}");
        let [peer, reason] = [peer.as_str(), reason].map(|text| beginning(text, SHOWN_BYTES));
        tracing::warn!(target: "duologue::audit", event = "connection_refused", peer, reason, dropped);
    }

    /// As [`RefusalRate::take`]. The number of refusals that are not logged is logged after the period, if no other refusal has
    /// logged it before.
    fn take(self: &Arc<Self>) -> Option<u64> {
        let mut rate = self.rate.lock_unpoisoned();
        let taken = rate.take(self.started.elapsed());
        if taken.is_none() && rate.dropped == 1 {
            let log = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(PERIOD).await;
                let dropped = std::mem::take(&mut log.rate.lock_unpoisoned().dropped);
                if dropped > 0 {
                    tracing::warn!(target: "duologue::audit", event = "refusals_dropped", dropped);
                }
            });
        }
        taken
    }
}

/// The refusals of the current period.
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
        if self.since.is_none_or(|since| now.saturating_sub(since) >= PERIOD) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count >= PER_PERIOD {
            self.dropped += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_a_rate_are_counted() {
        let start = Duration::from_secs(9);
        let mut rate = RefusalRate::default();
        let logged = (0..25).filter(|_| rate.take(start).is_some()).count();
        assert_eq!(logged, PER_PERIOD as usize);
        assert_eq!(rate.take(start + Duration::from_secs(1)), Some(15));
        assert_eq!(rate.take(start + Duration::from_secs(1)), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_dropped_refusals_is_logged_without_another_one() {
        let log = Arc::<RefusalLog>::default();
        (0..25).for_each(|number| log.note_connection(number, "no"));
        let dropped = || log.rate.lock_unpoisoned().dropped;
        assert_eq!(dropped(), 15);
        while Arc::strong_count(&log) > 1 {
            tokio::time::advance(PERIOD).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(dropped(), 0);
    }
}
