//! The task that sends the records of a session's log to a client as frames.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::SessionId;
use duologue_store::{CursorGoneReason, Error as StoreError, Log as _, LogCursor, LogPage, LogPosition};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::abilities::Abilities;
use crate::child_sessions::is_in_session;
use crate::chunk_line;
use crate::error::Error;
use crate::hub::{behind_damage, leave_out};
use crate::load::{damage_notice, update_line};
use crate::open_log::OpenLog;
use crate::output::{ClientOutput, is_response_of_hub};
use crate::projection::{ClientView, position_of, project_entry};
use crate::record::{ClientKey, HubEvent, LogEntry};
use crate::routing::is_of_client_files;
use crate::session_task::LiveSession;

/// The time in which a client receives the last frames of a session that it has closed.
const LAST_FRAMES: Duration = Duration::from_secs(10);
/// Limit on the bytes of responses that wait for a client which does not read while its session is deleted.
const LATE_BYTES: usize = 4 << 20;

/// Sets the place at which a reader of a log ends.
#[derive(Clone, Debug)]
pub(crate) struct ReaderEnd(watch::Sender<Option<LastFrames>>);

impl ReaderEnd {
    fn new() -> Self {
        ReaderEnd(watch::Sender::new(None))
    }

    /// Ends the reader behind a position, unless an end is set already.
    pub(crate) fn set(&self, position: u64, is_replayed: bool) {
        self.0.send_if_modified(|last| {
            let is_new = last.is_none();
            last.get_or_insert(LastFrames { position, is_replayed });
            is_new
        });
    }
}

/// The last frames that a reader sends.
#[derive(Clone, Copy, Debug)]
struct LastFrames {
    position: u64,
    /// True if the client receives the conversation from others, or not at all. Only its responses are sent.
    is_replayed: bool,
}

/// The task of a [`LogReader`]. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct LogReaderTask {
    task: JoinHandle<()>,
    session: SessionId,
    /// Absent since the reader has begun to send.
    begin: Option<oneshot::Sender<()>>,
    end_at: ReaderEnd,
    /// Ends the connection of the client.
    end: Arc<Notify>,
}

impl LogReaderTask {
    /// Starts the task of a reader behind a position. It sends nothing before [`begin`](Self::begin).
    pub(crate) fn spawn(reader: LogReader, position: u64) -> Self {
        let (begin, begun) = oneshot::channel();
        let (end_at, end) = (ReaderEnd::new(), reader.end.clone());
        let session = reader.live.id.clone();
        let task = tokio::spawn(reader.run(position, end_at.0.subscribe(), begun));
        LogReaderTask { task, session, begin: Some(begin), end_at, end }
    }

    /// Returns the setter of the reader's end, for the task of the session.
    pub(crate) fn end_at(&self) -> ReaderEnd {
        self.end_at.clone()
    }

    /// Lets the reader send, behind the response that opens the session.
    pub(crate) fn begin(&mut self) {
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(());
        }
    }

    /// Waits until the responses up to a position are sent, as [`ended`](Self::ended).
    pub(crate) async fn finish(self, position: u64) {
        self.end_at.set(position, true);
        self.ended().await;
    }

    /// Waits for the end of the task. The connection of a client that does not read the rest in time is ended: it would
    /// wait for ever for the responses in it, and receives them when it resumes.
    pub(crate) async fn ended(mut self) {
        if timeout(LAST_FRAMES, &mut self.task).await.is_err() {
            tracing::warn!(session = %self.session, limit = ?LAST_FRAMES, "a client does not read the last frames of a session; it is disconnected");
            self.end.notify_one();
        }
    }
}

impl Drop for LogReaderTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the log of a session for a client.
pub(crate) struct LogReader {
    pub(crate) client: ClientKey,
    pub(crate) abilities: Abilities,
    pub(crate) live: LiveSession,
    pub(crate) log: Arc<OpenLog>,
    pub(crate) output: ClientOutput,
    /// Notified if the log cannot be read, or the client does not read its responses.
    pub(crate) end: Arc<Notify>,
}

