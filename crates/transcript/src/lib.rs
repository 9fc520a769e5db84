#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Transcript`] is a file of JSON Lines (RFD 0003): a header, and one record for each line that either side
//! wrote, with its bytes, its time and its direction. A [`Recorder`] writes one, a [`Reader`] reads one record at
//! a time, and a [`Replay`] plays one side of it.
#![forbid(unsafe_code)]

mod classify;
mod error;
mod format;
mod id_paths;
mod ignored_paths;
mod import;
mod line_reader;
mod path_index;
#[doc(hidden)]
pub mod private_file;
mod reader;
mod record;
mod redact;
mod render;
mod replay;
#[cfg(test)]
mod steps;
mod terminal_text;
mod transcript;
#[doc(hidden)]
pub mod view;

#[doc(hidden)]
pub use classify::id_key;
pub use classify::{ParsedLine, TranscriptEntry, entries};
pub use duologue_schema as schema;
pub use duologue_schema::printable;
pub use error::{Error, Result};
pub use format::{Header, LineEnd, ProcessExit, Record, RecordEvent, RecordedLine, Redacted, Side};
pub use ignored_paths::IgnoredPaths;
pub use import::Importer;
#[cfg(feature = "insta")]
#[doc(hidden)]
pub use insta;
pub use reader::Reader;
pub use record::{Recorder, RecorderBuilder, StderrWriter, forward, forward_stderr, proxy};
pub use redact::{Redaction, Redactor, Secrets, StreamSecrets};
#[cfg(feature = "insta")]
pub use render::Snapshot;
#[doc(hidden)]
pub use render::describe;
#[doc(hidden)]
pub use render::{ConversationEvent, TranscriptFold};
pub use render::{FoldedSession, RenderOptions, Script};
pub use replay::{Difference, Replay, ReplayReport, Timing};
pub use transcript::Transcript;

/// The parts of a [`Script`].
pub mod script {
    pub use crate::render::{ResponseTo, ScriptStep, Section, StepKind, Subject};
}
