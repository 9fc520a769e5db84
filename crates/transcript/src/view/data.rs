//! The data of a view.
//!
//! Every text that comes from the transcript is [`PrintableText`], which makes it printable. A page inserts it as text,
//! never as HTML.

use duologue_schema::printable;
use serde::Serialize;

use crate::format::Side;

/// The items, frames and sessions of a transcript for a reader.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TranscriptView {
    /// True if the records have times.
    pub timed: bool,
    /// The sessions, in the order in which they began.
    pub sessions: Vec<ViewSession>,
    /// The items, in the order in which they began.
    pub items: Vec<ViewItem>,
    /// The recorded lines, unless they were left out.
    pub frames: Vec<ViewFrame>,
}

/// A session of a transcript.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ViewSession {
    /// The id.
    pub id: PrintableText,
    /// The title, if the agent has given one.
    pub title: Option<PrintableText>,
}

/// A recorded line.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ViewFrame {
    /// The time in microseconds since the start.
    pub at: u64,
    /// The side that wrote it.
    pub from: Side,
    /// The line.
    pub text: PrintableText,
}

/// A message with all its chunks, a tool call with all its updates, a request, or a process event.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ViewItem {
    /// The kind.
    pub kind: ItemKind,
    /// The time of its begin, in microseconds since the start.
    pub at: u64,
    /// The time of its last change, in microseconds since the start.
    pub until: u64,
    /// The side that wrote its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Side>,
    /// The index of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<usize>,
    /// The method, the kind of the update, or the kind of the tool.
    pub name: PrintableText,
    /// The final text.
    pub text: PrintableText,
    /// The texts that were cleared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<ClearedText>,
    /// The outcome in a word: a status, a stop reason, the chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PrintableText>,
    /// True if it failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The details: diffs, output, options, steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ItemPart>,
    /// The indexes of its lines among all lines of the transcript.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<usize>,
}

/// The kind of an item. A page can filter by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ItemKind {
    /// A message of the user.
    User,
    /// A message of the agent.
    Agent,
    /// A thought of the agent.
    Thought,
    /// A tool call.
    Tool,
    /// A question of the agent.
    Permission,
    /// A plan.
    Plan,
    /// Another request.
    #[default]
    Request,
    /// A response.
    Answer,
    /// An update of modes, commands or usage, or another notification.
    Update,
    /// A line of stderr, a line that is not a message, or the end of the process.
    Process,
}

/// A text that the agent has cleared.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ClearedText {
    /// The time of the clear.
    pub at: u64,
    /// The text.
    pub text: PrintableText,
}

/// A detail of an item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ItemPart {
    /// Text.
    Text(PrintableText),
    /// A file and its lines, each with `+`, `-` or a space. `@` stands for left-out lines.
    Diff {
        /// The file.
        path: PrintableText,
        /// The lines with their marks.
        lines: Vec<(char, PrintableText)>,
    },
    /// An option, and true if it was chosen.
    Option {
        /// The name.
        name: PrintableText,
        /// True if it was chosen.
        chosen: bool,
    },
    /// A step of a plan and its status.
    Step {
        /// The text.
        text: PrintableText,
        /// The status.
        status: PrintableText,
    },
    /// A name and a value.
    Field {
        /// The name.
        name: PrintableText,
        /// The value.
        text: PrintableText,
    },
}

/// Text without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrintableText(String);

impl<T: AsRef<str>> From<T> for PrintableText {
    fn from(text: T) -> Self {
        PrintableText(printable(text.as_ref()).into_owned())
    }
}

impl PrintableText {
    /// Appends text.
    pub(crate) fn push(&mut self, more: &str) {
        self.0.push_str(&printable(more));
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
