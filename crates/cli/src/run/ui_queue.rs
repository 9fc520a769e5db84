//! The queue of questions, notes, audit entries and stderr lines for the user. Handlers add to it;
//! the session shows one event after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use duologue_schema::ToolCallUpdate;
use duologue_transcript::{Recorder, StderrWriter};
use tokio::sync::{mpsc, oneshot};

use super::audit::{AuditEntry, OpenEntry};
use super::question::QuestionText;
use super::rows::Span;
use super::terminals::TerminalTail;
use crate::ui::{CONNECT_LOG, DIM, plural};

/// An event for the user from outside the session.
pub(super) enum UiEvent {
    /// A question that the user answers with a line.
    Question(Box<QueuedQuestion>),
    /// A note.
    Note(Vec<Span>),
    /// An action of the agent, or a request that was answered.
    Audit {
        entry: Box<AuditEntry>,
        /// Notified when the entry is shown, if a handler waits for that.
        shown: Option<oneshot::Sender<()>>,
    },
    /// A line of the agent's stderr.
    Stderr(String),
    /// The output of a terminal.
    Terminal(TerminalTail),
}

/// A question that the user answers with a line.
pub(super) struct QueuedQuestion {
    /// The tool call of a permission request.
    pub(super) about: Option<ToolCallUpdate>,
    /// True if it is shown for the first time.
    pub(super) is_new: bool,
    /// The text in front of the answer.
    pub(super) text: QuestionText,
    answer: oneshot::Sender<String>,
}

impl QueuedQuestion {
    pub(super) fn answer(self, line: String) {
        // The handler may have been dropped.
        let _ = self.answer.send(line);
    }

    /// Waits until the handler is dropped.
    pub(super) async fn withdrawn(&mut self) {
        self.answer.closed().await;
    }
}

/// Capacity of the queue, in events.
const WAITING: usize = 4096;

/// The sending half of the queue. Cheap to clone.
#[derive(Clone)]
pub(super) struct UiQueue {
    events: mpsc::Sender<UiEvent>,
    /// The number of rejected requests that found no room.
    left_out: Arc<AtomicUsize>,
}

/// The receiving half of a [`UiQueue`].
pub(super) struct UiEvents {
    pub(super) events: mpsc::Receiver<UiEvent>,
    left_out: Arc<AtomicUsize>,
}

impl UiEvents {
    /// Returns the number of rejected requests that are not among the events, and counts from zero
    /// again.
    pub(super) fn take_left_out(&self) -> usize {
        self.left_out.swap(0, Relaxed)
    }
}

impl UiQueue {
    pub(super) fn new() -> (Self, UiEvents) {
        let (sender, events) = mpsc::channel(WAITING);
        let left_out = Arc::<AtomicUsize>::default();
        (UiQueue { events: sender, left_out: left_out.clone() }, UiEvents { events, left_out })
    }

    /// Sends a question to the user. Returns `None` if the user leaves without an answer.
    pub(super) async fn ask(&self, text: impl Into<QuestionText>) -> Option<String> {
        self.put(None, true, text.into()).await
    }

    /// Sends a question about a tool call, which is described with it.
    pub(super) async fn ask_about(
        &self,
        call: ToolCallUpdate,
        is_new: bool,
        text: QuestionText,
    ) -> Option<String> {
        self.put(Some(call), is_new, text).await
    }

    async fn put(&self, about: Option<ToolCallUpdate>, is_new: bool, text: QuestionText) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        let question = QueuedQuestion { about, is_new, text, answer };
        self.events.send(UiEvent::Question(Box::new(question))).await.ok()?;
        answered.await.ok()
    }

    /// Begins an entry of the audit trail, when there is room for it.
    pub(super) async fn begin(&self, entry: AuditEntry) -> OpenEntry {
        OpenEntry::new(self.events.clone().reserve_owned().await.ok(), entry)
    }

    /// Shows the output of a terminal.
    pub(super) async fn show_terminal(&self, tail: TerminalTail) {
        // Without a reader nothing is shown any more.
        let _ = self.events.send(UiEvent::Terminal(tail)).await;
    }

    /// Adds an entry without waiting for room. One that finds none is counted.
    pub(super) fn add(&self, entry: AuditEntry) {
        let event = UiEvent::Audit { entry: Box::new(entry), shown: None };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.events.try_send(event) {
            self.left_out.fetch_add(1, Relaxed);
        }
    }
}

