#![doc = include_str!("../README.md")]

mod checks;
mod error;
mod finding;
pub mod frames;
mod harness;
mod raw_process;
mod report;
mod suite;
#[cfg(feature = "http")]
mod transport;

pub use duologue_client::Command;
#[doc(no_inline)]
pub use duologue_schema::Meta;

#[cfg(unix)]
#[doc(hidden)]
pub use checks::is_group_alive;
pub use checks::{checks, checks_v2};
pub use error::{Error, Result};
pub use finding::{Check, Severity, Verdict};
#[doc(hidden)]
pub use report::TextReport;
pub use report::{CheckResult, Report, Summary};
pub use suite::Suite;
#[cfg(feature = "http")]
pub use transport::{ConnectOptions, RemoteTransport, TransportSuite, checks_transport};
