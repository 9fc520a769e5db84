#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Log`] has the records of one session. [`LogRoot`] is a folder of [`FileLog`]s, and [`MemoryLog`] keeps the
//! last records in memory. Positions and cursors are in [`LogPosition`] and [`LogCursor`]. With the
//! feature `index`, `SessionIndex` lists the sessions of a folder. With the feature `store`, `Store` has everything of a
//! server that is not a log: registry, inboxes, tasks, questions, outbox, seen ids and principals.
#![forbid(unsafe_code)]

mod disk;
mod error;
mod file;
#[cfg(feature = "index")]
mod index;
mod line;
mod log;
mod memory;
mod position;
mod root;
mod settings;
#[cfg(feature = "store")]
mod tables;
mod tail;

pub use bytes::Bytes;
pub use duologue_transcript as transcript;
pub use error::{CursorGoneReason, Error, Result};
pub use file::{FileLog, LogRecovery, LogSnapshot};
#[cfg(feature = "index")]
pub use index::{IndexPage, IndexQuery, IndexedSession, RebuildReport, SessionIndex};
pub use line::LogLine;
pub use log::{Log, LogPage, LogRecord};
pub use memory::MemoryLog;
pub use position::{LogCursor, LogPosition};
pub use root::LogRoot;
pub use settings::LogSettings;
#[cfg(feature = "store")]
pub use tables::*;
