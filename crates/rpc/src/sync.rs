//! Locks, atomics, notifications and tasks. The models of `interleavings` replace them by those of loom.

use std::sync::PoisonError;

#[cfg(not(all(test, duologue_loom)))]
pub(crate) use self::real::*;
#[cfg(not(all(test, duologue_loom)))]
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
    // Loom models start no tasks.
    pub(crate) use tokio::spawn;
    pub(crate) use tokio::task::JoinHandle;

    pub(crate) use crate::interleavings::notify::ModelNotify as Notify;
}

/// Locks a mutex even if it is poisoned. The guarded values are consistent at every point that can panic.
pub trait Lock<T> {
    /// Waits for the lock and ignores poisoning.
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T>;
}

impl<T> Lock<T> for Mutex<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
