//! Sending messages, and waiting for their answers.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use duologue_schema::dialogue::MessageType;
use duologue_schema::envelope::EnvelopeKind;
use duologue_store::{
    ChangeOutcome, InboxKey, JsonText, MessageSender, MessageState, NewInboxMessage, RegistryStatus, Store,
    StoreBatch, StoreChange, StoreTopic, StoredMessage, TaskFailure,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::exchange_state::AGENT_SCHEME;
use crate::gateway::access::Action;
use crate::gateway::agent_calls::forwarded;
use crate::gateway::agent_turn::is_text;
use crate::gateway::conversations::GROUP;
use crate::gateway::rest::admission::RestAdmission;
use crate::gateway::rest::request::{
    AnyBody, OnceBatch, OnceKey, OnceOutcome, PathOf, QueryOf, RestCaller, RestReply, is_json, parse_json,
};
use crate::gateway::rest::values::{
    AgentTarget, JsonObject, RestFailure, RestId, RestMetadata, RestNumber, RestPriority, object, unless_null,
};
use crate::gateway::rest::visibility::RoutedAgent;
use crate::gateway::routing::OPERATOR;
use crate::gateway::{Refusal, RefusalCode, events, failure};

/// The id that no message has: its path is that of `claim_messages`.
const CLAIM: &str = "claim";

/// The content of a message.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Content)]
#[non_exhaustive]
pub struct RestContent {
    /// The type, such as `query`, `notify` or `inform`. An agent with envelopes takes `query` and `notify` as
    /// envelopes, and no other kind of envelope.
    #[serde(rename = "type")]
    pub kind: RestId,
    /// The content, which may be `null`. A text of a type that is no text is base64.
    #[schema(value_type = Value)]
    pub content: JsonText,
    /// The MIME type of the content. `text/plain` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub mime_type: Option<String>,
    /// Other members. `retry` with the value `safe` lets the server repeat a message whose agent was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RestMetadata>,
}

/// A message in the store: its content with the metadata of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptContent {
    #[serde(rename = "type")]
    kind: RestId,
    #[serde(default)]
    content: JsonText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<RestMetadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_metadata: Option<RestMetadata>,
}

/// Splits a stored content into that of the message and the metadata of its request.
pub(crate) fn kept_content(text: &JsonText) -> duologue_store::Result<(RestContent, Option<RestMetadata>)> {
    let KeptContent { kind, content, mime_type, metadata, request_metadata } = text.parse()?;
    Ok((RestContent { kind, content, mime_type, metadata }, request_metadata))
}

/// The way in which a message is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SendMode)]
pub enum RestSendMode {
    /// The response has the answer of the agent, if it comes in time. It fails at once if the agent is offline.
    Sync,
    /// The message waits in the inbox. The default.
    #[default]
    Async,
}

/// A message to an agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewMessage)]
#[non_exhaustive]
pub struct RestNewMessage {
    /// The sender: the caller or the agent that it is. That is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RestId>,
    /// The id. A message that is sent again with the same id and content is not delivered twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<RestId>,
    /// The id that answers repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<RestId>,
    /// The content.
    #[serde(deserialize_with = "object")]
    pub message: RestContent,
    /// The way in which it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RestSendMode>,
    /// The priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<RestPriority>,
    /// The agent that gets the message if no other one can, or `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<RestId>,
    /// The time in milliseconds after which it is not delivered any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<RestNumber>,
    /// The group: one message of a group of the caller is out at a time, in order of arrival. By default the `session_id` of
    /// a dialogue message. It may not begin with `correlation:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<RestId>,
    /// Other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RestMetadata>,
}

impl RestNewMessage {
    /// Creates a message of a type, such as `query`, from its content.
    #[must_use]
    pub fn new(kind: impl Into<RestId>, content: JsonText) -> Self {
        let message = RestContent { kind: kind.into(), content, mime_type: None, metadata: None };
        RestNewMessage {
            from: None,
            message_id: None,
            correlation_id: None,
            message,
            mode: None,
            priority: None,
            fallback: None,
            ttl: None,
            group: None,
            metadata: None,
        }
    }
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessageStatus)]
pub enum RestMessageStatus {
    /// It waits for the agent.
    Received,
    /// The agent has it.
    Processing,
    /// The agent has answered or acknowledged it.
    Completed,
    /// It cannot be delivered.
    Error,
}

