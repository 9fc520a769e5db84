//! Work orders: stateless steps, and the workflow that runs them.

mod artifacts;
mod folders;
mod notes;
mod order;
pub(crate) mod order_cache;
mod system;
mod tree;
pub(crate) mod worker;
mod workflow;

pub use artifacts::{ApplyError, ArtifactError, ArtifactWriter, apply_artifacts};
pub use duologue_schema::work::*;
pub use order::WorkOrder;
pub use worker::{WorkBuilder, Worker};
pub use workflow::{
    CompletedStep, EscalationReason, RunEnd, Workflow, WorkflowError, WorkflowRun, WorkflowStep,
};
