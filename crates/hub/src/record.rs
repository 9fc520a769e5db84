//! The records of the log of a session: frames that were exchanged with the agent, and events of the hub.
//!
//! The log is a transcript (RFD 0003). An event of the hub is the member `hub` of a record, which other readers of
//! transcripts ignore.

use std::fmt;
use std::sync::Arc;

use duologue_schema::RequestId;
use duologue_transcript::Side;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The key of a client: the id of its connection, which it keeps when it resumes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientKey(Arc<str>);

impl ClientKey {
    /// Creates a key.
    #[must_use]
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        ClientKey(key.into())
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request of a client that waits for its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The client.
    pub client: ClientKey,
    /// The id of its request.
    pub id: RequestId,
}

/// An event of the hub. A question and a request to a client are named by the position of their record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HubEvent {
    /// A process opened the log for writing. Each opening is a life of the log.
    Opened {
        /// The number of the life, from 1.
        life: u32,
    },
    /// A prompt was accepted. Its frame is the prompt for the agent.
    Prompt {
        /// The number of the hub's request to the agent.
        call: u64,
        /// The prompt of the client.
        asker: Asker,
        /// The operation that the client named, so that a repetition is recognized.
        operation: Option<String>,
    },
    /// Another request was accepted. Its frame is the request for the agent.
    Call {
        /// The number of the hub's request to the agent.
        call: u64,
        /// The request of the client.
        asker: Asker,
    },
    /// A client repeated a prompt that runs. Both receive its response.
    Joined {
        /// The number of the hub's request to the agent.
        call: u64,
        /// The repeated prompt.
        asker: Asker,
    },
    /// The agent responded. Its frame is the response.
    Answer {
        /// The number of the hub's request to the agent.
        call: u64,
        /// The requests that receive the response.
        to: Vec<Asker>,
    },
    /// A request ended without a response of the agent.
    Interrupted {
        /// The number of the hub's request to the agent.
        call: u64,
        /// The requests that receive an error.
        to: Vec<Asker>,
        /// The code for programs, such as `interrupted`.
        code: String,
        /// The reason for the user.
        reason: String,
    },
    /// A prompt has ended, and clients without its response have the session open. All of them learn it.
    TurnEnded,
    /// The agent asks the user. Its frame is the request.
    Question,
    /// A question is shown to a client that attached later.
    AskedAgain {
        /// The question.
        question: u64,
        /// The client.
        client: ClientKey,
    },
    /// A question has ended. Its frame is the response to the agent, if the agent still runs.
    Answered {
        /// The question.
        question: u64,
        /// The client whose answer it is. `None` for a cancellation.
        by: Option<ClientKey>,
    },
    /// The agent began a session without the conversation so far: at the beginning of the log, or because a client
    /// requested it.
    AgentSession {
        /// The id of the session at the agent.
        id: String,
    },
    /// The agent names a child session for the first time. The clients see it under the position of this record.
    ChildSession {
        /// The id of the child at the agent.
        id: String,
    },
    /// The agent cleared a message. Its frame is the clear, and clients that cannot clear see a rule behind the message.
    Cleared {
        /// The message, under its id for these clients.
        message: Option<String>,
    },
    /// The agent cleared a message that is empty or unknown. Its frame is the clear.
    ClearedNothing,
    /// The agent continued a message that it has cleared. Its frame is the chunk.
    Renamed {
        /// The id of the message for clients that cannot clear.
        message: String,
    },
    /// A notification of the agent for one client. Its frame is the notification.
    Addressed {
        /// The client.
        client: ClientKey,
    },
    /// The agent requests an action on the machine of a client, or sends it a message between agents. Its frame is the
    /// request.
    HostRequest {
        /// The client.
        client: ClientKey,
    },
    /// The request for an action has ended. Its frame is the response to the agent, if the agent still runs.
    HostAnswer {
        /// The request.
        request: u64,
        /// The client that receives a cancellation.
        client: Option<ClientKey>,
    },
}

