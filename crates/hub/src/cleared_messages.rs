//! The translation of clears (RFD 0001) for clients that cannot clear.
//!
//! The owner follows the messages of the agent and writes the translation into the records. So [`project`](crate::project)
//! needs no state, and a client that reads the log again receives the same frames.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use duologue_rpc::raw_message::{call_frame, member, member_text, splice};
use duologue_schema::{
    ContentChunk, MessageClear, Notification as _, SessionId, SessionNotification, SessionUpdate,
};
use serde_json::json;

use crate::record::HubEvent;

/// The two kinds of messages that an agent can clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamKind {
    Message,
    Thought,
}

/// The effect of an update on the messages of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageEffect {
    Chunk(StreamKind),
    Clear(StreamKind),
    /// A message of the user, which ends the messages of the agent.
    UserMessage,
    /// A tool call, after which a chunk without an id begins a message.
    ToolCall,
}

/// An update of the agent as far as its messages are concerned. It borrows from the frame.
#[derive(Clone, Debug)]
pub(crate) struct StreamUpdate<'a> {
    effect: MessageEffect,
    session: Cow<'a, str>,
    id: Option<Cow<'a, str>>,
}

impl<'a> StreamUpdate<'a> {
    /// Reads a frame. Returns `None` if it does not concern messages.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Self> {
        let method = member_text(frame, "method")?;
        StreamUpdate::of(&method, frame.get(member(frame, "params")?)?)
    }

    /// Reads the method and the params of a notification.
    pub(crate) fn of(method: &str, params: &'a [u8]) -> Option<Self> {
        if method != SessionNotification::METHOD {
            return None;
        }
        let update = params.get(member(params, "update")?)?;
        let effect = match &*member_text(update, "sessionUpdate")? {
            "agent_message_chunk" => MessageEffect::Chunk(StreamKind::Message),
            "agent_thought_chunk" => MessageEffect::Chunk(StreamKind::Thought),
            "agent_message_clear" => MessageEffect::Clear(StreamKind::Message),
            "agent_thought_clear" => MessageEffect::Clear(StreamKind::Thought),
            "user_message_chunk" => MessageEffect::UserMessage,
            "tool_call" => MessageEffect::ToolCall,
            _ => return None,
        };
        let session = member_text(params, "sessionId")?;
        Some(StreamUpdate { effect, session, id: member_text(update, "messageId") })
    }

    /// Creates the update of a chunk. `id` is the id of its message.
    pub(crate) fn of_chunk(kind: StreamKind, session: Cow<'a, str>, id: Option<Cow<'a, str>>) -> Self {
        StreamUpdate { effect: MessageEffect::Chunk(kind), session, id }
    }

    /// Returns the message of a chunk.
    pub(crate) fn chunk(&self) -> Option<(StreamKind, Option<&str>)> {
        match self.effect {
            MessageEffect::Chunk(kind) => Some((kind, self.id.as_deref())),
            _ => None,
        }
    }
}

/// A message with an id.
#[derive(Clone, Debug)]
struct KnownMessage {
    /// The id for clients that cannot clear, if the message was cleared.
    shown: Option<String>,
    /// True if something was added since the last clear.
    has_content: bool,
    /// The number of the turn in which it began. A message of an ended turn is final.
    turn: u64,
}

/// The message that a clear without an id empties.
#[derive(Clone, Debug, PartialEq)]
enum CurrentMessage {
    Named(String),
    Unnamed { has_content: bool },
}

/// The messages or the thoughts of an agent.
#[derive(Clone, Debug, Default)]
struct MessageStream {
    known: HashMap<String, KnownMessage>,
    /// The ids in the order in which the messages began.
    order: VecDeque<String>,
    current: Option<CurrentMessage>,
    /// The message that the next chunk without an id fills, because it was cleared without an id.
    fills: Option<String>,
}

impl MessageStream {
    /// Limit on the messages that are followed. An older one is cleared for all clients, and its new text is appended
    /// to the old one for a client that cannot clear.
    const KNOWN: usize = 256;
    /// Limit on an id in bytes. A message with a longer one is not followed.
    const ID_BYTES: usize = 256;

    /// Returns the message that a clear empties: `None` without effect, `Some(None)` for one without an id.
    fn target<'a>(&'a self, id: Option<&'a str>) -> Option<Option<(&'a str, &'a KnownMessage)>> {
        let id = match (id, &self.current) {
            (Some(id), _) => id,
            (None, Some(CurrentMessage::Named(id))) => id,
            (None, Some(CurrentMessage::Unnamed { has_content })) => return has_content.then_some(None),
            (None, None) => return None,
        };
        let (id, message) = self.known.get_key_value(id)?;
        message.has_content.then_some(Some((id, message)))
    }

    /// Returns the id under which clients that cannot clear see a chunk, if it is another one.
    fn shown(&self, id: Option<&str>) -> Option<&str> {
        let id = id.or(self.fills.as_deref())?;
        self.known.get(id)?.shown.as_deref()
    }

    fn clear(&mut self, id: Option<&str>, position: u64) {
        let target = self.target(id).map(|target| target.map(|(id, _)| id.to_owned()));
        match target {
            Some(Some(target)) => {
                if let Some(message) = self.known.get_mut(&target) {
                    message.has_content = false;
                    message.shown = Some(shown_id(&target, position));
                }
                if id.is_none() {
                    self.fills = Some(target);
                }
            }
            Some(None) => self.current = Some(CurrentMessage::Unnamed { has_content: false }),
            None => {}
        }
    }

    /// Adds a chunk. `continues` is true if the update before it was a chunk of the same kind.
    fn chunk(&mut self, id: Option<&str>, turn: u64, continues: bool) {
        let Some(id) = id else {
            let named = match (self.fills.take(), &self.current) {
                (Some(filled), _) => Some(filled),
                (None, Some(CurrentMessage::Named(id))) if continues => Some(id.clone()),
                _ => None,
            };
            if let Some(message) = named.as_ref().and_then(|id| self.known.get_mut(id)) {
                message.has_content = true;
            }
            let unnamed = CurrentMessage::Unnamed { has_content: true };
            self.current = Some(named.map_or(unnamed, CurrentMessage::Named));
            return;
        };
        self.fills = None;
        if id.len() > Self::ID_BYTES {
            return;
        }
        if let Some(message) = self.known.get_mut(id) {
            message.has_content = true;
            // A late chunk for a final message does not make it current again.
            if message.turn != turn {
                return;
            }
        } else {
            let message = KnownMessage { shown: None, has_content: true, turn };
            self.known.insert(id.to_owned(), message);
            self.order.push_back(id.to_owned());
            if self.order.len() > Self::KNOWN
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        if self.current != Some(CurrentMessage::Named(id.to_owned())) {
            self.current = Some(CurrentMessage::Named(id.to_owned()));
        }
    }
}

