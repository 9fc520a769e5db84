//! The inputs and actions of the owner of a session.

use duologue_schema::{InitializeResponse, SessionUpdate};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::abilities::Abilities;
use crate::record::ClientKey;

/// An input of the owner. Lines have the ids of the hub for the session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OwnerInput<'a> {
    /// A client created or loaded the session.
    Attached {
        /// The client.
        client: &'a ClientKey,
        /// The requests of the agent that it can answer.
        abilities: Abilities,
    },
    /// The connection of a client is lost. The client can come back.
    Absent(&'a ClientKey),
    /// A client is back with its old connection.
    Returned(&'a ClientKey),
    /// A client closed its connection, or stayed away too long.
    Left(&'a ClientKey),
    /// A message of a client that belongs to the session.
    FromClient {
        /// The client.
        client: &'a ClientKey,
        /// The number of the message on the client's connection. It is acknowledged with it.
        number: u64,
        /// The message, without its line end.
        line: &'a [u8],
    },
    /// An answer to an open question of somebody who has not opened the session. It is an answer to that question.
    Answer {
        /// The one who answers.
        client: &'a ClientKey,
        /// The question, named by its position in the log.
        question: u64,
        /// The result for the agent.
        result: &'a RawValue,
    },
    /// A message of the agent that belongs to the session, without its line end.
    FromAgent(&'a [u8]),
    /// A message about a request of [`OwnerAction::Route`]: its response, or a notification that refers to it.
    Routed(&'a [u8]),
    /// The process of the agent was started and has answered `initialize`, after [`OwnerAction::StartAgent`]. The owner restores
    /// the session in it.
    AgentReady {
        /// The response to `initialize`.
        introduction: &'a InitializeResponse,
        /// The params with which the session is opened again: its folders and MCP servers.
        params: Value,
        /// The conversation in the log, as a client receives it that loads the session. The agent may send it again.
        conversation: Vec<SessionUpdate>,
    },
    /// The last client closes the session. Its turn is cancelled, as with `session/cancel`.
    Closing,
    /// The session is closed, and the process of the agent ends. A turn that still runs has ended as cancelled. The text is the
    /// reason for everything else that was open.
    Closed(&'a str),
    /// The process of the agent ended or could not be started. The text is the reason for the user.
    AgentEnded(&'a str),
    /// The log contains the records up to this position.
    Written(u64),
    /// The records up to this position survive a power cut.
    Synced(u64),
    /// Time has passed, see [`SessionOwner::deadline`](crate::SessionOwner::deadline).
    Time,
}

/// An action that the caller of the owner executes, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerAction {
    /// Appends a line to the log, without its line end. Its position is the one after the last.
    Append(Vec<u8>),
    /// Syncs the log. Several can be executed as one.
    Sync,
    /// Sends a line to the agent.
    ToAgent(Vec<u8>),
    /// Passes a request of the agent to another agent on. Its response is an [`OwnerInput::Routed`].
    Route(Vec<u8>),
    /// Sends a response to a client that is not in the log.
    Reply {
        /// The client.
        client: ClientKey,
        /// The line, without its line end.
        line: Vec<u8>,
    },
    /// Acknowledges a message of a client. It is in the log, or had no effect.
    Acknowledge {
        /// The client.
        client: ClientKey,
        /// The number of the message.
        number: u64,
    },
    /// Records the answer of a client to a question, for an audit. The answer is on its way already.
    Decided {
        /// The client.
        client: ClientKey,
        /// The question, named by its position in the log.
        question: u64,
        /// The answer.
        decision: QuestionDecision,
    },
    /// Starts the process of the agent, and restores its session if it can.
    StartAgent {
        /// True if the agent begins without the conversation if it cannot restore it.
        fresh: bool,
        /// The client whose prompt needs the agent. `None` for another request.
        client: Option<ClientKey>,
    },
    /// Names the session at the agent, which has begun it anew. Later messages to the agent have this id.
    AgentSession(String),
    /// Ends the process of the agent. The owner counts it as ended.
    EndAgent,
}

/// The meaning of an answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuestionDecision {
    /// The kind of the chosen option, such as `allow_once`, the action of a form, or `cancelled`.
    pub option: String,
    /// True if the answer allows the request of the agent.
    pub is_allowed: bool,
}
