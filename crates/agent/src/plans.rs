//! The plans of a session by id.

use std::sync::Mutex;

use duologue_rpc::Lock;
use duologue_schema::{PlanId, PlanRemoved, PlanUpdate, PlanUpdateContent, SessionUpdate};

use crate::error::Result;
use crate::session::Session;

/// The plan that a client with one plan shows.
#[derive(Default)]
struct ShownPlan(Mutex<Option<PlanId>>);

impl Session {
    /// Shows a plan, or replaces the one with its id. A client without `plan` shows the last plan that is a list
    /// of steps, as [`set_plan`](Self::set_plan) does, and no other. If that plan becomes Markdown, it shows an empty one.
    ///
    /// ```
    /// # use duologue_agent::schema::{PlanEntry, PlanItems};
    /// # async fn plan(session: &duologue_agent::Session, steps: Vec<PlanEntry>) -> duologue_agent::Result<()> {
    /// session.show_plan(PlanItems::new("tests", steps)).await?;
    /// session.remove_plan("tests").await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub async fn show_plan(&self, plan: impl Into<PlanUpdateContent>) -> Result<()> {
        let update = PlanUpdate::new(plan.into()).into();
        if self.client().accepts(&update) {
            return self.update(update).await;
        }
        let SessionUpdate::PlanUpdate(PlanUpdate { plan, .. }) = update else { return Ok(()) };
        let PlanUpdateContent::Items(items) = plan else {
            // Its earlier steps no longer count.
            return match plan.plan_id() {
                Some(id) => self.hide_plan(&id).await,
                None => Ok(()),
            };
        };
        self.set_plan(items.entries).await?;
        *self.state::<ShownPlan>().0.lock_unpoisoned() = Some(items.plan_id);
        Ok(())
    }

    /// Removes a plan. A client without `plan` shows an empty one in its place.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub async fn remove_plan(&self, id: impl Into<PlanId>) -> Result<()> {
        let id = id.into();
        let update = PlanRemoved::new(id.clone()).into();
        if self.client().accepts(&update) {
            return self.update(update).await;
        }
        self.hide_plan(&id).await
    }

    /// Shows an empty plan to a client without `plan`, if it shows the plan with this id.
    async fn hide_plan(&self, id: &PlanId) -> Result<()> {
        let shown = self.state::<ShownPlan>();
        if shown.0.lock_unpoisoned().as_ref() != Some(id) {
            return Ok(());
        }
        self.set_plan(Vec::new()).await?;
        *shown.0.lock_unpoisoned() = None;
        Ok(())
    }
}
