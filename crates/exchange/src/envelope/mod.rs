//! Envelopes: queries, delegations, notifications, and the handler for them.

mod delegation;
mod directory;
pub(crate) mod discovery;
mod domain;
mod ended_tasks;
mod events;
pub(crate) mod handler;
pub(crate) mod id_cache;
pub(crate) mod inbox;
pub(crate) mod machine;
mod notify;
mod outgoing;
mod output;
mod pending;
mod read;
mod received;
mod received_task;
mod request;
pub(crate) mod service;
pub(crate) mod state;
mod subscription;
pub(crate) mod task_runner;
mod task_slots;
#[cfg(test)]
mod tests;

pub use delegation::{CancelBuilder, DelegateBuilder, Delegation};
pub use directory::{BroadcastBuilder, Directory};
pub use discovery::DISCOVER_LIFETIME;
pub use domain::Pattern;
pub use duologue_schema::Members;
pub use duologue_schema::envelope::*;
pub use handler::EnvelopeHandler;
pub use notify::NotifyBuilder;
pub use output::{OutputBuilder, OutputGap, OutputStream, TaskOutput};
pub use received::Received;
pub use received_task::{PROGRESS, ReceivedTask};
pub use request::QueryBuilder;
pub use state::ExchangeStats;
pub use subscription::{Lagged, Subscription};
