//! What a connection saw that was not worth an error.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of input, and of odd but survivable things, since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of input so far.
    pub bytes_read: u64,
    /// Lines that were no message.
    pub noise: u64,
    /// Responses to requests that were answered, cancelled or never made.
    pub stray_responses: u64,
    /// Lines in which half a surrogate pair was replaced.
    pub repaired: u64,
    /// Messages that were dropped because their stream had ended or their params did not fit.
    pub dropped: u64,
    /// Requests refused because too many were in flight.
    pub refused: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        #[derive(Debug, Default)]
        pub(crate) struct StatCounters { $(pub(crate) $name: StatCounter),* }
        impl StatCounters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Relaxed)),* }
            }
        }
    };
}
counters!(bytes_read, noise, stray_responses, repaired, dropped, refused);

#[derive(Debug, Default)]
pub(crate) struct StatCounter(AtomicU64);

impl StatCounter {
    pub(crate) fn add(&self) {
        self.count(1);
    }

    pub(crate) fn count(&self, many: usize) {
        self.0.fetch_add(many as u64, Relaxed);
    }
}
