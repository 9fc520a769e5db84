//! The view of a session for a reader: its messages, tool calls and requests, each once, from the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_schema::printable;
use duologue_store::{JsonText, LogRecord};
use duologue_transcript::view::TranscriptView;
use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, Transcript};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::{IntoParams, ToSchema};

use crate::LogEntry;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::response_room::{ResponseRoom, ResponseRooms};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::session_log::{LogFilter, PAGE_BYTES, log_refusal};
use crate::gateway::rest::sessions::{SessionTarget, own_session};
use crate::gateway::rest::values::{PageLimit, PageOffset, Pagination, RestNumber};
use crate::gateway::{Refusal, RefusalCode};
use crate::hub::Hub;

/// The views that are kept. Together they show at most [`RestSessionView::LOG_BYTES`].
const KEPT_VIEWS: usize = 8;
/// The views that are built at a time.
const BUILT_AT_A_TIME: usize = 2;

/// A page of the view of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionView)]
#[non_exhaustive]
pub struct RestSessionView {
    /// The id of the session.
    pub session_id: String,
    /// The items, in the order in which they began: a message with all its chunks, a tool call with all its updates, a
    /// request or a response. `kind`, `name`, `text`, `outcome` and `parts` are for a reader, `at` and `until` are its times
    /// in microseconds since the log began, and `frames` are the numbers of its records in the log.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<JsonText>,
    /// The place of the page.
    pub pagination: Pagination,
    /// The number of the last record of the view, which is `after` for the next part of the log.
    pub next: u64,
    /// True if the log was too long for one view, so that another part follows.
    pub more: bool,
    /// True if the session runs, so that more records can follow.
    pub live: bool,
}

impl RestSessionView {
    /// The bytes of the log that a view shows. Another view shows what follows.
    pub const LOG_BYTES: usize = 64 << 20;
    /// The records of the log that a view shows.
    pub const LOG_RECORDS: usize = 250_000;
}

/// The part of the log, and the place of a page in its view.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct SessionViewFilter {
    /// The number of the record in front of the view. The log begins behind 0, which is the default.
    #[param(inline)]
    pub after: Option<RestNumber>,
    /// The number of items in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most items of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Returns a page of the view of a session of the caller: its messages, tool calls and requests, each once.
///
/// Text is shown as a reader sees it: control characters are escaped. The records themselves are in the log.
#[utoipa::path(
    get, path = "/sessions/{sessionId}/view", tag = "sessions", params(SessionTarget, SessionViewFilter),
    responses(
        (status = 200, body = RestSessionView, description = "A page of items."),
        (status = 410, body = crate::gateway::rest::RefusalBody, description = "The records behind `after` are not there: they were removed, or have never been."),
    ),
)]
pub(crate) async fn get_session_view(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
    QueryOf(filter): QueryOf<SessionViewFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let (hub, session) = own_session(&caller, &session_id).await?;
    let after = filter.after.map_or(0, |after| after.0);
    let key = ViewKey { owner: session.owner, session: session.id, after };
    let (view, live) = caller.rest.views.get(&hub, key, caller.id()).await?;
    let (offset, limit) = (filter.offset.0, filter.limit.0);
    let total = view.items.len() as u64;
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let taken = usize::try_from(limit).unwrap_or(usize::MAX);
    let room = caller.gateway().store.settings().page_bytes;
    let items = fitting(view.items.iter().skip(skipped).take(taken), room);
    let pagination = Pagination { offset, limit, total };
    let page = RestSessionView { session_id, items, pagination, next: view.end, more: view.more, live };
    Ok(admission.until_sent(RestReply::ok(&page)?))
}

/// Returns the first items, up to so many bytes. There is one if there is any.
fn fitting<'a>(items: impl Iterator<Item = &'a JsonText>, room: usize) -> Vec<JsonText> {
    let mut bytes = 0;
    let fits = |item: &&JsonText| {
        let is_first = bytes == 0;
        bytes += item.as_str().len();
        is_first || bytes <= room
    };
    items.take_while(fits).cloned().collect()
}

/// A line of a session for a reader.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionLine)]
#[non_exhaustive]
pub struct RestSessionLine {
    /// The number of its record in the log.
    pub number: u64,
    /// The time in microseconds since the log began.
    pub at: u64,
    /// The side that wrote it: `client` or `agent`.
    pub from: String,
    /// The message as it was written. Control characters are escaped.
    pub text: String,
}

