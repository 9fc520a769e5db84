#![doc = include_str!("../README.md")]

#[cfg(feature = "mock")]
mod faults;
#[cfg(feature = "mock")]
mod mock;
mod scripted;
mod wire;

// The command `duologue mock` uses these.
#[cfg(feature = "mock")]
#[doc(hidden)]
pub use faults::{FaultError, help as faults_help, serve_stdio};
#[cfg(feature = "mock")]
pub use faults::{Faults, InvalidFault};
#[cfg(feature = "mock")]
pub use mock::{MockAgent, Scenario, UnknownScenario};
pub use scripted::ScriptedPeer;
#[doc(hidden)]
pub use scripted::message_chunk;
pub use wire::Wire;
