//! The agent's plan for a task.
//!
//! See [Agent plan](https://agentclientprotocol.com/protocol/v1/agent-plan).

use duologue_schema_derive::wire;

/// The whole plan; it replaces the one before.
#[wire]
pub struct Plan {
    /// The steps, in order.
    #[wire(skip_invalid)]
    pub entries: Vec<PlanEntry>,
}

/// One step of a plan.
#[wire]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How much it matters.
    pub priority: PlanEntryPriority,
    /// How far it is.
    pub status: PlanEntryStatus,
}

/// How much a step matters.
#[wire]
pub enum PlanEntryPriority {
    /// Without it the task fails.
    High,
    /// It matters.
    Medium,
    /// Nice to have.
    Low,
}

/// How far a step is.
#[wire]
pub enum PlanEntryStatus {
    /// Not begun.
    Pending,
    /// Being done.
    InProgress,
    /// Done.
    Completed,
}
