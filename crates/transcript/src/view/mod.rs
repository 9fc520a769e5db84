//! The view of a transcript for a reader, and the script and style that show it.
//!
//! `duologue show --html` and the page of a hub use the same three: the items are built here, and [`VIEW_SCRIPT`] makes
//! elements of them.

mod build;
mod data;

pub use build::duration;
pub use data::{
    ClearedText, ItemKind, ItemPart, PrintableText, TranscriptView, ViewFrame, ViewItem, ViewSession,
};

use crate::Transcript;

/// The script with the function `itemView`, which returns the element of an item. It has no exports, so that it can be a
/// part of another script.
pub const VIEW_SCRIPT: &str = include_str!("view.js");
/// The style of the elements.
pub const VIEW_STYLE: &str = include_str!("view.css");

impl TranscriptView {
    /// Returns the view of a transcript.
    #[must_use]
    pub fn of(transcript: &Transcript) -> Self {
        build::build(transcript, true)
    }

    /// Returns the view of a transcript without the texts of its lines.
    #[must_use]
    pub fn without_frames(transcript: &Transcript) -> Self {
        build::build(transcript, false)
    }
}
