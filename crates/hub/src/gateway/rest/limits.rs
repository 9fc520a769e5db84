//! The rate limit of principals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use tokio::time::Instant;

/// The principals beyond which those that have sent nothing lately are forgotten.
const REMEMBERED: usize = 1_024;

/// Counts the requests of principals. A principal may send the requests of a minute at once, and then each time one
/// of them is a minute old in the mean.
pub(crate) struct RequestRates {
    /// The pause between two requests at the highest rate.
    interval: Duration,
    /// By principal the time at which all its requests have been worked off at the highest rate.
    due: Mutex<HashMap<Arc<str>, Instant>>,
}

impl RequestRates {
    const WINDOW: Duration = Duration::from_secs(60);

    pub(crate) fn new(per_minute: u32) -> Self {
        RequestRates { interval: RequestRates::WINDOW / per_minute.max(1), due: Mutex::default() }
    }

    /// Counts a request. The error is the pause after which it can be sent again.
    pub(crate) fn count(&self, principal: &Arc<str>) -> Result<(), Duration> {
        let now = Instant::now();
        let mut due = self.due.lock_unpoisoned();
        if due.len() >= REMEMBERED {
            due.retain(|_, due| *due > now);
        }
        let due = due.entry(principal.clone()).or_insert(now);
        let next = (*due).max(now) + self.interval;
        let backlog = next - now;
        if backlog > RequestRates::WINDOW {
            return Err(backlog - RequestRates::WINDOW);
        }
        *due = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_principal_has_the_requests_of_a_minute() {
        let rates = RequestRates::new(60);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        for _ in 0..60 {
            assert_eq!(rates.count(&one), Ok(()));
        }
        assert_eq!(rates.count(&one), Err(Duration::from_secs(1)));
        assert_eq!(rates.count(&other), Ok(()), "another principal has its own rate");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(rates.count(&one), Ok(()));
        assert_eq!(rates.count(&one), Ok(()));
        assert!(rates.count(&one).is_err());
    }
}