/// All members that events have.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct EventFields {
    event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    life: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asker: Option<Asker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Vec<Asker>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<ClientKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl HubEvent {
    fn fields(&self) -> EventFields {
        let of = |event: &str| EventFields { event: event.to_owned(), ..EventFields::default() };
        match self.clone() {
            HubEvent::Opened { life } => EventFields { life: Some(life), ..of("opened") },
            HubEvent::Prompt { call, asker, operation } => {
                EventFields { call: Some(call), asker: Some(asker), operation, ..of("prompt") }
            }
            HubEvent::Call { call, asker } => {
                EventFields { call: Some(call), asker: Some(asker), ..of("call") }
            }
            HubEvent::Joined { call, asker } => {
                EventFields { call: Some(call), asker: Some(asker), ..of("joined") }
            }
            HubEvent::Answer { call, to } => EventFields { call: Some(call), to: Some(to), ..of("answer") },
            HubEvent::Interrupted { call, to, code, reason } => EventFields {
                call: Some(call),
                to: Some(to),
                code: Some(code),
                reason: Some(reason),
                ..of("interrupted")
            },
            HubEvent::TurnEnded => of("turn_ended"),
            HubEvent::Question => of("question"),
            HubEvent::AgentSession { id } => EventFields { id: Some(id), ..of("agent_session") },
            HubEvent::ChildSession { id } => EventFields { id: Some(id), ..of("child_session") },
            HubEvent::Addressed { client } => EventFields { client: Some(client), ..of("addressed") },
            HubEvent::Cleared { message } => EventFields { id: message, ..of("cleared") },
            HubEvent::ClearedNothing => of("cleared_nothing"),
            HubEvent::Renamed { message } => EventFields { id: Some(message), ..of("renamed") },
            HubEvent::AskedAgain { question, client } => {
                EventFields { question: Some(question), client: Some(client), ..of("asked_again") }
            }
            HubEvent::Answered { question, by } => {
                EventFields { question: Some(question), client: by, ..of("answered") }
            }
            HubEvent::HostRequest { client } => EventFields { client: Some(client), ..of("host_request") },
            HubEvent::HostAnswer { request, client } => {
                EventFields { question: Some(request), client, ..of("host_answer") }
            }
        }
    }

    /// Returns `None` for an event of a later version, or one without a member that it needs.
    fn from_fields(fields: EventFields) -> Option<Self> {
        Some(match fields.event.as_str() {
            "opened" => HubEvent::Opened { life: fields.life? },
            "prompt" => {
                HubEvent::Prompt { call: fields.call?, asker: fields.asker?, operation: fields.operation }
            }
            "call" => HubEvent::Call { call: fields.call?, asker: fields.asker? },
            "joined" => HubEvent::Joined { call: fields.call?, asker: fields.asker? },
            "answer" => HubEvent::Answer { call: fields.call?, to: fields.to? },
            "interrupted" => HubEvent::Interrupted {
                call: fields.call?,
                to: fields.to?,
                code: fields.code?,
                reason: fields.reason?,
            },
            "turn_ended" => HubEvent::TurnEnded,
            "question" => HubEvent::Question,
            "agent_session" => HubEvent::AgentSession { id: fields.id? },
            "child_session" => HubEvent::ChildSession { id: fields.id? },
            "addressed" => HubEvent::Addressed { client: fields.client? },
            "cleared" => HubEvent::Cleared { message: fields.id },
            "cleared_nothing" => HubEvent::ClearedNothing,
            "renamed" => HubEvent::Renamed { message: fields.id? },
            "asked_again" => HubEvent::AskedAgain { question: fields.question?, client: fields.client? },
            "answered" => HubEvent::Answered { question: fields.question?, by: fields.client },
            "host_request" => HubEvent::HostRequest { client: fields.client? },
            "host_answer" => HubEvent::HostAnswer { request: fields.question?, client: fields.client },
            _ => return None,
        })
    }
}

/// A record that is not JSON, has members of other types, or is in the place of lost ones.
#[derive(Debug, thiserror::Error)]
#[error("the record of a session log is invalid: {0}")]
pub struct InvalidRecord(#[from] pub(crate) serde_json::Error);

/// A record of the log.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LogEntry<'a> {
    /// The time since the log began, in microseconds.
    pub at: u64,
    /// The frame, with the side that wrote it.
    pub frame: Option<(Side, &'a RawValue)>,
    /// The event of the hub. `None` also for one of a later version.
    pub event: Option<HubEvent>,
}

#[derive(Serialize, Deserialize)]
struct EntryFields<'a> {
    #[serde(default)]
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Side>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    frame: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hub: Option<EventFields>,
    #[serde(default, skip_serializing)]
    dropped: Option<DroppedFields>,
}

