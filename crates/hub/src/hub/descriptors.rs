//! Warnings about requests that fail because the limit of open files is reached.

use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_store::Error as StoreError;
use tokio::time::Instant;

use super::HubShared;
use crate::error::Error;

/// The time in which the warning is logged once.
const PERIOD: Duration = Duration::from_secs(10);

/// The errors of the system for too many open files, of a process and of all together.
const TOO_MANY: [i32; 2] = if cfg!(windows) { [4, 4] } else { [24, 23] };

impl HubShared {
    /// Logs an error if the limit of open files is its reason. Clients learn of each, and the operator of one in a while.
    pub(crate) fn note_failure(&self, error: &Error) {
        if !lacks_descriptors(error) {
            return;
        }
        let mut last = self.last_warning.lock_unpoisoned();
        if last.is_none_or(|last| last.elapsed() >= PERIOD) {
            *last = Some(Instant::now());
            tracing::warn!(%error, "a request has failed at the limit of open files; raise it (`ulimit -n`, and `fs.file-max` for all programs together), or close sessions");
        }
    }
}

fn lacks_descriptors(error: &Error) -> bool {
    let error = match error {
        Error::Introduction(error) | Error::LogFailed(error) => return lacks_descriptors(error),
        Error::Start(duologue_client::Error::Spawn { error, .. })
        | Error::Log(StoreError::File { error, .. })
        | Error::Folder { error, .. } => error,
        _ => return false,
    };
    error.raw_os_error().is_some_and(|code| TOO_MANY.contains(&code))
}
