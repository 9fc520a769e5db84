//! The clock of the hub.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duologue_store::StoreTime;
use tokio::time::Instant;

/// The clock of a hub and its store: a monotonic time since its creation, and the time of day.
///
/// Both parts follow tokio's clock in tests that pause it, if it was created with [`following_tokio`](Self::following_tokio).
/// An open store needs one clock for all of its calls. Copies are the same clock.
#[derive(Clone, Copy, Debug)]
pub struct HubClock {
    start: Instant,
    wall: WallTime,
}

/// The source of the time of day.
#[derive(Clone, Copy, Debug)]
enum WallTime {
    /// So many ms since 1970 at the start, and tokio's clock from there on.
    FollowingTokio(u64),
    Read(fn() -> u64),
}

impl HubClock {
    /// Creates a clock with the time of day of the system.
    #[must_use]
    pub fn system() -> Self {
        let system = || millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        HubClock::with_wall(system)
    }

    /// Creates a clock whose time of day is read from a function, in ms since 1970.
    #[must_use]
    pub fn with_wall(wall_ms: fn() -> u64) -> Self {
        HubClock { start: Instant::now(), wall: WallTime::Read(wall_ms) }
    }

    /// Creates a clock whose time of day is `wall_ms` now, in ms since 1970, and follows tokio's clock from here on.
    #[must_use]
    pub fn following_tokio(wall_ms: u64) -> Self {
        HubClock { start: Instant::now(), wall: WallTime::FollowingTokio(wall_ms) }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        let now = self.start.elapsed();
        let wall = match self.wall {
            WallTime::FollowingTokio(start) => start.saturating_add(millis(now)),
            WallTime::Read(read) => read(),
        };
        StoreTime::new(now, wall)
    }

    /// Returns the moment of tokio's clock for a monotonic time of this clock.
    pub(crate) fn instant(&self, at: Duration) -> Option<Instant> {
        self.start.checked_add(at)
    }
}

/// Returns whole milliseconds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