impl LogReader {
    /// Sends the frames up to a position that a client has missed, without the requests of the agent that were answered: the
    /// client has acted on them. Behind damaged records it may have those for files and terminals that are open, so they are left
    /// out too.
    ///
    /// A question that is open is sent once. Its second record is the one of this attachment: it is for a client that has the
    /// question, whose answer may be lost with the older connection.
    ///
    /// # Errors
    ///
    /// [`Error::CursorGone`] if the log has lost the position of the client or frames behind it, in a power cut.
    pub(crate) async fn send_missed(
        &self,
        seen: SeenFrames,
        end: u64,
        open_requests: &BTreeSet<u64>,
    ) -> Result<(), Error> {
        let SeenFrames { position: cursor, frames: mut seen } = seen;
        let gone = |reason| Error::CursorGone { cursor, reason };
        let log = self.log.clone();
        let checked = tokio::task::spawn_blocking(move || log.check(cursor));
        let mut position = match checked.await.map_err(|_| Error::Closed)? {
            Ok(position) if position.number() <= end => position.number(),
            Ok(_) => return Err(gone(CursorGoneReason::BehindEnd { end: LogPosition::new(end) })),
            Err(StoreError::CursorGone { reason, .. }) => return Err(gone(reason)),
            Err(error) => return Err(error.into()),
        };
        let (mut is_damaged, mut unsent) = (false, open_requests.clone());
        while position < end {
            let PageFrames { frames, last, damaged, opened } = self.page(position, end).await?;
            if damaged > 0 {
                // They may be among those that the client has seen. It sees others twice rather than never.
                (seen, is_damaged) = (0, true);
            }
            if let Some((before, position)) = opened {
                // The frames of the client are of one life. The next one has other records under the numbers of lost ones.
                let of_life = frames.iter().take(before).filter(|frame| is_counted(frame, &self.live.id));
                if (of_life.count() as u64) < seen {
                    let last = LogPosition::new(position.saturating_sub(1));
                    return Err(gone(CursorGoneReason::Lost { last }));
                }
            }
            for frame in frames {
                if seen > 0 && is_counted(&frame, &self.live.id) {
                    seen -= 1;
                } else if self.is_sent_again(&frame, is_damaged, &mut unsent) {
                    self.output.send(frame).await;
                }
            }
            if last == position {
                break;
            }
            position = last;
        }
        Ok(())
    }

    /// Returns false for a request of the agent that was answered or is sent already, or on which the client may have acted.
    fn is_sent_again(&self, frame: &[u8], is_damaged: bool, unsent: &mut BTreeSet<u64>) -> bool {
        let Some(Ok(RpcMessage::Request { id, method, .. })) = RpcMessage::read(frame, &Limits::default())
        else {
            return true;
        };
        let position = RawValue::from_string(id.token().to_owned()).ok();
        let position = position.and_then(|id| position_of(&self.live.id, id.get()));
        position.is_some_and(|position| unsent.remove(&position))
            && !(is_damaged && is_of_client_files(&method))
    }

    async fn run(
        mut self,
        position: u64,
        last: watch::Receiver<Option<LastFrames>>,
        begun: oneshot::Receiver<()>,
    ) {
        let late = self.send(position, last, begun).await;
        let output = self.output.clone();
        // The log of a deleted session is not kept for a client that does not read.
        drop(self);
        for response in late {
            output.send(response).await;
        }
    }

