//! The process of a session's agent: its start with the conversation so far, and its end.

use std::convert::Infallible;

use duologue_schema::{InitializeResponse, SessionUpdate};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::SessionTask;
use crate::abilities::Abilities;
use crate::error::Error;
use crate::hosted_agent::HostedAgent;
use crate::input::OwnerInput;
use crate::record::ClientKey;

/// A process that has answered `initialize`.
#[derive(Debug)]
pub(super) struct StartedAgent {
    agent: HostedAgent,
    introduction: InitializeResponse,
    /// The params with which the session is opened again.
    params: Value,
    /// The conversation in the log.
    conversation: Vec<SessionUpdate>,
}

/// The outcome of a start.
pub(super) type Started = Result<StartedAgent, Error>;

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
        if let Ok(Ok(started)) = self.task.await {
            started.agent.end().await;
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
        let reason = self.leave_agent(otherwise).filter(|_| self.owner.has_requests());
        match reason {
            Some(reason) => self.ended = Some(EndedAgent { reason, otherwise }),
            // The next prompt starts the agent again.
            None => self.input(OwnerInput::AgentEnded(otherwise)),
        }
    }

    /// Ends the process of the agent, if there is one. Returns the receiver of the reason.
    pub(super) fn leave_agent(&mut self, otherwise: &'static str) -> Option<oneshot::Receiver<String>> {
        self.calls.end();
        self.early.take();
        let mut agent = self.agent.take()?;
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
        Some(reason)
    }

    /// Starts a process for a request of a client.
    pub(super) fn start_agent(&mut self, client: Option<&ClientKey>) {
        let Some(hub) = self.hub.upgrade() else { return };
        let former = self.ending.take();
        let (cancel, mut cancelled) = oneshot::channel();
        // A viewer with other folders and servers, or none, decides nothing before it needs the agent.
        if let Some(given) = client.and_then(|client| self.given.get(client)) {
            self.params.clone_from(given);
        }
        let params: Value = serde_json::from_str(self.params.get()).unwrap_or_default();
        let schemes = self.owner.schemes();
        // The prompt that waits is no part of the conversation so far.
        let session = self.id.clone();
        let (log, id, end) =
            (self.log.clone(), self.id.clone(), self.owner.visible().min(self.owner.end() - 1));
        let (ended, ending) = watch::channel(());
        self.ending = Some(ending);
        let task = tokio::spawn(async move {
            let _ended = ended;
            // Two processes of one session would change the same files.
            wait_for_former(former).await;
            let starting = async {
                let (agent, introduction) = hub.start_agent(schemes).await?;
                match hub.load(log, id, end, Some(Abilities::EXACT)).await {
                    Ok((_place, loaded)) => {
                        let own = loaded.updates.into_iter().filter(|update| update.session_id == session);
                        let conversation = own.map(|update| update.update).collect();
                        Ok(StartedAgent { agent, introduction, params, conversation })
                    }
                    Err(error) => {
                        agent.end().await;
                        Err(error)
                    }
                }
            };
            tokio::select! {
                biased;
                _ = &mut cancelled => Err(Error::Closed),
                started = starting => started,
            }
        });
        self.starting = Some(StartingAgent { task, cancel });
    }

    pub(super) fn started(&mut self, started: Started) {
        match started {
            Ok(StartedAgent { agent, introduction, params, conversation }) => {
                agent.set_session(&self.id);
                self.agent = Some(agent);
                let introduction = &introduction;
                self.input(OwnerInput::AgentReady { introduction, params, conversation });
            }
            Err(error) => self.input(OwnerInput::AgentEnded(&error.to_string())),
        }
    }
}
