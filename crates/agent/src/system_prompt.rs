//! Instructions of a client to the model of a session.

use duologue_schema::{AgentCapabilities, ContentBlock, SystemPrompt, SystemPromptMode};

use crate::error::{Error, Result};
use crate::session::Session;

/// Fails for a system prompt that the agent does not support.
pub(crate) fn check_system_prompt(prompt: Option<&SystemPrompt>, agent: &AgentCapabilities) -> Result<()> {
    let Some(prompt) = prompt else { return Ok(()) };
    let Some(offered) = &agent.session_capabilities.system_prompt else {
        return Err(Error::invalid_params("system prompts are not supported"));
    };
    let can_override = offered.mode.as_ref().is_some_and(|mode| mode.r#override.is_some());
    let is_supported = match &prompt.mode {
        SystemPromptMode::Append => true,
        SystemPromptMode::Override => can_override,
        _ => false,
    };
    if !is_supported {
        let mode = prompt.mode.as_str();
        return Err(Error::invalid_params(format!("the mode {mode:?} of system prompts is not supported")));
    }
    if prompt.content.is_empty() || !prompt.content.iter().all(|block| matches!(block, ContentBlock::Text(_)))
    {
        return Err(Error::invalid_params("a system prompt has to be text"));
    }
    Ok(())
}

impl Session {
    /// Returns the instructions of the client to the model. The crate has checked that
    /// [`capabilities`](crate::Agent::capabilities) advertise their mode, and that they are text.
    ///
    /// ```
    /// # use duologue_agent::schema::SystemPromptMode;
    /// # fn instructions(session: &duologue_agent::Session) -> String {
    /// let own = "You are a careful programmer.";
    /// let Some(prompt) = session.system_prompt() else { return own.to_owned() };
    /// let text: String = prompt.content.iter().filter_map(|block| block.as_text()).collect();
    /// match prompt.mode {
    ///     SystemPromptMode::Override => text,
    ///     _ => format!("{own}\n{text}"),
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn system_prompt(&self) -> Option<&SystemPrompt> {
        self.params().system_prompt.as_ref()
    }
}
