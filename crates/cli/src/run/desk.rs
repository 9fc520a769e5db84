//! Where the agent's questions meet the user: handlers leave them here, the session puts them one
//! after the other.

use duologue_schema::ToolCallUpdate;
use duologue_transcript::Recorder;
use tokio::sync::{mpsc, oneshot};

use super::rows::Span;

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

/// Takes questions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Desk(mpsc::UnboundedSender<Event>);

impl Desk {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Desk(sender), receiver)
    }

    /// Asks the user. `None` when no answer comes: the user has left.
    pub(super) async fn ask(&self, about: Option<ToolCallUpdate>, text: Vec<Span>) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Event::Question(Box::new(Question { about, text, answer }))).ok()?;
        answered.await.ok()
    }

    pub(super) fn note(&self, text: Vec<Span>) {
        let _ = self.0.send(Event::Note(text));
    }
}

/// The agent's stderr, line by line.
pub(super) struct StderrLines {
    /// Where it is shown, if it is.
    desk: Option<Desk>,
    /// Where it is recorded, if it is.
    recorder: Option<Recorder>,
    line: Vec<u8>,
    /// Dropped at the end, which somebody waits for.
    _end: oneshot::Sender<()>,
}

/// A longer line is shown in pieces.
const LONGEST_LINE: usize = 8 * 1024;

impl StderrLines {
    /// The lines, and what is ready at their end.
    pub(super) fn new(desk: Option<Desk>, recorder: Option<Recorder>) -> (Self, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        (StderrLines { desk, recorder, line: Vec::new(), _end: end }, ended)
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if let Some(recorder) = &self.recorder {
            recorder.stderr(&line);
        }
        if let Some(desk) = &self.desk {
            let _ = desk.0.send(Event::Stderr(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

impl std::io::Write for StderrLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
            }
            if *byte == b'\n' || self.line.len() == LONGEST_LINE {
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
    }
}
