//! A deterministic agent without a model. Each turn plays one of the [`Scenario`]s, always with the same text and ids.

mod agent;
mod client_requests;
mod delegation;
mod dialogues;
mod display;
mod edge_cases;
mod envelopes;
mod messages;
mod scenario;
mod scenario_turn;
mod session_store;
mod settings;
#[cfg(feature = "protocol-v2")]
mod version_2;

pub use agent::MockAgent;
pub use scenario::{Scenario, UnknownScenario};
