//! Envelopes: what is asked, delegated and told, and by whom it is answered.

mod asking;
mod assignment;
pub(crate) mod correspondent;
mod delegating;
mod directory;
pub(crate) mod discovery;
mod domain;
pub(crate) mod inbox;
pub(crate) mod letters;
mod read;
mod received;
mod seen;
pub(crate) mod service;
mod subscription;
mod table;
mod tasks;
mod telling;
#[cfg(test)]
mod tests;
pub(crate) mod working;

pub use asking::AskQuery;
pub use assignment::{Assignment, PROGRESS};
pub use correspondent::Correspondent;
pub use delegating::{AskDelegate, Delegation};
pub use directory::{Directory, TellAll};
pub use discovery::DISCOVER_LIFETIME;
pub use domain::Pattern;
pub use duologue_schema::Members;
pub use duologue_schema::envelope::*;
pub use letters::ExchangeStats;
pub use received::Received;
pub use subscription::{Lagged, Subscription};
pub use telling::TellNotify;
