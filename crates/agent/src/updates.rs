//! Shorthands for updates. [`Session`] and [`Turn`] have the same ones; those of a turn precede its response.

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

            /// Reports that the agent switched the mode by itself.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn mode_changed(&self, mode: impl Into<SessionModeId>) -> Result<()> {
                self.update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.into()))).await
            }

            /// Sends all configuration options after the agent changed one by itself. Boolean options
            /// are removed for clients that cannot show them.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn config_changed(&self, options: Vec<SessionConfigOption>) -> Result<()> {
                self.update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options))).await
            }

            /// Changes the title or the time of the session.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_info(&self, info: SessionInfoUpdate) -> Result<()> {
                self.update(SessionUpdate::SessionInfoUpdate(info)).await
            }

            /// Reports the used part of the context in tokens, and the cost so far.
            ///
            /// # Errors
            ///
            /// As [`update`](Self::update).
            pub async fn set_usage(&self, usage: UsageUpdate) -> Result<()> {
                self.update(SessionUpdate::UsageUpdate(usage)).await
            }

            /// Sends a notice, which is not part of the conversation. It is only sent to clients that advertise
            /// notices.
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