impl RestMessageStatus {
    /// Returns the text of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RestMessageStatus::Received => "received",
            RestMessageStatus::Processing => "processing",
            RestMessageStatus::Completed => "completed",
            RestMessageStatus::Error => "error",
        }
    }
}

impl From<MessageState> for RestMessageStatus {
    fn from(state: MessageState) -> Self {
        match state {
            MessageState::Ready => RestMessageStatus::Received,
            MessageState::Done => RestMessageStatus::Completed,
            MessageState::Dead => RestMessageStatus::Error,
            _ => RestMessageStatus::Processing,
        }
    }
}

/// The answer to a message.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SentMessage)]
#[non_exhaustive]
pub struct RestSentMessage {
    /// The id of the message.
    pub message_id: String,
    /// The agent that has it.
    pub agent_id: String,
    /// The state.
    pub status: RestMessageStatus,
    /// The content of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub response: Option<JsonText>,
    /// The reason for which it cannot be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RestFailure>,
}

impl From<&StoredMessage> for RestSentMessage {
    fn from(message: &StoredMessage) -> Self {
        RestSentMessage {
            message_id: message.id.clone(),
            agent_id: message.agent.clone(),
            status: message.state.into(),
            response: message.response.as_ref().and_then(unless_null),
            error: message_error(message),
        }
    }
}

/// Returns the reason for which a message cannot be delivered.
pub(crate) fn message_error(message: &StoredMessage) -> Option<RestFailure> {
    let text = message.error.as_deref().filter(|_| message.state == MessageState::Dead)?;
    // Workers write `code: message`, and the store a code alone.
    let (code, message) = text.split_once(": ").unwrap_or((text, text));
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let (code, message) = if is_code { (code, message) } else { (failure::UNDELIVERABLE, text) };
    let retryable = matches!(code, TaskFailure::WORKER_LOST | TaskFailure::RESTARTED | failure::UNREACHABLE);
    Some(RestFailure { code: code.to_owned(), message: message.to_owned(), retryable })
}

/// Members of a message that its body does not have. They are for bodies of other types than JSON.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageMembers {
    /// The sender.
    #[param(inline)]
    from: Option<RestId>,
    /// The id.
    #[param(inline)]
    message_id: Option<RestId>,
    /// The id that answers repeat.
    #[param(inline)]
    correlation_id: Option<RestId>,
    /// The type of the content. `query` by default.
    #[serde(rename = "type")]
    #[param(inline)]
    kind: Option<RestId>,
    /// The way in which it is answered.
    #[param(inline)]
    mode: Option<RestSendMode>,
    /// The priority.
    #[param(inline)]
    priority: Option<RestPriority>,
}

impl RestNewMessage {
    /// Creates a message from a body of any type.
    fn of_body(body: &AnyBody) -> Result<Self, Refusal> {
        let media_type = body.media_type();
        let text = std::str::from_utf8(&body.bytes).ok().filter(|_| is_text(&media_type));
        let content = match text {
            Some(text) => JsonText::of(text)?,
            None => JsonText::of(&BASE64_STANDARD.encode(&body.bytes))?,
        };
        let mut message = RestNewMessage::new("query", content);
        message.message.mime_type = Some(body.content_type.clone());
        Ok(message)
    }

    /// Returns the group, which is that of its dialogue if it names none.
    fn group(&self, dialogue: Option<&DialogueHead>) -> Result<Option<String>, Refusal> {
        let (member, group) = match &self.group {
            Some(group) => ("group", Some(group.0.clone())),
            None => {
                let dialogue = dialogue.filter(|_| is_dialogue(&self.message));
                ("message.content.session_id", dialogue.map(|dialogue| dialogue.session_id.clone()))
            }
        };
        match group {
            Some(group) if group.starts_with(GROUP) => {
                let why = format!(
                    "{member}: groups that begin with `{GROUP}` are those of the server; use another"
                );
                Err(Refusal::invalid(why))
            }
            group => Ok(group),
        }
    }
}

