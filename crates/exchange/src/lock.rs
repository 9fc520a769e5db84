//! A lock that survives panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic while it was held is no reason to stop: what our locks guard is always left whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
