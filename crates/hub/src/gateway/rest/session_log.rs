//! The logs of sessions: pages of records, and streams of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use duologue_store::{Error as StoreError, JsonText, LogRecord};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::Error;
use crate::gateway::rest::admission::RestAdmission;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::sessions::{SessionTarget, own_session};
use crate::gateway::rest::task_events::{KEEP_ALIVE, event};
use crate::gateway::rest::values::{PageLimit, RestNumber, event_number};
use crate::gateway::{Refusal, RefusalCode};
use crate::hub::Hub;

/// The bytes of records that are read at a time, and the most of a page unless its first record is longer.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// The same, of a stream. Each stream can have so many that its client does not take.
pub(crate) const STREAM_BYTES: usize = 128 << 10;
/// The time in which a stream waits for the next record before it looks again if the session runs.
const WAIT: Duration = Duration::from_secs(60);

/// A record of a session's log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionLogRecord)]
#[non_exhaustive]
pub struct RestLogRecord {
    /// The number, from 1. Records keep their numbers.
    pub number: u64,
    /// The record as it is in the log, which is a transcript: `at` is its time in microseconds since the log began,
    /// `from` and `frame` are a message and its side, and `hub` is an event of the server.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub record: JsonText,
}

impl RestLogRecord {
    /// Returns `None` for a damaged record.
    pub(crate) fn read(record: &LogRecord) -> Option<Self> {
        let text = String::from_utf8(record.line.to_vec()).ok()?;
        Some(RestLogRecord { number: record.position.number(), record: JsonText::new(text).ok()? })
    }
}

/// A page of the log of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionLogPage)]
#[non_exhaustive]
pub struct RestLogPage {
    /// The records, in order. The page after the last record is empty.
    pub records: Vec<RestLogRecord>,
    /// The value of `after` for the next page.
    pub next: u64,
    /// True if the session runs, so that more records can follow.
    pub live: bool,
}

/// The place of a page in the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct LogFilter {
    /// The number of the record in front of the page. The log begins behind 0, which is the default.
    #[param(inline)]
    pub after: Option<RestNumber>,
    /// The most records of a page. A stream has all.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Returns the log of a session of the caller: a page, or with `Accept: text/event-stream` a stream.
