//! The inputs and actions of the owner of a session.

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
        /// True if the agent's requests for files and terminals go to this client from now on.
        is_host: bool,
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
    /// A message of the agent that belongs to the session, without its line end.
    FromAgent(&'a [u8]),
    /// A message of the agent with the `sessionId` of another session of the server. No client receives it, and a request is
    /// answered with an error.
    Misaddressed(&'a [u8]),
    /// A message about a request of [`OwnerAction::Route`]: its response, or a notification that refers to it.
    Routed(&'a [u8]),
    /// The process of the agent runs, after [`OwnerAction::StartAgent`].
    AgentStarted {
        /// The id of a session that began without the conversation so far, only after a start with `fresh`. `None` if
        /// the agent knows the conversation.
        new_session: Option<&'a str>,
    },
    /// The agent cannot restore the conversation, after [`OwnerAction::StartAgent`] without `fresh`.
    ContextLost,
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
    },
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