/// Sends a message to an agent. The body is JSON, or the content itself in any other type.
#[utoipa::path(
    post, path = "/agents/{agentId}/messages", tag = "messages",
    params(
        AgentTarget, MessageMembers,
        ("Prefer" = Option<String>, Header, description = "`wait=n`: the most seconds of a `sync` message."),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, pattern = "^[!-~]+$", description = "A repeated request with this key has the first response."),
    ),
    request_body(
        content((RestNewMessage = "application/json"), (String = "text/plain"), (Vec<u8> = "application/octet-stream")),
        description = "The message. A body of any other type is its content.",
    ),
    responses(
        (status = 422, body = crate::gateway::rest::RefusalBody, description = "The `Idempotency-Key` belongs to a request with another content."),
        (status = 200, body = RestSentMessage, description = "The agent has answered a `sync` message, or the message was sent before."),
        (status = 202, body = RestSentMessage, description = "The message is in the inbox."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "Another message has the id, a request with the key still runs, or the agent has no folder (`not_configured`)."),
        (status = 503, body = crate::gateway::rest::RefusalBody, description = "The agent is offline and the message `sync`, or the server is stopped."),
    ),
)]
pub(crate) async fn send_message(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    QueryOf(members): QueryOf<MessageMembers>,
    body: AnyBody,
) -> Result<Response, Refusal> {
    let is_document = is_json(&body.media_type());
    let JsonObject(mut sent) =
        if is_document { parse_json(&body.bytes)? } else { JsonObject(RestNewMessage::of_body(&body)?) };
    if let (Some(kind), false) = (members.kind, is_document) {
        sent.message.kind = kind;
    }
    sent.from = sent.from.or(members.from);
    sent.message_id = sent.message_id.or(members.message_id);
    sent.correlation_id = sent.correlation_id.or(members.correlation_id);
    sent.priority = sent.priority.or(members.priority);
    let mode = sent.mode.or(members.mode).unwrap_or_default();
    let is_sync = mode == RestSendMode::Sync;
    let admission = is_sync.then(|| caller.admit()).transpose()?;
    // The key is in use until the end of the wait.
    let seen = caller.once("send_message", &body.bytes)?;
    let reply = match caller.repeated(seen.as_ref()).await? {
        Some(reply) => reply,
        None => {
            let (fallback, chosen) = (sent.fallback.as_ref(), sent.message_id.as_ref());
            let agent = caller.route(agent_id, fallback, Action::Message, chosen).await?;
            Sending { agent, mode }.send(&caller, sent, seen.clone()).await?
        }
    };
    match admission {
        Some(admission) => wait_for_answer(&caller, reply, admission).await,
        None => Ok(reply.into_response()),
    }
}

/// The members of a dialogue message that the server reads.
struct DialogueHead {
    session_id: String,
    sender_id: Option<String>,
}

impl DialogueHead {
    /// Reads a content that is a dialogue message. Readers differ about members that occur twice, so those are refused.
    fn of(content: &JsonText) -> Result<Option<Self>, Refusal> {
        #[derive(Deserialize)]
        struct Members {
            session_id: Option<Value>,
            sender_id: Option<Value>,
        }
        // An array would be read as the members in this order.
        if !content.as_str().trim_start().starts_with('{') {
            return Ok(None);
        }
        let members: Members =
            content.parse().map_err(|error| Refusal::invalid(format!("message.content: {error}")))?;
        let Some(Value::String(session_id)) = members.session_id else { return Ok(None) };
        let sender_id = match members.sender_id {
            None | Some(Value::Null) => None,
            Some(Value::String(sender)) => Some(sender),
            Some(_) => {
                let why = "message.content.sender_id: it is no text; use the address of an agent";
                return Err(Refusal::invalid(why));
            }
        };
        Ok(Some(DialogueHead { session_id, sender_id }))
    }

    /// Refuses a dialogue message in the name of somebody else. Its recipient can take `sender_id` for the sender.
    fn check_sender(&self, caller: &RestCaller) -> Result<(), Refusal> {
        let Some(address) = &self.sender_id else { return Ok(()) };
        let name = address.strip_prefix(AGENT_SCHEME).unwrap_or(address);
        // Ids can have slashes. None begins with another one and a slash.
        let mut beginnings = name.match_indices('/').filter_map(|(end, _)| name.get(..end));
        if caller.principal.is_sender(name) || beginnings.any(|name| caller.principal.is_sender(name)) {
            return Ok(());
        }
        let why = format!(
            "message.content.sender_id: {address:?} is neither your address nor that of your agent; use `{AGENT_SCHEME}{}`",
            caller.sender(None)?
        );
        Err(Refusal::new(RefusalCode::NotAuthorized, why))
    }
}

