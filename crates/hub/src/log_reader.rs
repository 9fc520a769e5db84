//! The task that sends the records of a session's log to a client as frames.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::SessionId;
use duologue_store::{FileLog, Log as _, LogPage, LogPosition};
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::abilities::Abilities;
use crate::error::Error;
use crate::hub::{behind_damage, leave_out};
use crate::output::ClientOutput;
use crate::projection::{ClientView, project};
use crate::record::ClientKey;
use crate::session_task::LiveSession;

/// The time in which a client receives the last frames of a session that it has closed.
const LAST_FRAMES: Duration = Duration::from_secs(10);

/// The task of a [`LogReader`]. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct LogReaderTask {
    task: JoinHandle<()>,
    /// The position behind which the reader ends. Before it, only responses are sent.
    last: watch::Sender<Option<u64>>,
}

impl LogReaderTask {
    pub(crate) fn spawn(reader: LogReader, position: u64) -> Self {
        let last = watch::Sender::new(None);
        LogReaderTask { task: tokio::spawn(reader.run(position, last.subscribe())), last }
    }

    /// Waits until the responses up to a position are sent.
    pub(crate) async fn finish(self, position: u64) {
        self.last.send_replace(Some(position));
        self.ended().await;
    }

    /// Waits for the end of the task.
    pub(crate) async fn ended(mut self) {
        let _ = timeout(LAST_FRAMES, &mut self.task).await;
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
    pub(crate) log: Arc<FileLog>,
    pub(crate) output: ClientOutput,
    /// Notified if the log cannot be read.
    pub(crate) end: Arc<Notify>,
}

impl LogReader {
    /// Sends the frames up to a position that a client has missed.
    pub(crate) async fn send_missed(&self, seen: SeenFrames, end: u64) -> Result<(), Error> {
        if seen.position > end {
            return Err(Error::CursorGone { position: seen.position, end });
        }
        let (mut position, mut seen) = (seen.position, seen.frames);
        while position < end {
            let (frames, last) = self.page(position, end).await?;
            for frame in frames {
                if seen > 0 && is_counted(&frame, &self.live.id) {
                    seen -= 1;
                } else {
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

    /// Sends the frames behind a position until the session ends, or until `last_position` is reached.
    async fn run(mut self, mut position: u64, mut last_position: watch::Receiver<Option<u64>>) {
        loop {
            let visible = *self.live.visible.borrow_and_update();
            let end = *last_position.borrow_and_update();
            let readable = end.map_or(visible, |end| end.min(visible));
            while position < readable {
                match self.page(position, readable).await {
                    Ok((frames, last)) => {
                        position = last;
                        for frame in frames {
                            let is_wanted = last_position.borrow().is_none() || is_response(&frame);
                            if is_wanted {
                                self.output.send(frame).await;
                            }
                        }
                    }
                    Err(error) => {
                        tracing::error!(session = %self.live.id, %error, "a log cannot be read; its client is disconnected");
                        return self.end.notify_one();
                    }
                }
            }
            if end.is_some_and(|end| position >= end) {
                return;
            }
            let changed = tokio::select! {
                changed = self.live.visible.changed() => changed,
                changed = last_position.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Reads a page, and returns its frames and its last position.
    async fn page(&self, after: u64, visible: u64) -> Result<PageFrames, Error> {
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
                Err(error) => return Ok((Vec::new(), behind_damage(error)?.number().min(visible))),
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

/// The frames of a page, and the position of its last record.
type PageFrames = (Vec<Vec<u8>>, u64);

/// Returns the frames of the records of a page up to a position. `earlier` returns the line of an earlier record.
fn page_frames(
    view: &ClientView<'_>,
    page: &LogPage,
    after: u64,
    visible: u64,
    mut earlier: impl FnMut(u64) -> Option<Vec<u8>>,
) -> PageFrames {
    let (mut frames, mut last) = (Vec::new(), after);
    for record in page.records.iter().take_while(|record| record.position.number() <= visible) {
        last = record.position.number();
        if let Err(error) = project(view, last, &record.line, &mut earlier, &mut frames) {
            leave_out(last, &error);
        }
    }
    (frames, last)
}

/// The frames of a session that a client has: its requests and notifications with the session's id.
#[derive(Clone, Copy, serde::Deserialize)]
pub(crate) struct SeenFrames {
    /// The position in the result that opened the session.
    pub(crate) position: u64,
    /// The number of frames after that result.
    pub(crate) frames: u64,
}

pub(crate) fn session_id(params: &RawValue) -> Option<SessionId> {
    let id = duologue_rpc::raw_message::member_text(params.get().as_bytes(), "sessionId")?;
    Some(SessionId::from(id.into_owned()))
}

/// Returns true for a frame that [`SeenFrames`] counts.
fn is_counted(frame: &[u8], session: &SessionId) -> bool {
    match RpcMessage::read(frame, &Limits::default()) {
        Some(Ok(RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. })) => {
            params.and_then(session_id).as_ref() == Some(session)
        }
        _ => false,
    }
}

fn is_response(frame: &[u8]) -> bool {
    matches!(RpcMessage::read(frame, &Limits::default()), Some(Ok(RpcMessage::Response { .. })))
}
