//! Record an Agent Client Protocol session once; from then on have a readable snapshot and a fake
//! agent that replays it.
//!
//! A [`Transcript`] is a file of JSON Lines (RFD 0003): a header, and one record for each line that
//! either side wrote, byte for byte, with the time and the direction.
//!
//! The feature `insta` brings `assert_transcript!`, for snapshot tests.
#![forbid(unsafe_code)]

mod classify;
mod error;
mod format;
mod id_paths;
mod ignored_paths;
mod import;
mod line_reader;
mod reader;
mod record;
mod redact;
mod render;
mod replay;
mod transcript;

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
pub use record::{Recorder, RecorderBuilder, forward, forward_stderr, proxy};
pub use redact::{Redaction, Redactor, Secrets};
#[cfg(feature = "insta")]
pub use render::Snapshot;
pub use render::{FoldedSession, RenderOptions, Script};
pub use replay::{Difference, Replay, ReplayReport, Timing};
pub use transcript::Transcript;

/// What a [`Script`] is made of, for those who take it apart.
pub mod script {
    pub use crate::render::{ResponseTo, ScriptStep, Section, StepKind, Subject};
}
