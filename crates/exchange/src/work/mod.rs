//! Work orders: stateless steps, and the workflow that runs them.

mod artifacts;
mod tree;

pub use artifacts::{ApplyError, ArtifactFault, apply_artifacts};
