#![doc = include_str!("../README.md")]

mod checks;
mod error;
mod finding;
mod frames;
mod harness;
mod raw_process;
mod report;
mod suite;

pub use duologue_client::Command;

pub use checks::checks;
pub use error::{Error, Result};
pub use finding::{Check, Severity, Verdict};
pub use frames::{FrameKind, FrameReport, Problem, ProblemLevel, validate};
pub use report::{CheckResult, Report, Summary, TextReport};
pub use suite::Suite;
