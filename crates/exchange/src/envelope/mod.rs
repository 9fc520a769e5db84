//! Envelopes: what is asked, delegated and told, and by whom it is answered.

mod asking;
pub(crate) mod correspondent;
mod received;
pub(crate) mod service;

pub use asking::AskQuery;
pub use correspondent::Correspondent;
pub use duologue_schema::envelope::*;
pub use received::Received;
