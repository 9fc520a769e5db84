#![doc = include_str!("../README.md")]

mod checks;
mod error;
mod finding;
pub mod frames;
mod harness;
mod raw_process;
mod report;
mod suite;

pub use duologue_client::Command;

pub use checks::checks;
pub use error::{Error, Result};
pub use finding::{Check, Severity, Verdict};
#[doc(hidden)]
pub use report::TextReport;
pub use report::{CheckResult, Report, Summary};
pub use suite::Suite;
