//! A lock that survives panics: what it guards is always left whole.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) trait Lock<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T>;
}

impl<T> Lock<T> for Mutex<T> {
    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
