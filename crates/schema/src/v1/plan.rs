//! The agent's plan for a task.
//!
//! See [Agent plan](https://agentclientprotocol.com/protocol/v1/agent-plan).

use std::path::PathBuf;

use duologue_schema_derive::wire;

crate::ids::ids! {
    /// The id of a plan within a session. The agent creates it.
    PlanId,
}

/// The whole plan, for a client without [`PlanCapabilities`]. It replaces the previous one.
#[wire]
pub struct Plan {
    /// The steps, in order.
    #[wire(skip_invalid)]
    pub entries: Vec<PlanEntry>,
}

/// The capability to receive `plan_update` and `plan_removed`.
#[wire]
pub struct PlanCapabilities {}

/// A new plan, or the new content of a known one. Only for clients with `plan`.
///
/// ```
/// use duologue_schema::{Conversation, PlanMarkdown, PlanUpdate};
///
/// let mut conversation = Conversation::default();
/// conversation.apply(&PlanUpdate::new(PlanMarkdown::new("draft", "1. Read")).into());
/// assert_eq!(conversation.state().plans.len(), 1);
/// ```
#[wire]
pub struct PlanUpdate {
    /// The whole plan. It replaces the one with the same id, whatever its form.
    pub plan: PlanUpdateContent,
}

/// A plan in one of its forms.
#[wire(tag = "type", open)]
pub enum PlanUpdateContent {
    /// A list of steps.
    Items(PlanItems),
    /// Text in Markdown.
    Markdown(PlanMarkdown),
}

impl PlanUpdateContent {
    /// Returns the id of the plan. Only a plan of an unknown form can lack one.
    #[must_use]
    pub fn plan_id(&self) -> Option<PlanId> {
        match self {
            Self::Items(plan) => Some(plan.plan_id.clone()),
            Self::Markdown(plan) => Some(plan.plan_id.clone()),
            Self::Unknown(unknown) => unknown.text("planId").map(PlanId::new),
        }
    }
}

/// A plan that is a list of steps.
#[wire]
pub struct PlanItems {
    /// The id of the plan.
    pub plan_id: PlanId,
    /// The steps, in order.
    // In place of an empty plan, a malformed list is an error, as in version 2.
    #[wire(skip_items)]
    pub entries: Vec<PlanEntry>,
}

/// A plan in Markdown.
#[wire]
pub struct PlanMarkdown {
    /// The id of the plan.
    pub plan_id: PlanId,
    /// The text.
    pub content: String,
    /// The file with the plan, as an absolute path, if there is one.
    #[wire(lenient)]
    pub path: Option<PathBuf>,
}

/// The removal of a plan. A client ignores an unknown id.
#[wire]
pub struct PlanRemoved {
    /// The id of the plan.
    pub plan_id: PlanId,
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
