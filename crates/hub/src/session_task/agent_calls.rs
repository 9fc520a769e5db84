//! The way of the calls of an agent to other agents of the server, and of the answers back.

use std::sync::Arc;

use duologue_schema::SessionId;
use tokio::sync::mpsc;

/// A request of an agent to another agent of the server.
#[derive(Debug)]
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway has several agents"))]
pub(crate) struct AgentCall {
    /// The name of the calling agent.
    pub(crate) agent: String,
    /// The owner of its session.
    pub(crate) principal: Arc<str>,
    pub(crate) session: SessionId,
    /// The request, with the hub's id of the session.
    pub(crate) line: Vec<u8>,
    /// Receives messages for the agent: the response, then notifications. It is closed when the process of the agent ends.
    pub(crate) replies: mpsc::UnboundedSender<Vec<u8>>,
}

/// The receiver of the calls of all sessions.
pub(crate) type CallSender = mpsc::UnboundedSender<AgentCall>;

/// The calls of one process of an agent.
#[derive(Debug)]
pub(super) struct ProcessCalls {
    /// Absent in a server of one agent.
    server: Option<CallSender>,
    replies: mpsc::UnboundedSender<Vec<u8>>,
    incoming: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl ProcessCalls {
    pub(super) fn new(server: Option<CallSender>) -> Self {
        let (replies, incoming) = mpsc::unbounded_channel();
        ProcessCalls { server, replies, incoming }
    }

    /// Passes a request on.
    pub(super) fn route(&self, agent: &str, principal: &Arc<str>, session: &SessionId, line: Vec<u8>) {
        let (principal, replies) = (principal.clone(), self.replies.clone());
        let call = AgentCall { agent: agent.to_owned(), principal, session: session.clone(), line, replies };
        if self.server.as_ref().is_none_or(|server| server.send(call).is_err()) {
            tracing::debug!(%session, agent, "dropped a call to another agent: the server is being stopped");
        }
    }

    /// Returns the next message for the agent.
    ///
    /// # Cancel safety
    ///
    /// No message is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        match self.incoming.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }

    /// Returns true while a call waits for its answer or its end.
    pub(super) fn are_open(&self) -> bool {
        self.replies.strong_count() > 1
    }

    /// Ends the calls of a process that has ended.
    pub(super) fn end(&mut self) {
        *self = ProcessCalls::new(self.server.take());
    }
}