/// The messages of an agent that clients that cannot clear see under other ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClearedMessages {
    messages: MessageStream,
    thoughts: MessageStream,
    /// The number of turns that have ended.
    turn: u64,
    /// The kind of the chunk that a chunk without an id continues.
    last: Option<StreamKind>,
}

impl ClearedMessages {
    fn stream(&self, kind: StreamKind) -> &MessageStream {
        match kind {
            StreamKind::Message => &self.messages,
            StreamKind::Thought => &self.thoughts,
        }
    }

    fn stream_mut(&mut self, kind: StreamKind) -> &mut MessageStream {
        match kind {
            StreamKind::Message => &mut self.messages,
            StreamKind::Thought => &mut self.thoughts,
        }
    }

    /// Returns the event of an update that clients without clears see differently.
    pub(crate) fn event(&self, session: &SessionId, update: &StreamUpdate<'_>) -> Option<HubEvent> {
        let id = update.id.as_deref();
        // The messages of other sessions are not followed.
        let is_own = update.session == session.as_str();
        match update.effect {
            MessageEffect::Clear(_) if !is_own => Some(HubEvent::Cleared { message: id.map(str::to_owned) }),
            MessageEffect::Clear(kind) => {
                let Some(target) = self.stream(kind).target(id) else {
                    return Some(HubEvent::ClearedNothing);
                };
                let message = target.map(|(id, message)| message.shown.as_deref().unwrap_or(id));
                Some(HubEvent::Cleared { message: message.map(str::to_owned) })
            }
            MessageEffect::Chunk(kind) if is_own => {
                let message = self.stream(kind).shown(id)?.to_owned();
                Some(HubEvent::Renamed { message })
            }
            _ => None,
        }
    }

    /// Applies an update, whose record is at `position`.
    pub(crate) fn apply(&mut self, session: &SessionId, update: &StreamUpdate<'_>, position: u64) {
        if update.session != session.as_str() {
            return;
        }
        let (id, turn) = (update.id.as_deref(), self.turn);
        match update.effect {
            MessageEffect::Clear(kind) => self.stream_mut(kind).clear(id, position),
            MessageEffect::Chunk(kind) => {
                let continues = self.last == Some(kind);
                self.stream_mut(kind).chunk(id, turn, continues);
                self.last = Some(kind);
            }
            MessageEffect::UserMessage => self.end_turn(),
            MessageEffect::ToolCall => self.last = None,
        }
    }

    /// Makes all messages final.
    pub(crate) fn end_turn(&mut self) {
        self.turn += 1;
        self.last = None;
        for stream in [&mut self.messages, &mut self.thoughts] {
            (stream.current, stream.fills) = (None, None);
        }
    }
}

/// Returns the id under which clients that cannot clear see the text after a clear.
fn shown_id(id: &str, position: u64) -> String {
    format!("{id}~{position}")
}

/// Returns the id at the agent of a message in [`HubEvent::Renamed`].
pub(crate) fn agents_id(shown: &str) -> Option<&str> {
    shown.rsplit_once('~').map(|(id, _)| id)
}

/// Returns a visible rule in place of a clear.
pub(crate) fn separator(frame: &[u8], message: Option<String>) -> Option<Vec<u8>> {
    let update = StreamUpdate::read(frame)?;
    let MessageEffect::Clear(kind) = update.effect else { return None };
    let mut chunk = ContentChunk::new(MessageClear::SEPARATOR);
    chunk.message_id = message.map(Into::into);
    let chunk = match kind {
        StreamKind::Message => SessionUpdate::AgentMessageChunk(chunk),
        StreamKind::Thought => SessionUpdate::AgentThoughtChunk(chunk),
    };
    let params = SessionNotification::new(SessionId::from(update.session.into_owned()), chunk);
    call_frame(None, SessionNotification::METHOD, &params).ok()
}

/// Returns a chunk with another id of its message.
pub(crate) fn with_message_id(frame: &[u8], message: &str) -> Option<Vec<u8>> {
    let params = member(frame, "params")?;
    let update = member(frame.get(params.clone())?, "update")?;
    let start = params.start + update.start;
    let update = frame.get(start..params.start + update.end)?;
    let id = json!(message).to_string();
    match member(update, "messageId") {
        Some(old) => splice(frame, start + old.start..start + old.end, id.as_bytes()),
        // The update has members, and begins with a brace.
        None => splice(frame, start + 1..start + 1, format!("\"messageId\":{id},").as_bytes()),
    }
}