/// Returns true for a type of messages in a dialogue.
fn is_dialogue(message: &RestContent) -> bool {
    !matches!(MessageType::from(&*message.kind.0), MessageType::Unknown(_))
}

/// Returns the refusal of a type that is an envelope to the agent, and that no message carries.
fn no_message(kind: &str) -> Option<Refusal> {
    let remedy = match EnvelopeKind::from(kind) {
        EnvelopeKind::Delegate => "create a task: `POST /agents/{agentId}/tasks`",
        EnvelopeKind::Cancel => "cancel its task: `POST /agents/{agentId}/tasks/{taskId}/cancel`",
        EnvelopeKind::Ping | EnvelopeKind::Pong => "read the `status` of the agent: `GET /agents/{agentId}`",
        EnvelopeKind::Discover | EnvelopeKind::Capabilities => {
            "read its entry: `GET /agents/{agentId}/capabilities`"
        }
        EnvelopeKind::Response | EnvelopeKind::Ack | EnvelopeKind::Result | EnvelopeKind::Error => {
            "it answers an envelope, and the agent has sent none to you; send a `query` or a `notify`"
        }
        _ => return None,
    };
    Some(Refusal::invalid(format!("message.type: no message to this agent is {kind:?}; {remedy}")))
}

struct Sending {
    agent: RoutedAgent,
    mode: RestSendMode,
}

impl Sending {
    async fn send(
        self,
        caller: &RestCaller,
        sent: RestNewMessage,
        seen: Option<OnceKey>,
    ) -> Result<RestReply, Refusal> {
        let Sending { agent: RoutedAgent { id: agent, is_allowed, turn }, mode } = self;
        let rest = &caller.rest;
        let time = rest.gateway.time();
        let correlation_id = sent.correlation_id.as_ref().map(|id| &id.0);
        let of_conversation = || rest.gateway.conversation_group(&agent, correlation_id);
        let dialogue = DialogueHead::of(&sent.message.content)?;
        let group = sent.group(dialogue.as_ref())?.or_else(of_conversation);
        let RestNewMessage { from, message_id, correlation_id, message, priority, ttl, metadata, .. } = sent;
        if message_id.as_ref().is_some_and(|id| id.0 == CLAIM) {
            let why = "messageId: `claim` is the name of a route; use another id";
            return Err(Refusal::invalid(why));
        }
        // An agent that the caller cannot find is absent, whatever the sender is.
        let from = if is_allowed { Some(caller.sender(from.map(|from| from.0))?) } else { None };
        if let Some(dialogue) = dialogue.as_ref().filter(|_| is_allowed) {
            dialogue.check_sender(caller)?;
        }
        if is_allowed
            && rest.gateway.takes_envelopes(&agent)
            && !(dialogue.is_some() && is_dialogue(&message))
        {
            no_message(&message.kind.0).map_or(Ok(()), Err)?;
        }
        let id = message_id.map_or_else(|| crate::unique_id::new_id().to_string(), |id| id.0);
        let RestContent { kind, content, mime_type, metadata: inner } = message;
        let kept = KeptContent { kind, content, mime_type, metadata: inner, request_metadata: metadata };
        let sender = MessageSender::new(caller.id(), from.unwrap_or_default());
        let mut new = NewInboxMessage::new(&agent, &id, sender, JsonText::of(&kept)?);
        if is_allowed && rest.gateway.rest_agent(&agent).is_some() {
            // A message that waits could wait for a place that its own chain of calls holds.
            let metadata = serde_json::to_value(&kept.request_metadata).unwrap_or_default();
            forwarded(&metadata, &agent, rest.gateway.config.limits.call_depth)
                .map_err(|error| Refusal::invalid(error.message))?;
        }
        new.correlation_id = correlation_id.map(|id| id.0);
        new.group = group;
        new.priority = priority.unwrap_or_default().number();
        new.trace = caller.trace();
        new.expires = ttl.map(|ttl| time.wall.saturating_add(ttl.0));
        let received = RestSentMessage {
            message_id: id,
            agent_id: agent.clone(),
            status: RestMessageStatus::Received,
            response: None,
            error: None,
        };
        let reply = RestReply::new(StatusCode::ACCEPTED, &received)?;
        let key = new.key();
        let name = key.clone();
        let batch = OnceBatch::new(StoreBatch::new(time).with(StoreChange::Enqueue(new)), seen);
        let gateway = rest.gateway.clone();
        let enqueue = move |store: &dyn Store| {
            // It ends with this job, also if the client goes before.
            let _turn = turn;
            let found = store.agent(&agent)?;
            // The operator needs no entry in the registry.
            if !is_allowed || (found.is_none() && agent != OPERATOR) {
                return Ok(Err(Refusal::not_found("agent")));
            }
            if let Some(refusal) = gateway.unable(&agent, found.as_ref(), Action::Message) {
                return Ok(Err(refusal));
            }
            if gateway.is_draining() {
                return Ok(Err(stopping()));
            }
            let is_offline = found.is_some_and(|found| found.status == RegistryStatus::Offline);
            if mode == RestSendMode::Sync && is_offline {
                let why = "the agent is offline; send the message with `mode: async`";
                return Ok(Err(Refusal::new(RefusalCode::Unreachable, why)));
            }
            let duplicate = |outcome| match outcome {
                ChangeOutcome::Duplicate => match store.message(&key)? {
                    Some(stored) => {
                        RestReply::kept(StatusCode::OK, &RestSentMessage::from(&stored)).map(Some)
                    }
                    None => Ok(None),
                },
                _ => Ok(None),
            };
            Ok(Ok(batch.apply(store, reply, duplicate)?))
        };
        let OnceOutcome { reply, first } = rest.gateway.in_store(enqueue).await??;
        if first.is_some_and(|first| first != ChangeOutcome::Duplicate) {
            events::message_received(caller.id(), &name.agent, &name.message);
        }
        Ok(reply)
    }
}

