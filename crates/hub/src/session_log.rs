//! The logs of sessions for readers that are no clients of ACP.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::SessionId;
use duologue_store::{IndexPage, IndexQuery, IndexedSession, Log as _, LogPage};

use crate::error::Error;
use crate::hub::{Hub, read_behind_damage};

/// A part of the log of a session.
#[derive(Debug)]
#[non_exhaustive]
pub struct SessionLogPage {
    /// The records, which [`LogEntry::read`](crate::LogEntry::read) parses.
    pub page: LogPage,
    /// True if the session runs in this process, so more records can follow.
    pub is_live: bool,
}

impl Hub {
    /// Lists sessions, the one that was changed last first.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the index fails or does not know the cursor.
    pub async fn sessions(&self, query: IndexQuery) -> Result<IndexPage, Error> {
        self.shared.in_index(move |index| index.list(&query)).await
    }

    /// Returns a session of a principal.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the index fails.
    pub async fn find_session(&self, principal: &str, id: &str) -> Result<Option<IndexedSession>, Error> {
        self.shared.indexed(&principal.into(), &SessionId::from(id)).await
    }

    /// Returns the id of the session of a principal that has a state. Of several it is the one that was changed last.
    #[cfg(feature = "gateway")]
    pub(crate) async fn session_in_state(
        &self,
        principal: &str,
        state: &str,
    ) -> Result<Option<String>, Error> {
        let mut query = IndexQuery::default();
        (query.owner, query.state, query.limit) = (Some(principal.to_owned()), Some(state.to_owned()), 1);
        Ok(self.sessions(query).await?.sessions.pop().map(|session| session.id))
    }

    /// Sets the state of a session in the index.
    #[cfg(feature = "gateway")]
    pub(crate) async fn set_state(&self, id: &str, state: String) -> Result<(), Error> {
        let id = id.to_owned();
        self.shared.in_index(move |index| index.update(&id, |session| session.state = state)).await
    }

    /// Returns true if a session of a principal runs in this process.
    #[cfg(feature = "gateway")]
    pub(crate) fn is_live(&self, principal: &str, id: &str) -> bool {
        self.shared.live(&principal.into(), &SessionId::from(id)).is_some()
    }

    /// Returns if the agent of a session is there, which changes with its process. The session runs in this process.
    #[cfg(feature = "gateway")]
    pub(crate) fn agent_presence(
        &self,
        principal: &str,
        id: &str,
    ) -> Option<tokio::sync::watch::Receiver<bool>> {
        Some(self.shared.live(&principal.into(), &SessionId::from(id))?.has_agent)
    }

    /// Removes a session of a principal with its log. If it runs, it ends. One that does not exist counts as removed.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if a file cannot be removed.
    pub async fn erase_session(&self, principal: &str, id: &str) -> Result<(), Error> {
        self.shared.delete(&principal.into(), &SessionId::from(id)).await
    }

    /// Reads records of the log of a session behind a position, at most `max_bytes` of them but at least one. If there is
    /// none yet, it waits up to `wait` for the next one of a session that runs.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSession`] for a session of another principal too. [`Error::Log`] if the log cannot be read, also for
    /// a position whose records were removed. [`Error::LogLost`] if no record of it can be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn read_log(
        &self,
        principal: &str,
        id: &str,
        after: u64,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<SessionLogPage, Error> {
        let (principal, id) = (Arc::<str>::from(principal), SessionId::from(id));
        self.shared.indexed(&principal, &id).await?.ok_or(Error::UnknownSession)?;
        let live = self.shared.live(&principal, &id);
        let mut visible = None;
        if let Some(live) = &live {
            let mut positions = live.visible.clone();
            // The session can end meanwhile.
            let next = positions.wait_for(|visible| *visible > after);
            let _ = tokio::time::timeout(wait, next).await;
            visible = Some(*positions.borrow());
        }
        let hub = self.shared.clone();
        let read = move || -> Result<LogPage, Error> {
            let page = match hub.known_log(&id) {
                Some(log) => read_behind_damage(&id, after, |after| log.read(after, max_bytes)),
                // Opening it would begin another life of it.
                None => {
                    let log = hub.snapshot(&id)?;
                    read_behind_damage(&id, after, |after| log.read(after, max_bytes))
                }
            };
            Ok(page?)
        };
        let mut page = tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)??;
        // Records that are not synced yet are not shown, as clients do not get them either.
        if let Some(visible) = visible {
            page.records.retain(|record| record.position.number() <= visible);
        }
        Ok(SessionLogPage { page, is_live: live.is_some_and(|live| !live.commands.is_closed()) })
    }
}