///
/// A stream has the event `record` for each record, with its number as the id, and goes on while the session runs. The
/// event `end` has the number of the last record. A client that connects again sends `Last-Event-ID`, and is answered
/// with 204 if the session does not run and nothing has followed.
#[utoipa::path(
    get, path = "/sessions/{sessionId}/log", tag = "sessions",
    params(
        SessionTarget, LogFilter,
        ("Accept" = Option<String>, Header, description = "`text/event-stream` for a stream."),
        ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{0,15}$", description = "The number of the last record that the client has received, or nothing. It replaces `after` in a stream."),
    ),
    responses(
        (status = 200, content((RestLogPage = "application/json"), (String = "text/event-stream")), description = "A page, or the events."),
        (status = 204, description = "The client of a stream has received everything, and the session does not run."),
        (status = 410, body = crate::gateway::rest::RefusalBody, description = "The records behind `after` are not there: they were removed, or have never been."),
    ),
)]
pub(crate) async fn get_session_log(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
    QueryOf(filter): QueryOf<LogFilter>,
) -> Result<Response, Refusal> {
    let last = caller.last_event_id(event_number)?;
    let (hub, session) = own_session(&caller, &session_id).await?;
    let after = filter.after.map_or(0, |after| after.0);
    let mut follower = LogFollower { hub, owner: session.owner, session: session.id, position: after };
    if !accepts_events(&caller) {
        let admission = caller.open_page().await?;
        let limit = usize::try_from(filter.limit.0).unwrap_or(usize::MAX);
        return Ok(admission.until_sent(page(&mut follower, limit).await?).into_response());
    }
    let admission = caller.admit()?;
    follower.position = last.unwrap_or(after);
    let first = follower.next(Duration::ZERO, STREAM_BYTES).await.map_err(log_refusal)?;
    if first.is_none() && last.is_some() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut events = LogEvents { admission, follower, waiting: VecDeque::new(), has_ended: false };
    events.add(first);
    let stream =
        unfold(events, |mut events| async move { Some((Ok::<_, Infallible>(events.next().await?), events)) });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

fn accepts_events(caller: &RestCaller) -> bool {
    let lines = caller.headers.get_all(ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    let mut types = lines.flat_map(|line| line.split(','));
    types.any(|accepted| accepted.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
}

async fn page(follower: &mut LogFollower, limit: usize) -> Result<RestReply, Refusal> {
    let after = follower.position;
    let read = follower.next(Duration::ZERO, PAGE_BYTES).await.map_err(log_refusal)?;
    let live = read.is_some();
    let mut found = read.unwrap_or_default();
    found.truncate(limit);
    let next = found.last().map_or(after, |record| record.position.number());
    let records = found.iter().filter_map(RestLogRecord::read).collect();
    RestReply::ok(&RestLogPage { records, next, live })
}

/// Returns the refusal of a request whose log cannot be read.
pub(crate) fn log_refusal(error: Error) -> Refusal {
    match error {
        Error::UnknownSession => Refusal::not_found("session"),
        Error::Log(StoreError::CursorGone { .. }) => Refusal::new(RefusalCode::Expired, error.to_string()),
        error => {
            tracing::error!(%error, "a session could not be read");
            let why = "the sessions cannot be read; the log of the server has the reason";
            Refusal::new(RefusalCode::Internal, why)
        }
    }
}

/// Reads the log of a session from a position on.
pub(crate) struct LogFollower {
    pub(crate) hub: Hub,
    pub(crate) owner: String,
    pub(crate) session: String,
    pub(crate) position: u64,
}

impl LogFollower {
    /// Returns the next records, up to so many bytes. If there is none yet, it waits for one of a session that runs. It is `None`
    /// if the session does not run and there are no more.
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn next(
        &mut self,
        wait: Duration,
        bytes: usize,
    ) -> Result<Option<Vec<LogRecord>>, Error> {
        // A session that ends meanwhile can have written more.
        for _ in 0..2 {
            let read = self.hub.read_log(&self.owner, &self.session, self.position, bytes, wait);
            let read = read.await?;
            if let Some(last) = read.page.last() {
                self.position = last.number();
            }
            if read.is_live || !read.page.records.is_empty() {
                return Ok(Some(read.page.records));
            }
        }
        Ok(None)
    }

    /// As [`next`](Self::next), for a stream, with a long wait.
    pub(crate) async fn wait(&mut self) -> Result<Option<Vec<LogRecord>>, Error> {
        self.next(WAIT, STREAM_BYTES).await
    }
}

struct LogEvents {
    admission: RestAdmission,
    follower: LogFollower,
    waiting: VecDeque<Event>,
    has_ended: bool,
}

/// The data of the `end` event.
#[derive(Serialize)]
struct LogEnd {
    number: u64,
}

impl LogEvents {
    fn add(&mut self, records: Option<Vec<LogRecord>>) {
        match records {
            Some(records) => self.waiting.extend(records.iter().filter_map(record_event)),
            None => {
                self.has_ended = true;
                let number = self.follower.position;
                self.waiting.extend(event("end", &LogEnd { number }).map(|end| end.id(number.to_string())));
            }
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            // After a failure the client connects again.
            let records = tokio::select! {
                records = self.follower.wait() => records.ok()?,
                () = self.admission.stopped() => return None,
            };
            self.add(records);
        }
    }
}

fn record_event(record: &LogRecord) -> Option<Event> {
    let record = RestLogRecord::read(record)?;
    Some(event("record", &record)?.id(record.number.to_string()))
}
