//! Plans with ids, for clients that show one plan without an id.

use std::sync::LazyLock;

use duologue_rpc::raw_message::member;
use duologue_schema::{Plan, PlanUpdateContent, SessionNotification, SessionUpdate};
use memchr::memmem::Finder;

use crate::load::update_line;

/// Returns the update in place of one of a plan with an id. A client without ids shows the last plan that is a list of
/// steps. `None` for a plan that it cannot show, and an empty plan for a removed one.
pub(crate) fn legacy_plan(update: SessionUpdate) -> Option<SessionUpdate> {
    match update {
        SessionUpdate::PlanUpdate(update) => match update.plan {
            PlanUpdateContent::Items(items) => {
                let mut plan = Plan::new(items.entries);
                plan.meta = items.meta;
                Some(plan.into())
            }
            _ => None,
        },
        SessionUpdate::PlanRemoved(_) => Some(Plan::new(Vec::new()).into()),
        update => Some(update),
    }
}

/// Returns the frames of a client without `plan` for an update of a plan with an id. `None` for another message, which
/// stays as it is.
pub(crate) fn legacy_frames(frame: &[u8]) -> Option<Vec<Vec<u8>>> {
    /// Made once, because each line is searched.
    static UPDATE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"plan_"));
    UPDATE.find(frame)?;
    let params = frame.get(member(frame, "params")?)?;
    let SessionNotification { session_id, update, .. } = serde_json::from_slice(params).ok()?;
    if !matches!(update, SessionUpdate::PlanUpdate(_) | SessionUpdate::PlanRemoved(_)) {
        return None;
    }
    let shown = legacy_plan(update).and_then(|update| update_line(&session_id, update).ok());
    Some(shown.into_iter().collect())
}
