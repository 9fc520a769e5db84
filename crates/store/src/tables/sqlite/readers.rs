//! The connections for queries.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

use duologue_rpc::Lock as _;
use rusqlite::Connection;

use super::connect;

/// The lists that are read at once. One that takes long leaves a connection to the others.
const LISTS: usize = 2;

/// The connections for queries. Lists have their own, so no other query waits for them.
#[derive(Debug)]
pub(super) struct StoreReaders {
    records: Mutex<Connection>,
    lists: [Mutex<Connection>; LISTS],
}

impl StoreReaders {
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let reader = || -> rusqlite::Result<_> {
            let reader = connect(path)?;
            reader.pragma_update(None, "query_only", true)?;
            Ok(Mutex::new(reader))
        };
        Ok(StoreReaders { records: reader()?, lists: [reader()?, reader()?] })
    }

    /// Returns the connection for single records.
    pub(super) fn records(&self) -> MutexGuard<'_, Connection> {
        self.records.lock_unpoisoned()
    }

    /// Returns a connection for a list: a free one, or the first when it is free.
    pub(super) fn list(&self) -> MutexGuard<'_, Connection> {
        let free = self.lists.iter().find_map(|reader| match reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| self.lists[0].lock_unpoisoned())
    }
}
