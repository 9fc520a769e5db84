//! The parts of a session of which only the latest value counts.

use crate::{
    AvailableCommand, Meta, Patch, Plan, SessionConfigOption, SessionInfoUpdate, SessionModeId,
    SessionModeState, SessionUpdate, UsageUpdate,
};

/// Limit on the plans with an id that a session keeps. The one that was updated longest ago is dropped.
pub const PLANS: usize = 64;
/// Limit on their bytes together as JSON.
pub const PLAN_BYTES: usize = 1024 * 1024;

/// The latest modes, options, commands, plan, usage and title of a session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionState {
    /// The modes and the current one, if the agent has modes. The response that opens a session lists
    /// them, see [`Conversation::begin`](super::Conversation::begin).
    pub modes: Option<SessionModeState>,
    /// The current mode of a session without `modes`.
    unlisted_mode: Option<SessionModeId>,
    /// All configuration options.
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands.
    pub commands: Vec<AvailableCommand>,
    /// The plan. A list of steps with the id [`MAIN_PLAN`](Self::MAIN_PLAN) is this plan too.
    pub plan: Option<Plan>,
    /// The other plans by id, the one updated last at the end. At most [`PLANS`] with [`PLAN_BYTES`] together.
    pub plans: Vec<crate::PlanUpdateContent>,
    /// The bytes of each of these plans as JSON, so that an update does not measure the others.
    plan_bytes: Vec<usize>,
    /// The state of the foreground work, with the work in the background. Absent until the agent reports it.
    #[cfg(feature = "protocol-v2")]
    pub foreground: Option<crate::StateUpdate>,
    /// The used part of the context, and the cost so far. An absent cost is unknown.
    pub usage: Option<UsageUpdate>,
    /// The title.
    pub title: Option<String>,
    /// The time of the last activity, as the agent wrote it (RFC 3339).
    pub updated_at: Option<String>,
    /// Extension data about the session.
    pub meta: Option<Meta>,
}

impl SessionState {
    /// The id of the plan that version 1 sends without one.
    pub const MAIN_PLAN: &'static str = "main";

    /// Returns true if `update` changes the state of a session.
    #[must_use]
    pub fn is_changed_by(update: &SessionUpdate) -> bool {
        match update {
            SessionUpdate::Plan(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_)
            | SessionUpdate::UsageUpdate(_) => true,
            SessionUpdate::PlanUpdate(_) | SessionUpdate::PlanRemoved(_) => true,
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::StateUpdate(_) => true,
            _ => false,
        }
    }

    pub(super) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::Plan(plan) => self.set_main_plan(plan.clone()),
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands.clone_from(&update.available_commands);
            }
            SessionUpdate::CurrentModeUpdate(update) => self.switch(&update.current_mode_id),
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options.clone_from(&update.config_options);
            }
            SessionUpdate::SessionInfoUpdate(update) => self.set_info(update.clone()),
            SessionUpdate::UsageUpdate(usage) => self.set_usage(usage.clone()),
            SessionUpdate::PlanUpdate(update) => self.set_plan(&update.plan),
            SessionUpdate::PlanRemoved(removed) => self.remove_plan(&removed.plan_id),
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::StateUpdate(state) => self.foreground = Some(state.clone()),
            _ => {}
        }
    }

    /// Returns the current mode, if the agent has named it.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.modes.as_ref().map(|modes| &modes.current_mode_id).or(self.unlisted_mode.as_ref())
    }

    pub(super) fn begin(
        &mut self,
        modes: Option<SessionModeState>,
        config_options: Vec<SessionConfigOption>,
    ) {
        if modes.is_some() {
            self.unlisted_mode = None;
        }
        self.modes = modes;
        self.config_options = config_options;
    }

    fn switch(&mut self, mode: &SessionModeId) {
        match &mut self.modes {
            Some(modes) => modes.current_mode_id.clone_from(mode),
            None => self.unlisted_mode = Some(mode.clone()),
        }
    }

    fn set_info(&mut self, info: SessionInfoUpdate) {
        info.title.apply(&mut self.title);
        info.updated_at.apply(&mut self.updated_at);
        Meta::patch(&mut self.meta, info.meta);
    }

    /// Replaces the usage, without a cost that the update leaves as it is.
    fn set_usage(&mut self, mut usage: UsageUpdate) {
        let mut cost = self.usage.take().and_then(|known| known.cost.value().cloned());
        std::mem::take(&mut usage.cost).apply(&mut cost);
        usage.cost = cost.map_or(Patch::Keep, Patch::Set);
        self.usage = Some(usage);
    }

    fn set_main_plan(&mut self, plan: Plan) {
        self.remove_plan(&Self::MAIN_PLAN.into());
        self.plan = Some(plan);
    }

    fn remove_plan(&mut self, id: &crate::PlanId) {
        if id.as_str() == Self::MAIN_PLAN {
            self.plan = None;
        }
        if let Some(index) = self.plans.iter().rposition(|known| known.plan_id().as_ref() == Some(id)) {
            self.plans.remove(index);
            self.plan_bytes.remove(index);
        }
    }

    /// Replaces the plan with the same id, and drops those updated longest ago over the limits. A plan that is too long
    /// drops itself alone.
    fn set_plan(&mut self, plan: &crate::PlanUpdateContent) {
        let Some(id) = plan.plan_id() else { return };
        self.remove_plan(&id);
        if let crate::PlanUpdateContent::Items(items) = plan
            && id.as_str() == Self::MAIN_PLAN
        {
            self.plan = Some(Plan { entries: items.entries.clone(), meta: items.meta.clone() });
            return;
        }
        let Some(new) = crate::serialized_len(plan, PLAN_BYTES) else { return };
        let mut bytes = new;
        let fitting = self.plan_bytes.iter().rev().take(PLANS - 1).take_while(|known| {
            bytes += **known;
            bytes <= PLAN_BYTES
        });
        let dropped = self.plans.len() - fitting.count();
        self.plans.drain(..dropped);
        self.plan_bytes.drain(..dropped);
        self.plan_bytes.push(new);
        self.plans.push(plan.clone());
    }
}
