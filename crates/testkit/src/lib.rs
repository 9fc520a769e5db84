#![doc = include_str!("../README.md")]

#[cfg(feature = "mock")]
mod faults;
#[cfg(feature = "mock")]
mod mock;

#[cfg(feature = "mock")]
pub use faults::{FaultError, Faults, InvalidFault, help as faults_help, serve_stdio};
#[cfg(feature = "mock")]
pub use mock::{MockAgent, Scenario};
