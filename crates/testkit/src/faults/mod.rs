//! Faults of an agent, each with a name, for tests of a client.
//!
//! An agent writes into a pipe as always. A relay between that pipe and the client applies the faults: extra messages
//! ([`messages`]), damaged bytes ([`output`]) and the death of the process ([`process`]). [`list`] declares all faults.

mod list;
mod messages;
mod output;
mod process;
mod relay;
mod value;

pub use list::{Faults, InvalidFault, help};
pub use relay::{FaultError, serve_stdio};
