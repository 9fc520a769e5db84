//! The process of a session's agent: its start with the conversation so far, and its end.

use duologue_schema::{
    InitializeResponse, LoadSessionRequest, NewSessionRequest, Request as _, ResumeSessionRequest,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{SessionTask, session_of};
use crate::error::Error;
use crate::hosted_agent::HostedAgent;
use crate::input::OwnerInput;

/// The process, the id of the session at the agent, and true if the agent knows the conversation.
pub(super) type Started = Result<(HostedAgent, String, bool), StartFailure>;

/// The reason for which a process does not continue a session.
#[derive(Debug)]
pub(super) enum StartFailure {
    ContextLost,
    Error(Error),
}

/// An agent that has ended, and whose exit status is not known yet.
#[derive(Debug)]
pub(super) struct EndedAgent {
    reason: oneshot::Receiver<String>,
    /// The reason if there is no other.
    otherwise: &'static str,
}

impl EndedAgent {
    /// Waits for the reason of the end.
    ///
    /// # Cancel safety
    ///
    /// The reason is not lost if the future is dropped.
    pub(super) async fn reason(ended: &mut Option<EndedAgent>) -> String {
        let Some(ended) = ended else { return std::future::pending().await };
        let reason = (&mut ended.reason).await;
        reason.unwrap_or_else(|_| ended.otherwise.to_owned())
    }
}

impl SessionTask {
    /// Ends the agent beside the work of the session. Requests that wait for it fail when the reason is known.
    pub(super) fn end_agent(&mut self, otherwise: &'static str) {
        self.calls.end();
        if let Some(mut agent) = self.agent.take() {
            let (sender, reason) = oneshot::channel();
            let (former, session) = (self.ending.take(), self.id.clone());
            self.ending = Some(tokio::spawn(async move {
                let reason = agent.ended(otherwise).await;
                tracing::warn!(%session, reason, "the agent of a session has ended");
                let _ = sender.send(reason);
                agent.end().await;
                if let Some(former) = former {
                    let _ = former.await;
                }
            }));
            if self.owner.has_requests() {
                self.ended = Some(EndedAgent { reason, otherwise });
                return;
            }
        }
        // The next prompt starts the agent again.
        self.input(OwnerInput::AgentEnded(otherwise));
    }

    pub(super) fn start_agent(&mut self, fresh: bool) {
        let Some(hub) = self.hub.upgrade() else { return };
        let ending = self.ending.take();
        let (agent_session, params) = (self.agent_session.clone(), self.params.clone());
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let schemes = self.owner.schemes();
        self.starting = Some(tokio::spawn(async move {
            // Two processes of one session would change the same files.
            if let Some(ending) = ending {
                let _ = ending.await;
            }
            let (mut agent, introduction) = hub.start_agent(schemes).await.map_err(StartFailure::Error)?;
            let (agent_session, has_context) =
                restore(&mut agent, &introduction, agent_session, params, fresh).await?;
            Ok((agent, agent_session, has_context))
        }));
    }

    pub(super) fn started(&mut self, started: Started) {
        match started {
            Ok((agent, agent_session, has_context)) => {
                self.agent = Some(agent);
                let new_session = (!has_context).then_some(agent_session.as_str());
                self.agent_session.clone_from(&agent_session);
                self.input(OwnerInput::AgentStarted { new_session });
            }
            Err(StartFailure::ContextLost) => self.input(OwnerInput::ContextLost),
            Err(StartFailure::Error(error)) => self.input(OwnerInput::AgentEnded(&error.to_string())),
        }
    }
}

/// Restores a session in a new process. Returns the id at the agent, and true if the agent knows the conversation.
async fn restore(
    agent: &mut HostedAgent,
    introduction: &InitializeResponse,
    agent_session: String,
    mut params: Value,
    fresh: bool,
) -> Result<(String, bool), StartFailure> {
    let capabilities = &introduction.agent_capabilities;
    let method = if capabilities.session_capabilities.resume.is_some() {
        Some(ResumeSessionRequest::METHOD)
    } else if capabilities.load_session {
        Some(LoadSessionRequest::METHOD)
    } else {
        None
    };
    if let Some(params) = params.as_object_mut() {
        params.entry("mcpServers").or_insert_with(|| json!([]));
    }
    if let Some(method) = method {
        params["sessionId"] = json!(agent_session);
        match agent.request(method, &params).await {
            Ok(_) => {
                agent.drop_early();
                return Ok((agent_session, true));
            }
            Err(Error::Agent { error, .. }) => {
                tracing::info!(%error, "the agent cannot restore a session");
                agent.drop_early();
            }
            Err(error) => return Err(StartFailure::Error(error)),
        }
    }
    if !fresh {
        return Err(StartFailure::ContextLost);
    }
    if let Some(params) = params.as_object_mut() {
        params.remove("sessionId");
    }
    let result = agent.request(NewSessionRequest::METHOD, &params).await.map_err(StartFailure::Error)?;
    let agent_session = session_of(&result).ok_or(StartFailure::ContextLost)?;
    Ok((agent_session, false))
}
