//! The limits on the disk: the bytes of all logs and of those of a principal, and the age of sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_schema::SessionId;
use duologue_store::IndexQuery;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Hub, HubShared, LOG_RELEASED};
use crate::error::Error;

/// The time for which a sum of the sizes of logs is used. Adding them up reads the size of each file.
const SIZE_AGE: Duration = Duration::from_secs(10);

/// The bytes of logs: those of a principal, or of all.
pub(super) type DiskUse = HashMap<Option<Arc<str>>, RecentBytes>;

/// A sum, and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentBytes {
    bytes: u64,
    at: Instant,
}

impl Hub {
    /// Removes the sessions that were not changed for `age`, with their logs. Sessions that are open stay, and a log that a
    /// client reads. Returns the number of removed sessions.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the index fails or a file cannot be removed. The other sessions are removed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the remaining sessions. No session is removed in part.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(hub: duologue_hub::Hub) -> Result<(), duologue_hub::Error> {
    /// const DAY: Duration = Duration::from_secs(24 * 3600);
    /// let removed = hub.remove_old(30 * DAY).await?;
    /// println!("{removed} sessions were older than 30 days");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove_old(&self, age: Duration) -> Result<usize, Error> {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let before = now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let (mut removed, mut failed) = (0, None);
        let sessions = self.shared.every(IndexQuery::default()).await?;
        for old in sessions.into_iter().filter(|session| session.updated < before) {
            match self.shared.remove_if_old(&SessionId::from(old.id), before).await {
                Ok(is_removed) => removed += usize::from(is_removed),
                // The others do not wait for it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(removed), Err)
    }
}

impl HubShared {
    /// Removes a session unless it is open or was changed since. Returns whether it was removed.
    async fn remove_if_old(self: &Arc<Self>, id: &SessionId, before: u64) -> Result<bool, Error> {
        let gate = self.gate(id);
        let _alone = gate.lock().await;
        let is_open = {
            let sessions = self.sessions.lock_unpoisoned();
            sessions.live.get(id).is_some_and(|live| !live.commands.is_closed())
        };
        if is_open {
            return Ok(false);
        }
        let name = id.as_str().to_owned();
        let entry = self.in_index(move |index| index.get(&name)).await?;
        if entry.is_none_or(|session| session.updated >= before) {
            return Ok(false);
        }
        match self.remove_closed(id, LOG_RELEASED).await {
            Ok(()) => Ok(true),
            // A client reads it. It is removed the next time.
            Err(Error::Log(duologue_store::Error::InUse { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses a new session of a principal if its logs, or all, have reached their limit.
    pub(super) async fn check_disk(self: &Arc<Self>, principal: &Arc<str>) -> Result<(), Error> {
        let limit = self.settings.disk_bytes;
        if self.log_bytes(None).await? >= limit {
            tracing::warn!(limit, "a session was refused: the logs have reached their limit");
            return Err(Error::Disk { limit });
        }
        let limit = self.settings.principal_disk_bytes;
        if limit < self.settings.disk_bytes && self.log_bytes(Some(principal)).await? >= limit {
            tracing::warn!(limit, %principal, "a session was refused: the logs of its principal have reached their limit");
            return Err(Error::PrincipalDisk { limit });
        }
        Ok(())
    }

    /// Returns the bytes of the logs of a principal, or of all, at some time of the last seconds.
    async fn log_bytes(self: &Arc<Self>, principal: Option<&Arc<str>>) -> Result<u64, Error> {
        let key = principal.cloned();
        if let Some(recent) = self.disk_use.lock_unpoisoned().get(&key)
            && recent.at.elapsed() < SIZE_AGE
        {
            return Ok(recent.bytes);
        }
        let sessions = match principal {
            Some(principal) => Some(self.all_of(principal).await?),
            None => None,
        };
        let hub = self.clone();
        let bytes = tokio::task::spawn_blocking(move || match sessions {
            Some(sessions) => Ok(sessions.iter().map(|session| hub.logs.log_bytes(&session.id)).sum()),
            None => hub.logs.disk_bytes(),
        });
        let bytes = bytes.await.map_err(|_| Error::Closed)??;
        let mut sums = self.disk_use.lock_unpoisoned();
        sums.retain(|_, recent| recent.at.elapsed() < SIZE_AGE);
        sums.insert(key, RecentBytes { bytes, at: Instant::now() });
        Ok(bytes)
    }
}