/// The members of a record in the place of a lost part of the log.
#[derive(Deserialize)]
struct DroppedFields {
    bytes: u64,
}

impl<'a> LogEntry<'a> {
    /// Parses a line of the log.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] if the line is not a record, or the one in the place of a lost part.
    pub fn read(line: &'a [u8]) -> Result<Self, InvalidRecord> {
        let fields: EntryFields<'a> = serde_json::from_slice(line)?;
        if let Some(DroppedFields { bytes }) = fields.dropped {
            return Err(InvalidRecord(serde_json::Error::custom(format!("{bytes} bytes are lost here"))));
        }
        Ok(LogEntry {
            at: fields.at,
            frame: fields.from.zip(fields.frame),
            event: fields.hub.and_then(HubEvent::from_fields),
        })
    }

    /// Writes the line of the log, without a line feed.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] never for an entry that was read or whose frame is JSON.
    pub fn write(&self) -> Result<Vec<u8>, InvalidRecord> {
        /// The bytes of the other members of most records.
        const MEMBERS: usize = 128;
        let mut line = Vec::with_capacity(self.frame.map_or(0, |(_, frame)| frame.get().len()) + MEMBERS);
        let fields = EntryFields {
            at: self.at,
            from: self.frame.map(|(from, _)| from),
            frame: self.frame.map(|(_, frame)| frame),
            hub: self.event.as_ref().map(HubEvent::fields),
            dropped: None,
        };
        serde_json::to_writer(&mut line, &fields)?;
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let asker = || Asker { client: ClientKey::new("c1"), id: RequestId::from_token("\"7\"").unwrap() };
        let client = || ClientKey::new("c2");
        let events = [
            HubEvent::Opened { life: 3 },
            HubEvent::Prompt { call: 1, asker: asker(), operation: Some("o".into()) },
            HubEvent::Prompt { call: 1, asker: asker(), operation: None },
            HubEvent::Call { call: 2, asker: asker() },
            HubEvent::Joined { call: 2, asker: asker() },
            HubEvent::Answer { call: 2, to: vec![asker(), asker()] },
            HubEvent::Interrupted { call: 2, to: vec![], code: "c".into(), reason: "r".into() },
            HubEvent::TurnEnded,
            HubEvent::Question,
            HubEvent::AgentSession { id: "a".into() },
            HubEvent::ChildSession { id: "c".into() },
            HubEvent::Cleared { message: Some("m".into()) },
            HubEvent::Cleared { message: None },
            HubEvent::ClearedNothing,
            HubEvent::Addressed { client: client() },
            HubEvent::Renamed { message: "m~7".into() },
            HubEvent::AskedAgain { question: 4, client: client() },
            HubEvent::Answered { question: 4, by: Some(client()) },
            HubEvent::Answered { question: 4, by: None },
            HubEvent::HostRequest { client: client() },
            HubEvent::HostAnswer { request: 9, client: None },
        ];
        let frame: &RawValue = serde_json::from_str(r#"{"id":1, "x":1.50}"#).unwrap();
        for event in events {
            let entry = LogEntry { at: 5, frame: Some((Side::Agent, frame)), event: Some(event) };
            let line = entry.write().unwrap();
            let read = LogEntry::read(&line).unwrap();
            assert_eq!((read.at, &read.event), (5, &entry.event), "{}", String::from_utf8_lossy(&line));
            assert!(read.frame.is_some_and(|(from, read)| from == Side::Agent && read.get() == frame.get()));
        }
    }

    #[test]
    fn an_event_of_a_later_version_is_ignored() {
        let entry = LogEntry::read(br#"{"at":1,"hub":{"event":"later","life":1},"more":1}"#).unwrap();
        assert!(entry.event.is_none() && entry.frame.is_none());
        assert!(LogEntry::read(b"{").is_err());
        let lost = LogEntry::read(br#"{"at":1,"dropped":{"lines":1,"bytes":7}}"#).unwrap_err();
        assert!(lost.to_string().contains("7 bytes are lost here"), "{lost}");
    }
}
