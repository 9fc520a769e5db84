//! The inboxes of agents.

use std::time::Duration;

use serde::Serialize;

use super::values::JsonText;

/// The sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSender {
    /// The principal.
    pub principal: String,
    /// The name that the sender has given, such as an agent id.
    pub name: String,
}

impl MessageSender {
    /// Creates a sender.
    #[must_use]
    pub fn new(principal: impl Into<String>, name: impl Into<String>) -> Self {
        MessageSender { principal: principal.into(), name: name.into() }
    }
}

/// The key of a message. A sender chooses the ids of its messages, so two principals may use the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxKey {
    /// The agent that receives it.
    pub agent: String,
    /// The principal that has sent it.
    pub principal: String,
    /// The id of the message.
    pub message: String,
}

impl InboxKey {
    /// Creates a key.
    #[must_use]
    pub fn new(agent: impl Into<String>, principal: impl Into<String>, message: impl Into<String>) -> Self {
        InboxKey { agent: agent.into(), principal: principal.into(), message: message.into() }
    }
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageState {
    /// It waits.
    Ready,
    /// A worker has it.
    Leased,
    /// It was acknowledged.
    Done,
    /// It cannot be delivered: it has expired or has had all its attempts.
    Dead,
}

/// A message for an inbox.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewInboxMessage {
    /// The agent that receives it.
    pub agent: String,
    /// The id, which the sender has chosen.
    pub id: String,
    /// The sender.
    pub from: MessageSender,
    /// The content.
    pub content: JsonText,
    /// The id that answers repeat.
    pub correlation_id: Option<String>,
    /// The group, which is one of its agent and its principal. One message of a group is out at a time, in order of arrival,
    /// whatever their priorities are.
    pub group: Option<String>,
    /// The priority, 0 to 9. Higher numbers count as 9.
    pub priority: u8,
    /// The time after which it is not delivered any more, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The most attempts, at least one.
    pub max_attempts: u32,
    /// A delay before the first attempt.
    pub delay: Duration,
    /// The trace context of the request. It is not compared with that of an earlier one.
    pub trace: Option<String>,
}

impl NewInboxMessage {
    /// The most attempts of [`new`](Self::new).
    pub const MAX_ATTEMPTS: u32 = 5;
    /// The priority of [`new`](Self::new).
    pub const PRIORITY: u8 = 4;

    /// Creates a message with priority 4 and 5 attempts, which does not expire and has no group.
    #[must_use]
    pub fn new(
        agent: impl Into<String>,
        id: impl Into<String>,
        from: MessageSender,
        content: JsonText,
    ) -> Self {
        NewInboxMessage {
            agent: agent.into(),
            id: id.into(),
            from,
            content,
            correlation_id: None,
            group: None,
            priority: NewInboxMessage::PRIORITY,
            expires: None,
            max_attempts: NewInboxMessage::MAX_ATTEMPTS,
            delay: Duration::ZERO,
            trace: None,
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> InboxKey {
        InboxKey::new(&self.agent, &self.from.principal, &self.id)
    }
}

/// A message of an inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredMessage {
    /// A number that later messages exceed, and that no other message ever has. A message that is sent again gets another.
    pub seq: u64,
    /// The agent that receives it.
    pub agent: String,
    /// The id, which the sender has chosen.
    pub id: String,
    /// The sender.
    pub from: MessageSender,
    /// The content.
    pub content: JsonText,
    /// The id that answers repeat.
    pub correlation_id: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// The priority, 0 to 9.
    pub priority: u8,
    /// The time of arrival, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated: u64,
    /// The time after which it is not delivered any more, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The state.
    pub state: MessageState,
    /// The attempts that have begun.
    pub attempts: u32,
    /// The most attempts.
    pub max_attempts: u32,
    /// The worker that has it, if one has.
    pub worker: Option<String>,
    /// The response of the agent.
    pub response: Option<JsonText>,
    /// The reason of the last failure: of a worker, or `expired`, `lease_lost` or `dropped`. For a message that an agent
    /// had begun it starts with `worker_lost: ` or `restarted: `.
    pub error: Option<String>,
    /// The trace context of the request.
    pub trace: Option<String>,
    /// The number with which an agent has last got it. See [`StoreChange::HandOver`](crate::StoreChange::HandOver).
    pub handed_seq: Option<u64>,
}

impl StoredMessage {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> InboxKey {
        InboxKey::new(&self.agent, &self.from.principal, &self.id)
    }
}

/// Filters of messages, all of which have to match, and the place of a page. Messages are in order of arrival.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MessageQuery {
    /// An agent that receives.
    pub agent: Option<String>,
    /// A principal that has sent.
    pub principal: Option<String>,
    /// The id of a message, which messages of several principals can have.
    pub id: Option<String>,
    /// A state. Dead letters have [`MessageState::Dead`].
    pub state: Option<MessageState>,
    /// A group.
    pub group: Option<String>,
    /// A correlation id.
    pub correlation_id: Option<String>,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page. Zero counts as 100, and
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) is the most.
    pub limit: u64,
}
