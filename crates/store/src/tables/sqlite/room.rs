//! The room for new records: the bytes of a principal, and those of the disk.

use std::path::Path;

use rusqlite::OptionalExtension as _;

use super::rows::{int, uint};
use super::writer::{ChangeStep, OpenChange};
use crate::disk::free_bytes;
use crate::error::Error;

/// Refuses a batch with something new of these principals if the records of one have all their bytes, or the disk has little room
/// left. It comes after the changes, whose bytes count.
pub(super) fn require(change: &OpenChange<'_>, mut principals: Vec<String>) -> ChangeStep<()> {
    if principals.is_empty() {
        return Ok(());
    }
    principals.sort_unstable();
    principals.dedup();
    let limit = change.settings.bytes_per_principal;
    for principal in principals {
        let text = "SELECT bytes FROM stored WHERE principal = ?1";
        let bytes: Option<i64> =
            change.prepare(text)?.query_row([&principal], |row| row.get(0)).optional()?;
        if bytes.is_some_and(|bytes| bytes > int(limit)) {
            return Err(Error::BytesReached { principal, limit }.into());
        }
    }
    require_disk(change)
}

fn require_disk(change: &OpenChange<'_>) -> ChangeStep<()> {
    let reserved = change.settings.reserved_bytes;
    // A store in memory has no path.
    let path = change.database.path().filter(|path| !path.is_empty());
    let Some(free) = path.and_then(|path| free_bytes(Path::new(path))) else { return Ok(()) };
    if free >= reserved {
        return Ok(());
    }
    // The room of removed records is used again.
    let text = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
    let free = free.saturating_add(uint(change.prepare(text)?.query_row([], |row| row.get(0))?));
    if free >= reserved {
        return Ok(());
    }
    let setting = "`limits.reserved_disk_bytes` (`StoreSettings::reserved_bytes`)";
    Err(Error::DiskReserve { free, reserved, setting }.into())
}