/// The agent's stderr, line by line.
pub(super) struct StderrLines {
    /// Shows the lines, if they are to be shown.
    ui: Option<UiQueue>,
    /// False shows only the lines of `duologue connect`, since the user waits while its server is away.
    shows_all: bool,
    /// Records the lines, if they are to be recorded. It has whole lines: a secret is not found in pieces.
    recorder: Option<StderrWriter>,
    /// The part of the current line that is not shown yet.
    line: Vec<u8>,
    /// The number of lines in a row that found no room.
    left_out: usize,
    /// Dropped at the end, for the receiver that `new` returns.
    _end: oneshot::Sender<()>,
}

fn left_out(lines: usize) -> UiEvent {
    UiEvent::Note(vec![Span::new(DIM, &format!("stderr: … {} left out", plural(lines, "line")))])
}

/// A longer line is shown in pieces.
const LONGEST_LINE: usize = 8 * 1024;

impl StderrLines {
    /// Returns the writer, and a receiver that is ready when the writer is dropped.
    pub(super) fn new(
        ui: Option<UiQueue>,
        shows_all: bool,
        recorder: Option<Recorder>,
    ) -> (Self, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let recorder = recorder.map(|recorder| recorder.stderr_writer());
        (StderrLines { ui, shows_all, recorder, line: Vec::new(), left_out: 0, _end: end }, ended)
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_shown = self.shows_all || line.starts_with(CONNECT_LOG.as_bytes());
        if let Some(ui) = self.ui.as_ref().filter(|_| is_shown) {
            let room = self.left_out == 0 || ui.events.try_send(left_out(self.left_out)).is_ok();
            let line = UiEvent::Stderr(String::from_utf8_lossy(&line).into_owned());
            match room && ui.events.try_send(line).is_ok() {
                true => self.left_out = 0,
                false if room => self.left_out = 1,
                false => self.left_out += 1,
            }
        }
    }
}

impl std::io::Write for StderrLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write_all(bytes)?;
        }
        if self.ui.is_none() {
            return Ok(bytes.len());
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            self.line.extend_from_slice(text);
            // One read of the pipe is not much longer.
            if ends || self.line.len() >= LONGEST_LINE {
                self.end_line();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for StderrLines {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        if let Some(ui) = self.ui.as_ref().filter(|_| self.left_out > 0) {
            // This thread may block: there is room as soon as the session takes an event.
            let _ = ui.events.blocking_send(left_out(self.left_out));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A line is shown in pieces and recorded whole.
    #[tokio::test]
    async fn a_secret_in_a_long_line_of_stderr_is_not_recorded() {
        let recorder = Recorder::in_memory().unwrap();
        let (mut lines, _end) = StderrLines::new(None, false, Some(recorder.clone()));
        let secret = "sk-ant-api03-A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
        let text = format!("{} {secret} behind\nlast", "x".repeat(LONGEST_LINE - 20));
        let (one, two) = text.split_at(LONGEST_LINE);
        lines.write_all(one.as_bytes()).unwrap();
        lines.write_all(two.as_bytes()).unwrap();
        drop(lines);
        let mut recorded = Vec::new();
        recorder.transcript().await.unwrap().write(&mut recorded).unwrap();
        let recorded = String::from_utf8(recorded).unwrap();
        assert!(
            recorded.contains("[secret] behind\"") && recorded.contains("\"stderr\":\"last\""),
            "{recorded}"
        );
        assert!(!recorded.contains("A1b2C3") && !recorded.contains("K1l2M3"), "{recorded}");
    }
}
