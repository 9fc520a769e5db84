//! Several plans of one session, each with an id.

use duologue_schema_derive::wire;

use crate::PlanEntry;

crate::ids::ids! {
    /// The id of a plan within a session. The agent creates it.
    PlanId,
}

/// The capability to receive `plan_update` and `plan_removed`.
#[wire]
pub struct PlanCapabilities {}

/// A new plan, or the new content of a known one.
#[wire]
pub struct PlanUpdate {
    /// The whole plan. It replaces the one with the same id.
    pub plan: PlanUpdateContent,
}

/// A plan in one of its forms.
#[wire(tag = "type", open)]
pub enum PlanUpdateContent {
    /// A list of steps.
    Items(PlanItems),
    /// A file.
    #[cfg(feature = "unstable")]
    File(PlanFile),
    /// Text in Markdown.
    #[cfg(feature = "unstable")]
    Markdown(PlanMarkdown),
}

impl PlanUpdateContent {
    /// Returns the id of the plan. Only a plan of an unknown form can lack one.
    #[must_use]
    pub fn plan_id(&self) -> Option<PlanId> {
        match self {
            Self::Items(plan) => Some(plan.plan_id.clone()),
            Self::File(plan) => Some(plan.plan_id.clone()),
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
    #[wire(skip_items)]
    pub entries: Vec<PlanEntry>,
}

/// A plan in a file.
#[wire]
pub struct PlanFile {
    /// The id of the plan.
    pub plan_id: PlanId,
    /// The URI of the file.
    pub uri: String,
}

/// A plan in Markdown.
#[wire]
pub struct PlanMarkdown {
    /// The id of the plan.
    pub plan_id: PlanId,
    /// The text.
    pub content: String,
}

/// The removal of a plan.
#[wire]
pub struct PlanRemoved {
    /// The id of the plan.
    pub plan_id: PlanId,
}
