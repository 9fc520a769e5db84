//! The schedule of retries.

use std::time::Duration;

use super::Error;

/// The number of attempts to send a message, and the pauses between them.
///
/// The n-th pause is random between 0 and 100 ms × 2ⁿ, at most 30 seconds. The full jitter spreads
/// the retries of senders that failed together. By default there are five attempts. A retry sends
/// the same message with the same `message_id`, and a receiver that already has it only repeats the
/// receipt.
///
/// ```
/// use std::time::Duration;
/// use duologue_exchange::dialogue::Backoff;
///
/// let patient = Backoff::new().attempts(8).base(Duration::from_millis(250));
/// assert_eq!(patient.longest(0), Duration::from_millis(250));
/// assert_eq!(patient.longest(3), Duration::from_secs(2));
/// assert_eq!(patient.longest(60), Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    attempts: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(30), attempts: 5 }
    }
}

impl Backoff {
    /// Creates the default schedule: 100 ms, doubled up to 30 s, five attempts in total.
    pub fn new() -> Self {
        Backoff::default()
    }

    /// Sends a message only once.
    pub fn never() -> Self {
        Backoff::new().attempts(1)
    }

    /// Sets the maximum of the first pause.
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the maximum of all pauses.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the total number of attempts, including the first; 0 counts as 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Returns the maximum of the pause after `failures` earlier pauses.
    #[must_use]
    pub fn longest(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// Returns the pause before the next attempt, or `None` after the last one. `failures` counts
    /// the failed attempts, and `random` is from 0 to 1.
    pub(crate) fn pause(&self, failures: u32, random: f64) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        Some(self.longest(failures.saturating_sub(1)).mul_f64(random.clamp(0.0, 1.0)))
    }
}

/// The reaction to a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// The same message may succeed later.
    Retry,
    /// The message cannot be delivered on this connection: the fallback is called.
    Fallback,
    /// The message would fail on every connection.
    Fail,
}

/// Returns the reaction to an attempt that failed with `error`.
pub(crate) fn decide(error: &Error) -> RetryDecision {
    match error {
        error if error.is_retryable() => RetryDecision::Retry,
        // A closed connection stays closed.
        Error::Connection(duologue_rpc::Error::Closed(_)) => RetryDecision::Fallback,
        _ => RetryDecision::Fail,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn default_pauses() {
        let backoff = Backoff::new();
        let longest: Vec<u128> =
            (1..=5).filter_map(|n| backoff.pause(n, 1.0)).map(|p| p.as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800]);
        assert_eq!(Backoff::never().pause(1, 0.5), None);
        assert_eq!(Backoff::new().attempts(0), Backoff::never());
    }

    proptest! {
        #[test]
        fn pauses_stay_within_bounds_and_end(
            base in 0_u64..10_000, cap in 0_u64..100_000, attempts in 0_u32..100,
            failures in 1_u32..200, random in 0.0_f64..=1.0,
        ) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let backoff = Backoff::new().base(base).cap(cap).attempts(attempts);
            match backoff.pause(failures, random) {
                Some(pause) => {
                    prop_assert!(failures < attempts);
                    prop_assert!(pause <= cap);
                    prop_assert!(pause <= base.saturating_mul(1 << (failures - 1).min(31)));
                }
                None => prop_assert!(failures >= attempts.max(1)),
            }
        }
    }
}
