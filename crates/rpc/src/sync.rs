//! Locks, atomics, notices and tasks by one name each, so that the models of `interleavings` can put
//! loom's or shuttle's in their place.

use std::sync::PoisonError;

#[cfg(not(all(test, any(duologue_loom, duologue_shuttle))))]
pub(crate) use self::real::*;
#[cfg(not(all(test, any(duologue_loom, duologue_shuttle))))]
mod real {
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

    pub(crate) use tokio::spawn;
    pub(crate) use tokio::sync::Notify;
    pub(crate) use tokio::task::JoinHandle;
}

#[cfg(all(test, duologue_loom))]
pub(crate) use self::loomed::*;
#[cfg(all(test, duologue_loom))]
mod loomed {
    pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
    // Tasks are not started in a loom model.
    pub(crate) use tokio::spawn;
    pub(crate) use tokio::task::JoinHandle;

    pub(crate) use crate::interleavings::notify::Notify;
}

#[cfg(all(test, duologue_shuttle))]
pub(crate) use self::shuttled::*;
#[cfg(all(test, duologue_shuttle))]
mod shuttled {
    pub(crate) use shuttle::future::{JoinHandle, spawn};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
    // One step each: tokio's own models look inside.
    pub(crate) use tokio::sync::Notify;
}

/// A lock that survives panics: what it guards is always left whole.
pub(crate) trait Lock<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T>;
}

impl<T> Lock<T> for Mutex<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