    /// Sends the frames behind a position until the session ends, or until those of `last` are sent. Returns the responses
    /// for a client that does not read while the session is deleted. It does not receive the other frames.
    async fn send(
        &mut self,
        mut position: u64,
        mut last: watch::Receiver<Option<LastFrames>>,
        begun: oneshot::Receiver<()>,
    ) -> Vec<Vec<u8>> {
        let mut late = None;
        tokio::select! {
            biased;
            begun = begun => if begun.is_err() {
                return Vec::new();
            },
            () = self.log.deleted() => late = Some(Vec::new()),
        }
        loop {
            // In this order: what becomes visible behind the end is not read here.
            let visible = *self.live.visible.borrow_and_update();
            let end = last.borrow_and_update().map(|last| last.position);
            let readable = end.map_or(visible, |end| end.min(visible));
            while position < readable {
                match self.page(position, readable).await {
                    Ok(PageFrames { frames, last: read, .. }) => {
                        position = read;
                        let mut frames = frames.into_iter().peekable();
                        while let Some(mut frame) = frames.next() {
                            let sends_all =
                                late.is_none() && !last.borrow().is_some_and(|last| last.is_replayed);
                            if !sends_all && !is_response(&frame) {
                                continue;
                            }
                            while sends_all && let Some(next) = frames.next_if(|next| can_join(&frame, next))
                            {
                                frame.push(b'\n');
                                frame.extend_from_slice(&next);
                            }
                            match &mut late {
                                Some(late) => late.push(frame),
                                None => {
                                    let unsent = self.output.send_unless(frame, self.log.deleted()).await;
                                    late = unsent.map(|frame| {
                                        Some(frame).filter(|frame| is_response(frame)).into_iter().collect()
                                    });
                                }
                            }
                        }
                    }
                    Err(error) => {
                        tracing::error!(session = %self.live.id, %error, "a log cannot be read; its client is disconnected");
                        self.end.notify_one();
                        return Vec::new();
                    }
                }
                if late.iter().flatten().map(Vec::len).sum::<usize>() > LATE_BYTES {
                    tracing::warn!(session = %self.live.id, limit = LATE_BYTES, "a client does not read the responses of a deleted session; it is disconnected");
                    self.end.notify_one();
                    return Vec::new();
                }
            }
            if end.is_some_and(|end| position >= end) {
                return late.unwrap_or_default();
            }
            let changed = tokio::select! {
                changed = self.live.visible.changed() => changed,
                changed = last.changed() => changed,
            };
            if changed.is_err() {
                return late.unwrap_or_default();
            }
        }
    }

    /// Reads a page, and returns its frames. They begin with a notice if records are damaged.
    async fn page(&self, after: u64, visible: u64) -> Result<PageFrames, Error> {
        let mut page = self.undamaged_page(after, visible).await?;
        if page.damaged > 0 {
            page.frames.insert(0, update_line(&self.live.id, damage_notice(page.damaged))?);
        }
        Ok(page)
    }

    async fn undamaged_page(&self, after: u64, visible: u64) -> Result<PageFrames, Error> {
        /// The size of a page in bytes.
        const PAGE: usize = 256 << 10;
        /// The size of a page that is read here. A thread for a few new records costs more than their frames.
        const TAIL_PAGE: usize = 64 << 10;
        let view = ClientView { client: &self.client, session: &self.live.id, abilities: self.abilities };
        if let Some(page) = self.log.read_tail(LogPosition::new(after), TAIL_PAGE) {
            let mut needs_file = false;
            let earlier = |_| {
                needs_file = true;
                None
            };
            let frames = page_frames(&view, &page, after, visible, earlier);
            if !needs_file {
                return Ok(frames);
            }
        }
        let (id, log) = (self.live.id.clone(), self.log.clone());
        let (client, abilities) = (self.client.clone(), self.abilities);
        let read = move || {
            let page = match log.read(LogPosition::new(after), PAGE) {
                Ok(page) => page,
                Err(error) => {
                    let last = behind_damage(&id, error)?.number().min(visible);
                    return Ok(PageFrames { last, damaged: last - after, ..PageFrames::default() });
                }
            };
            let view = ClientView { client: &client, session: &id, abilities };
            Ok(page_frames(&view, &page, after, visible, |position| {
                let page = log.read(LogPosition::new(position.checked_sub(1)?), 1).ok()?;
                page.records.first().map(|record| record.line.to_vec())
            }))
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)?
    }
}

/// The frames of a page.
#[derive(Default)]
struct PageFrames {
    frames: Vec<Vec<u8>>,
    /// The position of the last record of the page.
    last: u64,
    /// The number of its records that were left out.
    damaged: u64,
    /// The number of frames before the first record that begins a life, and its position.
    opened: Option<(usize, u64)>,
}

