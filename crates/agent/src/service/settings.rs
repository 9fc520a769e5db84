//! The modes and options of a session: the offer of the agent, and changes by the client.

use duologue_schema::{
    ConfigOptionUpdate, CurrentModeUpdate, SessionConfigOption, SessionConfigOptionValue, SessionModeId,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};

use super::Shared;
use crate::agent::{Agent, SessionSetup};
use crate::context::Context;
use crate::error::Result;
use crate::session::Session;
use crate::settings::{ModeMirror, ModeSource};
use crate::unhandled::check_settings;

impl<A: Agent> Shared<A> {
    /// Stores the modes and options of a session. Completes them, and removes those that the client does not support.
    pub(super) fn offer(&self, session: &Session, mut setup: SessionSetup) -> Result<SessionSetup> {
        session.offer(&mut setup);
        check_settings::<A>(&session.settings()).inspect_err(|error| tracing::error!("{error}"))?;
        setup.config_options = setup.config_options.map(|options| self.client.shown_options(options));
        Ok(setup)
    }

    /// Handles `session/set_mode`. An agent without modes may have an option for them.
    pub(super) async fn set_mode(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionModeRequest,
    ) -> Result<()> {
        session.settings().check_mode(&request.mode_id)?;
        let mode = request.mode_id.clone();
        let mirror = session.settings().mirror().cloned();
        if let Some(ModeMirror { option, source: ModeSource::Option }) = mirror {
            let mut request = SetSessionConfigOptionRequest::new(request.session_id, option, mode.as_str());
            request.meta = context.meta().cloned();
            let options = self.agent.set_config_option(context, session, request).await?;
            // Without a wait: the agent has switched, and a cancelled request must not hide it.
            let switched = session.change_settings(|settings| {
                let switched = settings.set_options(options);
                (switched, Some(ConfigOptionUpdate::new(settings.options()).into()))
            })?;
            if let Some(switched) = switched {
                session.change_settings(|_| ((), Some(CurrentModeUpdate::new(switched).into())))?;
            }
            return session.settings().check_current_mode(&mode);
        }
        let changes_sent = session.settings().changes_sent();
        self.agent.set_mode(context, session, request).await?;
        session.change_settings(|settings| {
            let is_chosen = settings.changes_sent() != changes_sent;
            let changed = !is_chosen && settings.set_mode(&mode) && mirror.is_some();
            ((), changed.then(|| ConfigOptionUpdate::new(settings.options()).into()))
        })?;
        // The response has no mode, so success would mean the requested one.
        session.settings().check_current_mode(&mode)
    }

    /// Handles `session/set_config_option`. The option may be the form of the agent's modes.
    pub(super) async fn set_config_option(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        session.settings().check_option(&request)?;
        let mirror = session.settings().mirror().cloned();
        if let (
            Some(ModeMirror { option, source: ModeSource::Modes }),
            SessionConfigOptionValue::ValueId(value),
        ) = (mirror, &request.value)
            && option == request.config_id
        {
            let mode = SessionModeId::new(value.as_str());
            let mut request = SetSessionModeRequest::new(request.session_id, mode.clone());
            request.meta = context.meta().cloned();
            let changes_sent = session.settings().changes_sent();
            self.agent.set_mode(context, session, request).await?;
            session.change_settings(|settings| {
                let is_chosen = settings.changes_sent() != changes_sent;
                let changed = !is_chosen && settings.set_mode(&mode);
                ((), changed.then(|| CurrentModeUpdate::new(mode).into()))
            })?;
        } else {
            let options = self.agent.set_config_option(context, session, request).await?;
            session.change_settings(|settings| {
                let mode = settings.set_options(options);
                ((), mode.map(|mode| CurrentModeUpdate::new(mode).into()))
            })?;
        }
        let options = session.settings().options();
        Ok(self.client.shown_options(options))
    }
}
