//! The agent's plan for a task.
//!
//! See [Agent plan](https://agentclientprotocol.com/protocol/v1/agent-plan).

use duologue_schema_derive::wire;

/// The whole plan. It replaces the previous one.
#[wire]
pub struct Plan {
    /// The steps, in order.
    #[wire(skip_invalid)]
    pub entries: Vec<PlanEntry>,
}

/// One step of a plan.
#[wire]
pub struct PlanEntry {
    /// A description of the step.
    pub content: String,
    /// The priority of the step.
    pub priority: PlanEntryPriority,
    /// The status of the step.
    pub status: PlanEntryStatus,
}

/// The priority of a step.
#[wire]
pub enum PlanEntryPriority {
    /// The task fails without the step.
    High,
    /// The step is important.
    Medium,
    /// The step is optional.
    Low,
}

/// The status of a step.
#[wire]
pub enum PlanEntryStatus {
    /// The step has not started.
    Pending,
    /// The step is running.
    InProgress,
    /// The step is complete.
    Completed,
    /// The step was cancelled. Only version 2 has it.
    #[cfg(feature = "protocol-v2")]
    Cancelled,
}