/// Returns the frames of the records of a page up to a position. `earlier` returns the line of an earlier record.
fn page_frames(
    view: &ClientView<'_>,
    page: &LogPage,
    after: u64,
    visible: u64,
    mut earlier: impl FnMut(u64) -> Option<Vec<u8>>,
) -> PageFrames {
    let mut frames = PageFrames { last: after, ..PageFrames::default() };
    for record in page.records.iter().take_while(|record| record.position.number() <= visible) {
        let position = record.position.number();
        frames.last = position;
        if let Some(chunk) = chunk_line::of_record(&record.line, view.session) {
            frames.frames.push(chunk.to_vec());
            continue;
        }
        let entry = LogEntry::read(&record.line);
        if let Ok(LogEntry { event: Some(HubEvent::Opened { .. }), .. }) = &entry {
            let before = frames.frames.len();
            frames.opened.get_or_insert((before, position));
        }
        let frames_of = |entry| project_entry(view, position, entry, &mut earlier, &mut frames.frames);
        if let Err(error) = entry.and_then(frames_of) {
            leave_out(view.session, position, &error);
            frames.damaged += 1;
        }
    }
    frames
}

/// The frames of a session that a client has: its requests and notifications with the id of the session or of a child.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct SeenFrames {
    /// The position in the result that opened the session.
    #[serde(deserialize_with = "cursor")]
    pub(crate) position: LogCursor,
    /// The number of frames after that result.
    pub(crate) frames: u64,
}

/// Reads the text of a cursor. Any other value, such as the number of an earlier version, is a cursor of a life that no log has.
fn cursor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogCursor, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = value.as_u64().unwrap_or_default();
    let text = value.as_str().and_then(|text| text.parse().ok());
    Ok(text.unwrap_or(LogCursor { life: 0, position: LogPosition::new(number) }))
}

/// Returns the `sessionId` of params or a result.
pub(crate) fn session_id<T: From<String>>(members: &RawValue) -> Option<T> {
    let id = duologue_rpc::raw_message::member_text(members.get().as_bytes(), "sessionId")?;
    Some(id.into_owned().into())
}

/// Returns true for a frame that [`SeenFrames`] counts.
fn is_counted(frame: &[u8], session: &SessionId) -> bool {
    match RpcMessage::read(frame, &Limits::default()) {
        Some(Ok(RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. })) => {
            params.and_then(session_id::<String>).is_some_and(|id| is_in_session(session, id.as_str()))
        }
        _ => false,
    }
}

/// Returns true if two frames can be sent as one part of the output: notifications and requests that are not long.
fn can_join(frame: &[u8], next: &[u8]) -> bool {
    /// The bytes that are joined.
    const JOINED: usize = 16 << 10;
    frame.len() + next.len() < JOINED && ![frame, next].iter().any(|frame| is_response_of_hub(frame))
}

fn is_response(frame: &[u8]) -> bool {
    matches!(RpcMessage::read(frame, &Limits::default()), Some(Ok(RpcMessage::Response { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_are_joined_and_responses_stay_alone() {
        let update = br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
        let response = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(can_join(update, update));
        assert!(!can_join(update, response) && !can_join(response, update));
        let long = [&update[..], &[b' '; 16 << 10]].concat();
        assert!(!can_join(&long, update) && !can_join(update, &long));
    }

    /// The clock is paused, so the limit passes at once.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_last_responses_is_disconnected() {
        for is_read in [true, false] {
            let end = Arc::<Notify>::default();
            let task = tokio::spawn(async move {
                if !is_read {
                    std::future::pending::<()>().await;
                }
            });
            let reader = LogReaderTask {
                task,
                session: SessionId::from("s"),
                begin: None,
                end_at: ReaderEnd::new(),
                end: end.clone(),
            };
            reader.finish(1).await;
            let ended = timeout(LAST_FRAMES, end.notified()).await;
            assert_eq!(ended.is_err(), is_read, "the connection of a client that reads: {is_read}");
        }
    }
}
