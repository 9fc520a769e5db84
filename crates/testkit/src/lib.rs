#![doc = include_str!("../README.md")]

#[cfg(feature = "mock")]
mod faults;
#[cfg(feature = "mock")]
mod mock;
mod scripted;
mod wire;

#[cfg(feature = "mock")]
pub use faults::{FaultError, Faults, InvalidFault, help as faults_help, serve_stdio};
#[cfg(feature = "mock")]
pub use mock::{MockAgent, Scenario};
pub use scripted::{ScriptedPeer, message_chunk};
pub use wire::Wire;
