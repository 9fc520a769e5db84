//! Shorthands for updates, the same on a [`Session`] and on a [`Turn`]: a turn's are part of it, and
//! cannot come behind its answer.

use duologue_schema::{
    AvailableCommand, AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate, Notice, Plan,
    PlanEntry, SessionConfigOption, SessionInfoUpdate, SessionModeId, SessionUpdate, UsageUpdate,
};

use crate::error::Result;
use crate::session::Session;
use crate::turn::Turn;

macro_rules! shorthands {
    ($($on:ident),*) => {$(
        impl $on {
            /// Replaces the list of slash commands.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_commands(&self, commands: Vec<AvailableCommand>) -> Result<()> {
                self.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands))).await
            }

            /// Replaces the plan.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_plan(&self, entries: Vec<PlanEntry>) -> Result<()> {
                self.update(SessionUpdate::Plan(Plan::new(entries))).await
            }

            /// Tells that the agent switched the mode by itself.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn mode_changed(&self, mode: impl Into<SessionModeId>) -> Result<()> {
                self.update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.into()))).await
            }

            /// Tells all configuration options after the agent changed one by itself. Boolean ones
            /// are left out for clients that cannot show them.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn config_changed(&self, options: Vec<SessionConfigOption>) -> Result<()> {
                let options = self.client().shown_options(options);
                self.update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await
            }

            /// Patches title or time of the session.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_info(&self, info: SessionInfoUpdate) -> Result<()> {
                self.update(SessionUpdate::SessionInfoUpdate(info)).await
            }

            /// Tells how much of the context is used, in tokens, and what it cost so far.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_usage(&self, usage: UsageUpdate) -> Result<()> {
                self.update(SessionUpdate::UsageUpdate(usage)).await
            }

            /// Shows a passing notice. Clients that did not ask for notices are not sent any.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn notice(&self, notice: Notice) -> Result<()> {
                self.update(SessionUpdate::Notice(notice)).await
            }
        }
    )*};
}

shorthands!(Session, Turn);