/// Waits for the answer to a message. `sent` is the reply to its first request, and all that a principal without a right to
/// the agent gets.
async fn wait_for_answer(
    caller: &RestCaller,
    sent: RestReply,
    mut admission: RestAdmission,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SentTo {
        message_id: String,
        agent_id: String,
    }
    let SentTo { message_id, agent_id } = sent.body().parse()?;
    if !caller.may(Action::Message, &agent_id) && agent_id != OPERATOR {
        return Ok(sent.into_response());
    }
    let key = InboxKey::new(&agent_id, caller.id(), &message_id);
    let limit = caller.gateway().config.limits.sync_seconds;
    admission.ends_after(Duration::from_secs(caller.preferred_wait().unwrap_or(limit).min(limit)));
    match until_ended(caller, &key, &mut admission).await? {
        Some(message) => {
            let reply = RestReply::ok(&RestSentMessage::from(&message))?;
            Ok(admission.until_sent(reply).into_response())
        }
        None => {
            let status = RestMessageStatus::Processing;
            let processing = RestSentMessage { message_id, agent_id, status, response: None, error: None };
            Ok(RestReply::new(StatusCode::ACCEPTED, &processing)?.into_response())
        }
    }
}

/// Creates the refusal of new work by a server that is stopped.
pub(crate) fn stopping() -> Refusal {
    Refusal::new(RefusalCode::Unreachable, "the server is stopped; retry later")
}

/// Waits until a message has ended, with room for it. It is `None` if that takes too long, or the server stops.
async fn until_ended(
    caller: &RestCaller,
    key: &InboxKey,
    admission: &mut RestAdmission,
) -> Result<Option<StoredMessage>, Refusal> {
    let mut changes = caller.gateway().store.watch(&StoreTopic::Inbox(key.agent.clone()));
    loop {
        if admission.take_room().await.is_err() {
            return Ok(None);
        }
        let wanted = key.clone();
        let found = caller.gateway().in_store(move |store| store.message(&wanted)).await?;
        match found {
            // Its sender was erased meanwhile.
            None => return Err(Refusal::not_found("message")),
            Some(message) if matches!(message.state, MessageState::Done | MessageState::Dead) => {
                return Ok(Some(message));
            }
            Some(_) => admission.leave_room(),
        }
        if !admission.changed(changes.changed()).await {
            return Ok(None);
        }
    }
}
