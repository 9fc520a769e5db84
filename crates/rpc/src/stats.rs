//! Counters of a connection.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of input and of irregular messages since the start of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Lines that were not messages.
    pub noise: u64,
    /// Responses to requests that had been answered, had been cancelled, or were never sent.
    pub stray_responses: u64,
    /// Lines in which half a surrogate pair was replaced.
    pub repaired: u64,
    /// Messages that were dropped because they were malformed or their handler panicked.
    pub dropped: u64,
    /// Requests that were rejected because of their number, their bytes or a repeated id.
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

    pub(crate) fn count(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Relaxed);
    }
}