/// Lines of a session for a reader.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionLines)]
#[non_exhaustive]
pub struct RestSessionLines {
    /// The lines. An event of the server alone has none.
    pub lines: Vec<RestSessionLine>,
    /// The value of `after` for the next lines. The log ends there if it is that of the request.
    pub next: u64,
}

/// Returns the lines of a session of the caller for a reader, by the numbers of their records.
#[utoipa::path(
    get, path = "/sessions/{sessionId}/view/lines", tag = "sessions", params(SessionTarget, LogFilter),
    responses(
        (status = 200, body = RestSessionLines, description = "The lines."),
        (status = 410, body = crate::gateway::rest::RefusalBody, description = "The records behind `after` are not there: they were removed, or have never been."),
    ),
)]
pub(crate) async fn get_session_lines(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
    QueryOf(filter): QueryOf<LogFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let (hub, session) = own_session(&caller, &session_id).await?;
    let mut next = filter.after.map_or(0, |after| after.0);
    let key = ViewKey { owner: session.owner, session: session.id, after: next };
    let (mut records, _) = read(&hub, &key, next, PAGE_BYTES).await?;
    records.truncate(usize::try_from(filter.limit.0).unwrap_or(usize::MAX));
    let mut lines = Vec::new();
    for record in &records {
        next = record.position.number();
        if let Ok(LogEntry { at, frame: Some((from, frame)), .. }) = LogEntry::read(&record.line) {
            let text = printable(frame.get()).into_owned();
            lines.push(RestSessionLine { number: next, at, from: from.name().to_owned(), text });
        }
    }
    Ok(admission.until_sent(RestReply::ok(&RestSessionLines { lines, next })?))
}

/// The views that were used last.
pub(crate) struct SessionViews {
    kept: Mutex<Vec<(ViewKey, Arc<BuiltView>)>>,
    building: Arc<Semaphore>,
    /// The turns of principals, of which each builds one view at a time.
    turns: ResponseRooms,
}

impl Default for SessionViews {
    fn default() -> Self {
        let building = Arc::new(Semaphore::new(BUILT_AT_A_TIME));
        SessionViews { kept: Mutex::default(), building, turns: ResponseRooms::new(1) }
    }
}

/// The place of a view that is built.
struct BuildPlace {
    _turn: ResponseRoom,
    _permit: OwnedSemaphorePermit,
}

/// A part of the log of a session.
#[derive(Clone, PartialEq, Eq)]
struct ViewKey {
    owner: String,
    session: String,
    /// The number of the record in front of the part.
    after: u64,
}

/// A view of a part of a log.
struct BuiltView {
    items: Vec<JsonText>,
    /// The number of its last record.
    end: u64,
    more: bool,
    /// The bytes of the log that it shows.
    bytes: usize,
}

impl SessionViews {
    /// Forgets the views of a session that was erased, or of all sessions of an owner.
    pub(crate) fn forget(&self, owner: &str, session: Option<&str>) {
        let is_of =
            |key: &ViewKey| key.owner == owner && session.is_none_or(|session| key.session == session);
        self.kept.lock_unpoisoned().retain(|(key, _)| !is_of(key));
    }

    /// Waits for the turn of an owner, then for the place of a view.
    async fn place(&self, principal: &str) -> Result<BuildPlace, Refusal> {
        let turn = self.turns.take(&Arc::from(principal), 1).await;
        let closed = |_| Refusal::new(RefusalCode::Internal, "the server is being stopped");
        let permit = self.building.clone().acquire_owned().await.map_err(closed)?;
        Ok(BuildPlace { _turn: turn, _permit: permit })
    }

