//! Work orders: stateless steps, and the workflow that runs them.

mod artifacts;
mod tree;
pub(crate) mod worker;

pub use artifacts::{ApplyError, ArtifactFault, apply_artifacts};
pub use duologue_schema::work::*;
pub use worker::Worker;
