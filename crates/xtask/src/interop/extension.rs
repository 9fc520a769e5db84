//! The methods beyond the protocol that our agent and our client of the matrix share.

use duologue_schema::{Notification, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request of the client, which the agent answers with its params.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Echo {
    pub(crate) text: String,
    pub(crate) n: u32,
}

impl Request for Echo {
    const METHOD: &'static str = "_interop/echo";
    type Result = Echo;
}

/// A notification of the client.
#[derive(Serialize, Deserialize)]
pub(crate) struct NoteNotification {
    pub(crate) word: String,
}

impl Notification for NoteNotification {
    const METHOD: &'static str = "_interop/note";
}

/// A request of the agent.
#[derive(Serialize, Deserialize)]
pub(crate) struct AskRequest {
    pub(crate) question: String,
    pub(crate) list: Value,
}

impl Request for AskRequest {
    const METHOD: &'static str = "_interop/ask";
    type Result = AskResponse;
}

/// The answer to [`AskRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AskResponse {
    pub(crate) answer: String,
}

/// A notification of the agent.
#[derive(Serialize, Deserialize)]
pub(crate) struct TellNotification {
    pub(crate) word: String,
}

impl Notification for TellNotification {
    const METHOD: &'static str = "_interop/tell";
}
