//! Envelopes: what is asked, delegated and told, and by whom it is answered.

mod asking;
pub(crate) mod correspondent;
mod directory;
pub(crate) mod discovery;
mod domain;
mod received;
pub(crate) mod service;

pub use asking::AskQuery;
pub use correspondent::Correspondent;
pub use directory::Directory;
pub use domain::Pattern;
pub use duologue_schema::envelope::*;
pub use received::Received;