    /// Returns the view of a part of a log, and true if the session runs. It is built again if the log has grown.
    async fn get(&self, hub: &Hub, key: ViewKey, caller: &str) -> Result<(Arc<BuiltView>, bool), Refusal> {
        let kept = || {
            let kept = self.kept.lock_unpoisoned();
            kept.iter().find(|(other, _)| *other == key).map(|(_, view)| view.clone())
        };
        if let Some(view) = kept() {
            let (records, live) = read(hub, &key, view.end, 1).await?;
            if view.more || records.is_empty() {
                return Ok((view, live));
            }
        }
        let place = self.place(caller).await?;
        let (lines, mut live) = (PartOfLog::read(hub, &key).await?, false);
        // Another request may have built it meanwhile.
        let view = match kept().filter(|view| view.end == lines.end) {
            Some(view) => view,
            None => Arc::new(lines.into_view(place).await?),
        };
        if let Ok((_, is_live)) = read(hub, &key, view.end, 1).await {
            live = is_live;
        }
        let mut kept = self.kept.lock_unpoisoned();
        kept.retain(|(other, _)| *other != key);
        kept.insert(0, (key, view.clone()));
        // The last one is kept in any case: a part of a long log has a little more bytes than the limit.
        let mut bytes = 0;
        kept.truncate(KEPT_VIEWS);
        kept.retain(|(_, view)| {
            let fits = bytes == 0 || bytes + view.bytes <= RestSessionView::LOG_BYTES;
            bytes += if fits { view.bytes } else { 0 };
            fits
        });
        Ok((view, live))
    }
}

/// Reads records of a log, and returns true with them if the session runs.
async fn read(hub: &Hub, key: &ViewKey, after: u64, bytes: usize) -> Result<(Vec<LogRecord>, bool), Refusal> {
    let read = hub.read_log(&key.owner, &key.session, after, bytes, Duration::ZERO);
    let read = read.await.map_err(log_refusal)?;
    Ok((read.page.records, read.is_live))
}

/// The frames of a part of a log.
struct PartOfLog {
    frames: Vec<Record>,
    /// The numbers of the frames in the log.
    numbers: Vec<u64>,
    end: u64,
    more: bool,
    bytes: usize,
}

impl PartOfLog {
    async fn read(hub: &Hub, key: &ViewKey) -> Result<Self, Refusal> {
        let (frames, numbers) = (Vec::new(), Vec::new());
        let mut part = PartOfLog { frames, numbers, end: key.after, more: false, bytes: 0 };
        let mut records = 0;
        loop {
            let (page, _) = read(hub, key, part.end, PAGE_BYTES).await?;
            if page.is_empty() {
                return Ok(part);
            }
            for record in page {
                if part.bytes >= RestSessionView::LOG_BYTES || records >= RestSessionView::LOG_RECORDS {
                    part.more = true;
                    return Ok(part);
                }
                records += 1;
                part.add(&record);
            }
        }
    }

    /// Adds the frame of a record. An event of the server alone is not shown.
    fn add(&mut self, record: &LogRecord) {
        self.end = record.position.number();
        self.bytes += record.line.len();
        let Ok(LogEntry { at, frame: Some((from, frame)), .. }) = LogEntry::read(&record.line) else {
            return;
        };
        let line = RecordedLine::new(from, frame.get().as_bytes());
        self.frames.push(Record::new(Duration::from_micros(at), RecordEvent::Line(line)));
        self.numbers.push(self.end);
    }

    /// Builds the view on a thread of its own, which has the place: it goes on if the client has left.
    async fn into_view(self, place: BuildPlace) -> Result<BuiltView, Refusal> {
        let build = move || {
            let _place = place;
            let PartOfLog { frames, numbers, end, more, bytes } = self;
            let mut view = TranscriptView::without_frames(&Transcript::new(Header::new("hub"), frames));
            let items = view.items.iter_mut().map(|item| {
                for frame in &mut item.frames {
                    *frame = numbers.get(*frame).map_or(0, |number| usize::try_from(*number).unwrap_or(0));
                }
                JsonText::of(item)
            });
            let items = items.collect::<Result<_, _>>()?;
            Ok::<_, duologue_store::Error>(BuiltView { items, end, more, bytes })
        };
        let panicked = |_| Refusal::new(RefusalCode::Internal, "the view could not be built");
        Ok(tokio::task::spawn_blocking(build).await.map_err(panicked)??)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_principal_builds_one_view_at_a_time() {
        let views = SessionViews::default();
        let now = |owner| views.place(owner).now_or_never();
        let place = now("alice");
        assert!(place.is_some() && now("alice").is_none() && now("bob").is_some());
        drop(place);
        assert!(now("alice").is_some());
    }

    #[test]
    fn a_page_of_a_view_ends_before_its_bytes() {
        let items = [1_000_u32, 2_000, 3_000].map(|number| JsonText::of(&number).unwrap());
        let count = |room| fitting(items.iter(), room).len();
        assert_eq!([0, 4, 7, 8, 11, 12].map(count), [1, 1, 1, 2, 2, 3]);
        assert!(fitting([].iter(), 4).is_empty());
    }
}
