//! The mock: a deterministic agent for people who write editors.
//!
//! It has no model. What it does is one of the [`Scenario`]s, the same words and ids every time.

mod agent;
mod asking;
mod colleague;
pub(crate) mod faults;
mod memory;
mod odd;
mod scenario;
mod scene;
mod settings;
mod showing;
mod speaker;
mod words;

pub(crate) use agent::Mock;
pub(crate) use scenario::Scenario;
