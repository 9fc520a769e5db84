//! The process of a session's agent: its start with the conversation so far, and its end.

use std::convert::Infallible;

use duologue_schema::{
    InitializeResponse, LoadSessionRequest, NewSessionRequest, Request as _, ResumeSessionRequest,
};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

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

/// A process that is being started for the session.
#[derive(Debug)]
pub(super) struct StartingAgent {
    pub(super) task: JoinHandle<Started>,
    /// Dropped to end the start.
    cancel: oneshot::Sender<Infallible>,
}

impl StartingAgent {
    /// Ends the start. It waits for a process that has been started, unless that is one of the former processes now.
    pub(super) async fn end(self) {
        drop(self.cancel);
        if let Ok(Ok((agent, ..))) = self.task.await {
            agent.end().await;
        }
    }
}

/// Waits until the former processes of a session have ended.
pub(super) async fn wait_for_former(ending: Option<watch::Receiver<()>>) {
    if let Some(mut ending) = ending {
        while ending.changed().await.is_ok() {}
    }
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
            let (running, ending) = watch::channel(());
            let (former, session) = (self.ending.replace(ending), self.id.clone());
            tokio::spawn(async move {
                let reason = agent.ended(otherwise).await;
                tracing::warn!(%session, reason, "the agent of a session has ended");
                let _ = sender.send(reason);
                agent.end().await;
                wait_for_former(former).await;
                drop(running);
            });
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
        let (running, ending) = watch::channel(());
        let former = self.ending.replace(ending);
        let (cancel, mut cancelled) = oneshot::channel();
        let (agent_session, params) = (self.agent_session.clone(), self.params.clone());
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let (id, schemes) = (self.id.clone(), self.owner.schemes());
        let task = tokio::spawn(async move {
            // Two processes of one session would change the same files.
            wait_for_former(former).await;
            let started = tokio::select! {
                biased;
                _ = &mut cancelled => Err(Error::Closed),
                started = hub.start_agent(schemes) => started,
            };
            let (mut agent, introduction) = started.map_err(StartFailure::Error)?;
            agent.set_session(&id);
            let restored = tokio::select! {
                biased;
                _ = &mut cancelled => Err(StartFailure::Error(Error::Closed)),
                restored = restore(&mut agent, &introduction, agent_session, params, fresh) => restored,
            };
            match restored {
                Ok((agent_session, has_context)) => Ok((agent, agent_session, has_context)),
                Err(failure) => {
                    // It has learned of the session, so the next process waits for its end too.
                    tokio::spawn(async move {
                        agent.end().await;
                        drop(running);
                    });
                    Err(failure)
                }
            }
        });
        self.starting = Some(StartingAgent { task, cancel });
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
                tracing::info!(session = agent.session(), %error, "the agent cannot restore a session");
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
