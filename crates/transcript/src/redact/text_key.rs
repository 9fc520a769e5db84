//! The key by which a text that comes in pieces is known.

use std::hash::{BuildHasher as _, RandomState};

use super::streamed_text::StreamedText;

/// The hashes of the names of a text. Names may have any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextKey {
    pub(super) session: u64,
    pub(super) kind: u64,
    /// The id; `None` for a message without one.
    pub(super) id: Option<u64>,
    pub(super) is_message: bool,
    /// True if the pieces are base64.
    pub(super) is_base64: bool,
}

impl TextKey {
    /// Returns the key of a text. `session` is the hash of its session.
    pub(super) fn of(hasher: &RandomState, session: u64, text: &StreamedText) -> Self {
        let (kind, id, is_message) = match text {
            StreamedText::Message { kind, id } => (kind.as_str(), id.as_ref(), true),
            StreamedText::Output(task) => ("output", Some(task), false),
            StreamedText::Terminal(terminal) => ("terminal", Some(terminal), false),
            StreamedText::Display(terminal) => ("display", Some(terminal), false),
            StreamedText::ToolContent(call) => ("tool call", Some(call), false),
        };
        let (kind, id) = (hasher.hash_one(kind), id.map(|id| hasher.hash_one(id)));
        TextKey { session, kind, id, is_message, is_base64: text.is_base64() }
    }
}
