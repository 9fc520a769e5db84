//! The work order: one step of a workflow, stateless, everything in its input.
