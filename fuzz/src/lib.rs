//! The assertions of the fuzz targets: a module each, with one function that panics if an assertion fails.
//!
//! The files in `fuzz_targets/` only hand them their input.
#![forbid(unsafe_code)]

pub mod agent_params;
pub mod client_params;
pub mod cursors;
pub mod dialogue;
pub mod differential;
pub mod envelope;
pub mod escapes;
pub mod events;
pub mod exchange_params;
pub mod fold;
pub mod framer;
mod input;
mod kept;
pub mod log;
mod marked;
pub mod output;
pub mod paths;
pub mod router;
pub mod socket;
pub mod surrogates;
pub mod transcript;
pub mod versions;
