//! The data of a page.
//!
//! Every text that comes from the transcript is [`PrintableText`], which makes it printable. The page
//! inserts it as text, never as HTML.

use duologue_transcript::{Side, printable};
use serde::Serialize;

/// The data of a page.
#[derive(Debug, Default, Serialize)]
pub(super) struct Page {
    /// The agent's command, or a default.
    pub(super) title: PrintableText,
    /// True if the records have times.
    pub(super) timed: bool,
    /// Facts about the recording, as names and values.
    pub(super) about: Vec<(&'static str, PrintableText)>,
    /// The missing or damaged parts of the file.
    pub(super) faults: Vec<PrintableText>,
    pub(super) sessions: Vec<PageSession>,
    /// The items, in the order in which they began.
    pub(super) items: Vec<PageItem>,
    /// The recorded lines.
    pub(super) frames: Vec<PageFrame>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct PageSession {
    pub(super) id: PrintableText,
    pub(super) title: Option<PrintableText>,
}

/// A recorded line.
#[derive(Debug, Serialize)]
pub(super) struct PageFrame {
    /// The time in microseconds since the start.
    pub(super) at: u64,
    pub(super) from: Side,
    pub(super) text: PrintableText,
}

/// A message with all its chunks, a tool call with all its updates, a request, or a process event.
#[derive(Debug, Default, Serialize)]
pub(super) struct PageItem {
    pub(super) kind: ItemKind,
    /// The times of its begin and its last change, in microseconds since the start.
    pub(super) at: u64,
    pub(super) until: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Side>,
    /// The index of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<usize>,
    /// The method, the kind of the update, or the kind of the tool.
    pub(super) name: PrintableText,
    /// The final text.
    pub(super) text: PrintableText,
    /// The texts that were cleared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) drafts: Vec<ClearedText>,
    /// The outcome in a word: a status, a stop reason, the chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<PrintableText>,
    /// True if it failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) failed: bool,
    /// The details: diffs, output, options, steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<ItemPart>,
    /// The indexes of its lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frames: Vec<usize>,
}

/// The kind of an item. The page can filter by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemKind {
    /// A message of the user.
    User,
    /// A message of the agent.
    Agent,
    /// A thought of the agent.
    Thought,
    Tool,
    Permission,
    Plan,
    #[default]
    Request,
    Answer,
    /// An update of modes, commands or usage, or another notification.
    Update,
    /// A line of stderr, a line that is not a message, or the end of the process.
    Process,
}

#[derive(Debug, Serialize)]
pub(super) struct ClearedText {
    /// The time of the clear.
    pub(super) at: u64,
    pub(super) text: PrintableText,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemPart {
    Text(PrintableText),
    /// A file and its lines, each with `+`, `-` or a space. `@` stands for left-out lines.
    Diff {
        path: PrintableText,
        lines: Vec<(char, PrintableText)>,
    },
    /// An option, and true if it was chosen.
    Option {
        name: PrintableText,
        chosen: bool,
    },
    /// A step of a plan and its status.
    Step {
        text: PrintableText,
        status: PrintableText,
    },
    /// A name and a value.
    Field {
        name: PrintableText,
        text: PrintableText,
    },
}

/// Text without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PrintableText(String);

impl<T: AsRef<str>> From<T> for PrintableText {
    fn from(text: T) -> Self {
        PrintableText(printable(text.as_ref()).into_owned())
    }
}

impl PrintableText {
    pub(super) fn push(&mut self, more: &str) {
        self.0.push_str(&printable(more));
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
