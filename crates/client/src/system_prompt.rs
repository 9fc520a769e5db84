//! Instructions of the client to the model of a session.

use duologue_schema::{SystemPrompt, SystemPromptMode};

use crate::error::Result;
use crate::session::SessionBuilder;

impl SessionBuilder {
    /// Sets instructions to the model: after those of the agent, or in their place. Needs an agent that advertises
    /// `sessionCapabilities.systemPrompt`, and `mode.override` in it for [`SystemPromptMode::Override`].
    ///
    /// ```no_run
    /// use duologue_client::schema::SystemPromptMode;
    ///
    /// # async fn run(agent: duologue_client::Connection) -> duologue_client::Result<()> {
    /// let session = agent
    ///     .session_in("/home/me/project")
    ///     .system_prompt(SystemPromptMode::Append, "Answer in French.")
    ///     .create()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn system_prompt(mut self, mode: SystemPromptMode, text: impl Into<String>) -> Self {
        self.system_prompt = Some(SystemPrompt::new(mode, vec![text.into().into()]));
        self
    }

    pub(crate) fn check_system_prompt(&self) -> Result<()> {
        let Some(prompt) = &self.system_prompt else { return Ok(()) };
        let inner = &self.connection.inner;
        let offered = &inner.agent().session_capabilities.system_prompt;
        inner.require(offered.is_some(), "sessionCapabilities.systemPrompt")?;
        if prompt.mode == SystemPromptMode::Override {
            let mode = offered.as_ref().and_then(|offered| offered.mode.as_ref());
            let offered = mode.is_some_and(|mode| mode.r#override.is_some());
            inner.require(offered, "sessionCapabilities.systemPrompt.mode.override")?;
        }
        Ok(())
    }
}
