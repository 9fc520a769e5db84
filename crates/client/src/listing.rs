//! Lists of the agent's sessions.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_schema::{ListSessionsRequest, Meta, SessionInfo};
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};

use crate::connection::ConnectionInner;
use crate::error::{Error, Result};
use crate::limits::LISTED_PAGES;

/// A stream of the sessions that an agent knows. It requests pages as they are needed.
#[must_use = "a listing sends no request until it is polled"]
pub struct Listing {
    connection: Arc<ConnectionInner>,
    request: ListSessionsRequest,
    sessions: BoxStream<'static, Result<SessionInfo>>,
}

/// The state between two pages: the next request and the hashes of the cursors so far.
type Page = Option<(Arc<ConnectionInner>, ListSessionsRequest, HashSet<u64>)>;

impl Listing {
    pub(crate) fn new(connection: Arc<ConnectionInner>, cwd: Option<PathBuf>) -> Self {
        let mut request = ListSessionsRequest::default();
        request.cwd = cwd;
        Listing::of(connection, request)
    }

    /// Sets the `_meta` of each request, or its trace context. Call it before the first page is requested.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.request.meta = Some(meta.into());
        Listing::of(self.connection, self.request)
    }

    /// Sets the filter by the archive, which an agent excludes by default. Call it before the first page is requested.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] for an agent that does not advertise `sessionCapabilities.archive`.
    #[cfg(feature = "unstable")]
    pub fn archived(mut self, filter: duologue_schema::SessionArchiveFilter) -> Result<Self> {
        let offered = self.connection.agent().session_capabilities.archive.is_some();
        self.connection.require(offered, "sessionCapabilities.archive")?;
        self.request.archived = Some(filter);
        Ok(Listing::of(self.connection, self.request))
    }

    fn of(connection: Arc<ConnectionInner>, request: ListSessionsRequest) -> Self {
        let first = Some((connection.clone(), request.clone(), HashSet::new()));
        let hasher = RandomState::new();
        let pages = stream::try_unfold(first, move |page: Page| {
            let hasher = hasher.clone();
            async move {
                let Some((connection, mut request, mut seen)) = page else { return Ok::<_, Error>(None) };
                if seen.len() >= LISTED_PAGES {
                    return Err(Error::TooManyPages { limit: LISTED_PAGES });
                }
                let response = connection.call(&request).await?;
                // An agent that repeats a cursor would send the same pages forever.
                let more =
                    response.next_cursor.as_ref().is_some_and(|cursor| seen.insert(hasher.hash_one(cursor)));
                request.cursor = response.next_cursor;
                let sessions = stream::iter(response.sessions.into_iter().map(Ok));
                Ok(Some((sessions, more.then_some((connection, request, seen)))))
            }
        });
        Listing { connection, request, sessions: pages.try_flatten().boxed() }
    }

    /// Returns the next session, or `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no session.
    pub async fn next(&mut self) -> Option<Result<SessionInfo>> {
        self.sessions.next().await
    }

    /// Returns all sessions.
    ///
    /// # Errors
    ///
    /// The error with which the agent responds to a page, and [`Error::TooManyPages`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request for the current page.
    pub async fn all(self) -> Result<Vec<SessionInfo>> {
        self.sessions.try_collect().await
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

impl Stream for Listing {
    type Item = Result<SessionInfo>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.sessions.poll_next_unpin(cx)
    }
}
