//! A session whose task runs, and the commands of the task.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::{Error as RpcError, RequestId, SessionId};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::abilities::Abilities;
use crate::error::Error;
use crate::log_reader::ReaderEnd;
use crate::open_log::OpenLog;
use crate::projection::{error_response, interruption};
use crate::record::ClientKey;
use crate::session_questions::AnswerFault;

/// The responses for a client that are not in a log.
pub(crate) type Replies = mpsc::UnboundedSender<Vec<u8>>;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientRole {
    User,
    /// A worker of the server, which answers the questions of the session itself.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway has work"))]
    Worker,
    /// A worker that passes a dialogue on. The session does not stay open for it.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "only a gateway has several agents"))]
    Relay,
}

impl ClientRole {
    /// Returns true for a worker of the server.
    pub(crate) fn is_work(self) -> bool {
        self != ClientRole::User
    }
}

/// A client that opens a session.
#[derive(Clone, Debug)]
pub(crate) struct AttachingClient {
    pub(crate) client: ClientKey,
    /// Distinguishes this attachment from others of the client.
    pub(crate) attachment: u64,
    pub(crate) abilities: Abilities,
    pub(crate) replies: Replies,
    pub(crate) role: ClientRole,
}

/// A message to the task of a session.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    Attach {
        from: AttachingClient,
        /// The params of the client, with which its prompts start the agent again. Absent members stay. Without params they are
        /// those of the session, which the client has created.
        params: Option<Value>,
        /// The reader of the earlier attachment, which ends where the new one begins. True if the frames before that are
        /// replayed.
        earlier: Option<(ReaderEnd, bool)>,
        attached: oneshot::Sender<AttachReply>,
    },
    /// Somebody who has not opened the session answers a question.
    Answer {
        client: ClientKey,
        /// The position of the question. `None` for the only one that is open.
        question: Option<u64>,
        /// True for a question of a task, which its worker has.
        is_of_work: bool,
        answer: Value,
        done: oneshot::Sender<Result<GivenAnswer, AnswerFault>>,
    },
    FromClient {
        client: ClientKey,
        line: Vec<u8>,
    },
    /// The connection of a client is lost for a while, or back.
    Presence {
        client: ClientKey,
        attachment: u64,
        is_present: bool,
    },
    /// An older attachment than the last one has no effect.
    Left {
        client: ClientKey,
        attachment: u64,
    },
    /// The client closes the session. The process ends with the last client.
    Release {
        client: ClientKey,
        attachment: u64,
        /// Receives the position of the last record.
        done: oneshot::Sender<u64>,
    },
    /// Ends the process of the agent and the task.
    Close(oneshot::Sender<u64>),
}

/// The place of a client that has opened a session.
#[derive(Debug)]
pub(crate) struct AttachReply {
    /// The position behind which the client reads the log.
    pub(crate) position: u64,
    /// The position behind what the attachment itself has recorded.
    pub(crate) end: u64,
    /// The requests of the client that wait for their responses.
    pub(crate) requests: Vec<RequestId>,
    /// The positions of the requests of the agent that wait for an answer.
    pub(crate) open_requests: BTreeSet<u64>,
    /// True while the turn of another client runs.
    pub(crate) has_other_turn: bool,
}

/// An answer that the agent receives when it is in the log.
#[derive(Debug)]
pub(crate) struct GivenAnswer {
    /// The position of the question.
    pub(crate) question: u64,
    /// The position of the last record of the answer.
    pub(crate) end: u64,
}

/// A session whose task runs.
#[derive(Clone, Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: SessionId,
    /// The principal that the session belongs to.
    pub(crate) principal: Arc<str>,
    pub(crate) commands: mpsc::Sender<SessionCommand>,
    /// The position up to which clients may read.
    pub(crate) visible: watch::Receiver<u64>,
    /// True while a prompt runs.
    pub(crate) has_turn: watch::Receiver<bool>,
    /// True while the agent is there: its process, or the connection to it.
    pub(crate) has_agent: watch::Receiver<bool>,
    /// The positions of the questions that wait for an answer, and that no worker of the server answers.
    pub(crate) questions: watch::Receiver<Vec<u64>>,
    /// The log, while the task or a reader of it runs.
    pub(crate) log: Weak<OpenLog>,
    /// The error of the log that ended the task.
    pub(super) failure: Arc<OnceLock<Arc<Error>>>,
}

impl LiveSession {
    /// Returns the reason for which the task has ended.
    pub(crate) fn end(&self) -> Error {
        self.failure.get().cloned().map_or(Error::UnknownSession, Error::LogFailed)
    }

    /// Returns the response to a request of a client for which the task has ended.
    pub(crate) fn ended_response(&self, line: &[u8]) -> Option<Vec<u8>> {
        ended_response(line, &self.failure)
    }

    /// Ends the process and the task of the session.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(SessionCommand::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// Returns the response to a request of a client whose session has ended, if the line is one.
pub(super) fn ended_response(line: &[u8], failure: &OnceLock<Arc<Error>>) -> Option<Vec<u8>> {
    let Some(Ok(RpcMessage::Request { id, .. })) = RpcMessage::read(line, &Limits::default()) else {
        return None;
    };
    let error = match failure.get() {
        // The same request fails until then.
        Some(error) => {
            let text = format!("{}; load the session again", Error::LogFailed(error.clone()));
            RpcError::internal(text).coded("log_failed", false)
        }
        None => interruption("session_ended", "the session was closed or deleted; load it again"),
    };
    Some(error_response(id.token(), &error))
}
