//! What the page is made from: the shape of the data in it.
//!
//! Every text that comes from the transcript is [`PrintableText`], which makes it printable; the page puts it in as text
//! and never as HTML.

use duologue_transcript::{Side, printable};
use serde::Serialize;

/// Everything the page shows.
#[derive(Debug, Default, Serialize)]
pub(super) struct Page {
    /// The agent's command, or what stands for it.
    pub(super) title: PrintableText,
    /// Whether it is known when things happened.
    pub(super) timed: bool,
    /// What is known of the recording, as names and values.
    pub(super) about: Vec<(&'static str, PrintableText)>,
    /// What is missing or damaged.
    pub(super) faults: Vec<PrintableText>,
    pub(super) sessions: Vec<PageSession>,
    /// What happened, in the order in which it began.
    pub(super) items: Vec<PageItem>,
    /// The lines as they were written.
    pub(super) frames: Vec<PageFrame>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct PageSession {
    pub(super) id: PrintableText,
    pub(super) title: Option<PrintableText>,
}

/// A line of either side.
#[derive(Debug, Serialize)]
pub(super) struct PageFrame {
    /// Microseconds since the start.
    pub(super) at: u64,
    pub(super) from: Side,
    pub(super) text: PrintableText,
}

/// One thing that happened: a message with all its chunks, a tool call with all its updates, a request.
#[derive(Debug, Default, Serialize)]
pub(super) struct PageItem {
    pub(super) kind: ItemKind,
    /// Microseconds since the start: when it began, and when it last changed.
    pub(super) at: u64,
    pub(super) until: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Side>,
    /// Its place among the sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<usize>,
    /// The method, the name of the update, the tool.
    pub(super) name: PrintableText,
    /// What it says in the end.
    pub(super) text: PrintableText,
    /// What a message said before each time it was cleared, and when that was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) drafts: Vec<ClearedText>,
    /// A word on how it went: a status, a stop reason, the chosen option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<PrintableText>,
    /// Whether it went wrong.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) failed: bool,
    /// What belongs to it: diffs, output, options, steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<ItemPart>,
    /// Its lines, as places in the page's frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frames: Vec<usize>,
}

/// What an item is; also what can be filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemKind {
    /// What the person said.
    User,
    /// What the agent said.
    Agent,
    /// What it thought.
    Thought,
    Tool,
    Permission,
    Plan,
    #[default]
    Request,
    Answer,
    /// Modes, commands, usage, notifications.
    Update,
    /// stderr, noise, the end of the process.
    Process,
}

#[derive(Debug, Serialize)]
pub(super) struct ClearedText {
    /// When it was cleared.
    pub(super) at: u64,
    pub(super) text: PrintableText,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemPart {
    Text(PrintableText),
    /// A file and its lines, each with `+`, `-`, a space, or `@` where lines are left out.
    Diff {
        path: PrintableText,
        lines: Vec<(char, PrintableText)>,
    },
    /// Something to choose, and whether it was.
    Option {
        name: PrintableText,
        chosen: bool,
    },
    /// A step of a plan, and how far it is.
    Step {
        text: PrintableText,
        status: PrintableText,
    },
    /// A name and a value: where, what went in, what came out.
    Field {
        name: &'static str,
        text: PrintableText,
    },
}

/// Text that is safe to show.
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
