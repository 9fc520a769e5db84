//! The pauses between attempts.

use std::time::Duration;

/// A pause that doubles with each failure, up to a limit. Chance shortens it by up to a half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoublingPause {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl DoublingPause {
    /// Returns the pause after the first failure and so many others.
    pub(crate) fn after(self, others: u32) -> Duration {
        let pause = self.first.saturating_mul(2u32.saturating_pow(others)).min(self.longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
