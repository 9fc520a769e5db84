//! Where the agent's questions meet the user: handlers leave them here, the session puts them one
//! after the other.

use duologue_schema::ToolCallUpdate;
use duologue_transcript::Recorder;
use tokio::sync::{mpsc, oneshot};

use super::rows::Span;
use crate::ui::{DIM, plural};

/// What somebody beside the session wants the user to see.
pub(super) enum Event {
    /// A question to be answered with a line.
    Question(Box<Question>),
    /// Something to say.
    Note(Vec<Span>),
    /// A line of the agent's stderr.
    Stderr(String),
}

/// A question to be answered with a line.
pub(super) struct Question {
    /// The tool call it is about, as it is now.
    pub(super) about: Option<ToolCallUpdate>,
    /// What is asked; the answer is typed behind it.
    pub(super) text: Vec<Span>,
    answer: oneshot::Sender<String>,
}

impl Question {
    pub(super) fn answer(self, line: String) {
        // Whoever asked may be gone.
        let _ = self.answer.send(line);
    }

    /// Waits until nobody wants to know any more.
    pub(super) async fn withdrawn(&mut self) {
        self.answer.closed().await;
    }
}

/// So much may wait to be shown.
const WAITING: usize = 4096;

/// Takes questions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Desk(mpsc::Sender<Event>);

impl Desk {
    pub(super) fn new() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Desk(sender), receiver)
    }

    /// Asks the user. `None` when no answer comes: the user has left.
    pub(super) async fn ask(&self, about: Option<ToolCallUpdate>, text: Vec<Span>) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Event::Question(Box::new(Question { about, text, answer }))).await.ok()?;
        answered.await.ok()
    }

    pub(super) async fn note(&self, text: Vec<Span>) {
        let _ = self.0.send(Event::Note(text)).await;
    }
}

/// The agent's stderr, line by line.
pub(super) struct StderrLines {
    /// Where it is shown, if it is.
    desk: Option<Desk>,
    /// Where it is recorded, if it is.
    recorder: Option<Recorder>,
    line: Vec<u8>,
    /// How many lines in a row found no room.
    left_out: usize,
    /// Dropped at the end, which somebody waits for.
    _end: oneshot::Sender<()>,
}

fn left_out(lines: usize) -> Event {
    Event::Note(vec![Span::new(DIM, &format!("stderr: … {} left out", plural(lines, "line")))])
}

/// A longer line is shown in pieces.
const LONGEST_LINE: usize = 8 * 1024;

impl StderrLines {
    /// The lines, and what is ready at their end.
    pub(super) fn new(desk: Option<Desk>, recorder: Option<Recorder>) -> (Self, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        (StderrLines { desk, recorder, line: Vec::new(), left_out: 0, _end: end }, ended)
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if let Some(recorder) = &self.recorder {
            recorder.stderr(&line);
        }
        if let Some(desk) = &self.desk {
            let room = self.left_out == 0 || desk.0.try_send(left_out(self.left_out)).is_ok();
            let line = Event::Stderr(String::from_utf8_lossy(&line).into_owned());
            match room && desk.0.try_send(line).is_ok() {
                true => self.left_out = 0,
                false if room => self.left_out = 1,
                false => self.left_out += 1,
            }
        }
    }
}

impl std::io::Write for StderrLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            self.line.extend_from_slice(text);
            // What the pipe gives at once is not much longer.
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
        if let Some(desk) = self.desk.as_ref().filter(|_| self.left_out > 0) {
            // This is a thread of its own, and there is room as soon as somebody looks.
            let _ = desk.0.blocking_send(left_out(self.left_out));
        }
    }
}
