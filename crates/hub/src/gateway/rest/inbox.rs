//! Inboxes: lists of messages, and agents that take their messages from here.

use std::str::FromStr as _;
use std::time::Duration;

use axum::http::StatusCode;
use duologue_store::{
    ChangeOutcome, Claim, JsonText, LeaseToken, Leased, MessageQuery, MessageState, RegistrySource, Store,
    StoreBatch, StoreChange, StorePage, StoreTopic, StoredMessage,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use crate::gateway::access::Action;
use crate::gateway::failure;
use crate::gateway::rest::messages::{RestContent, RestMessageStatus, kept_content, message_error};
use crate::gateway::rest::request::{JsonBody, OnceBatch, PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::values::{
    AgentTarget, MessageTarget, PageLimit, PageOffset, Pagination, RestFailure, RestMetadata, RestNumber,
    RestPriority, SenderQuery, conflict, object_or_null, unless_null,
};
use crate::gateway::rest::visibility::{Visible, find_message, list_visible};
use crate::gateway::{Refusal, events};

/// A message in an inbox.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxMessage)]
#[non_exhaustive]
pub struct RestInboxMessage {
    /// The id.
    pub message_id: String,
    /// The sender.
    pub from: String,
    /// The principal that has sent it.
    pub sender: String,
    /// The time of arrival, in milliseconds since 1970.
    pub timestamp: u64,
    /// The content.
    pub message: RestContent,
    /// The state.
    pub status: RestMessageStatus,
    /// The priority.
    pub priority: RestPriority,
    /// The attempts that have begun.
    pub attempts: u32,
    /// The id that answers repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The metadata of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RestMetadata>,
    /// The content of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub response: Option<JsonText>,
    /// The reason for which it cannot be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RestFailure>,
    /// The lease of the worker, in the response to a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

impl TryFrom<StoredMessage> for RestInboxMessage {
    type Error = duologue_store::Error;

    fn try_from(message: StoredMessage) -> duologue_store::Result<Self> {
        let (content, metadata) = kept_content(&message.content)?;
        Ok(RestInboxMessage {
            status: message.state.into(),
            priority: RestPriority::of(message.priority),
            error: message_error(&message),
            message_id: message.id,
            from: message.from.name,
            sender: message.from.principal,
            timestamp: message.created,
            message: content,
            attempts: message.attempts,
            correlation_id: message.correlation_id,
            group: message.group,
            metadata,
            response: message.response.as_ref().and_then(unless_null),
            lease: None,
        })
    }
}

/// A page of messages, in order of arrival.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = MessageList)]
#[non_exhaustive]
pub struct RestMessageList {
    /// The messages.
    pub messages: Vec<RestInboxMessage>,
    /// The place of the page.
    pub pagination: Pagination,
}

/// Messages with their leases.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ClaimedMessages)]
#[non_exhaustive]
pub struct RestClaimedMessages {
    /// The messages, in the order in which they should be answered.
    pub messages: Vec<RestInboxMessage>,
}

/// Filters of messages, and the place of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct MessageFilter {
    /// The principal that has sent it.
    pub sender: Option<String>,
    /// The id of answers and their messages.
    pub correlation_id: Option<String>,
    /// The number of entries in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most entries of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Lists the messages of an agent: those of the caller, or all if the caller acts for the agent.
#[utoipa::path(
    get, path = "/agents/{agentId}/messages", tag = "messages", params(AgentTarget, MessageFilter),
    responses((status = 200, body = RestMessageList, description = "A page of messages.")),
)]
pub(crate) async fn list_messages(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    QueryOf(filter): QueryOf<MessageFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let MessageFilter { sender, correlation_id, offset, limit } = filter;
    let page = list_visible(&caller, Action::Message, agent_id, sender, move |store, agent, principal| {
        let mut query = MessageQuery::default();
        (query.agent, query.principal, query.correlation_id) = (agent, principal, correlation_id);
        (query.offset, query.limit) = (offset.0, limit.0);
        store.messages(&query)
    });
    let page = page.await?;
    Ok(admission.until_sent(RestReply::ok(&message_list(page)?)?))
}

/// Returns the list of a page.
pub(crate) fn message_list(page: StorePage<StoredMessage>) -> duologue_store::Result<RestMessageList> {
    let pagination = Pagination::from(&page);
    let messages = page.items.into_iter().map(TryInto::try_into).collect::<duologue_store::Result<_>>()?;
    Ok(RestMessageList { messages, pagination })
}

/// Returns a message with its answer.
#[utoipa::path(
    get, path = "/agents/{agentId}/messages/{messageId}", tag = "messages", params(MessageTarget, SenderQuery),
    responses((status = 200, body = RestInboxMessage, description = "The message.")),
)]
pub(crate) async fn get_message(
    caller: RestCaller,
    PathOf(target): PathOf<MessageTarget>,
    QueryOf(query): QueryOf<SenderQuery>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_record().await?;
    let MessageTarget { agent_id, message_id } = target;
    let (visible, own) = (caller.sees(Action::Message, &agent_id), caller.id().to_owned());
    let find = move |store: &dyn Store, visible: &Visible| {
        find_message(store, visible, &own, (&agent_id, &message_id), query.sender)
    };
    let found = caller.find(visible, find).await?.ok_or_else(|| Refusal::not_found("message"))?;
    Ok(admission.until_sent(RestReply::ok(&RestInboxMessage::try_from(found)?)?))
}

/// The number of messages that a claim takes, as a parameter.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(value_type = u64, minimum = 1, maximum = 100, default = 1)]
pub struct ClaimMax(pub usize);

/// The most messages of a claim.
const CLAIM: u64 = 100;

impl Default for ClaimMax {
    fn default() -> Self {
        ClaimMax(1)
    }
}

impl<'de> Deserialize<'de> for ClaimMax {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            max @ 1..=CLAIM => Ok(ClaimMax(usize::try_from(max).unwrap_or(1))),
            _ => Err(serde::de::Error::custom(format!("use a number from 1 to {CLAIM}"))),
        }
    }
}

/// The size and the times of a claim.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct ClaimQuery {
    /// The most messages.
    #[param(inline)]
    pub max: ClaimMax,
    /// The seconds to wait for a message, at most `limits.sync_seconds`. None by default.
    #[param(inline)]
    pub wait: Option<RestNumber>,
    /// The seconds of the lease, at most `limits.lease_seconds`, which is also the default.
    #[param(inline)]
    pub lease: Option<RestNumber>,
}

/// Takes messages from the inbox of an agent that was registered over REST. The agent acknowledges each of them before its
/// lease ends.
#[utoipa::path(
    post, path = "/agents/{agentId}/messages/claim", tag = "messages", params(AgentTarget, ClaimQuery),
    responses(
        (status = 200, body = RestClaimedMessages, description = "The messages with their leases. There may be none."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The server gives the agent its messages: it is in the configuration, or one that attaches."),
    ),
)]
pub(crate) async fn claim_messages(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    QueryOf(query): QueryOf<ClaimQuery>,
) -> Result<SentReply, Refusal> {
    let gateway = caller.gateway();
    gateway.permit(&caller.principal, Action::Act, &agent_id)?;
    let limits = &gateway.config.limits;
    let lease = query.lease.map_or(limits.lease_seconds, |lease| lease.0.clamp(1, limits.lease_seconds));
    let wait = query.wait.map_or(0, |wait| wait.0.min(limits.sync_seconds));
    // A claim of one message that does not wait is as short as the request for a record.
    let mut admission = if wait > 0 || query.max.0 > 1 { caller.admit()? } else { caller.admit_record() };
    if wait > 0 {
        admission.ends_after(Duration::from_secs(wait));
    }
    let mut changes = gateway.store.watch(&StoreTopic::Inbox(agent_id.clone()));
    loop {
        admission.take_room().await?;
        let claim = Claim::new(gateway.time(), Duration::from_secs(lease), caller.id()).max(query.max.0);
        let agent = agent_id.clone();
        let take = move |store: &dyn Store| match store.agent(&agent)? {
            Some(entry) if entry.source == RegistrySource::Rest => {
                store.claim_messages(&agent, &claim).map(Ok)
            }
            // Its worker takes them too, and a message has one worker.
            Some(_) => Ok(Err(conflict(
                "the server gives this agent its messages; only an agent that was registered over REST claims them",
            ))),
            None => Ok(Err(Refusal::not_found("agent"))),
        };
        let claimed = gateway.in_store(take).await??;
        let next_due = claimed.next_due;
        let mut is_over = !claimed.entries.is_empty() || wait == 0;
        claimed.entries.iter().for_each(|leased| events::message_sent(&leased.entry));
        let messages = claimed.entries.into_iter().map(claimed_message).collect::<Result<_, Refusal>>()?;
        if !is_over {
            admission.leave_room();
            // A delayed message wakes nobody.
            let rest = next_due.map(|due| due.saturating_sub(gateway.time().now));
            let changed = async {
                match rest {
                    Some(rest) => _ = timeout(rest, changes.changed()).await,
                    None => changes.changed().await,
                }
            };
            is_over = !admission.changed(changed).await;
        }
        if is_over {
            return Ok(admission.until_sent(RestReply::ok(&RestClaimedMessages { messages })?));
        }
    }
}

fn claimed_message(leased: Leased<StoredMessage>) -> Result<RestInboxMessage, Refusal> {
    let mut message = RestInboxMessage::try_from(leased.entry)?;
    message.lease = Some(leased.lease.to_string());
    Ok(message)
}

/// The acknowledgement of a message.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Acknowledgement)]
#[non_exhaustive]
pub struct RestAck {
    /// The lease from the claim.
    pub lease: String,
    /// The answer, for a sender that waits.
    #[serde(default, deserialize_with = "object_or_null", skip_serializing_if = "Option::is_none")]
    pub response: Option<RestContent>,
}

impl RestAck {
    /// Creates an acknowledgement without an answer.
    #[must_use]
    pub fn new(lease: impl Into<String>) -> Self {
        RestAck { lease: lease.into(), response: None }
    }
}

/// The return of a message that the agent could not answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = NegativeAcknowledgement)]
#[non_exhaustive]
pub struct RestNack {
    /// The lease from the claim.
    pub lease: String,
    /// The milliseconds before the next attempt, at most `limits.task_seconds`. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<RestNumber>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// False makes it a dead letter at once. True by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<bool>,
}

impl RestNack {
    /// Creates the return of a message for another attempt at once.
    #[must_use]
    pub fn new(lease: impl Into<String>) -> Self {
        RestNack { lease: lease.into(), delay: None, error: None, requeue: None }
    }
}

/// The state of a message after its acknowledgement.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AcknowledgedMessage)]
#[non_exhaustive]
pub struct RestAcknowledged {
    /// The id of the message.
    pub message_id: String,
    /// The state.
    pub status: RestMessageStatus,
}

/// Acknowledges a message, with the answer of the agent if there is one.
#[utoipa::path(
    post, path = "/agents/{agentId}/messages/{messageId}/ack", tag = "messages",
    params(
        MessageTarget,
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, pattern = "^[!-~]+$", description = "A repeated request with this key has the first response."),
    ),
    request_body = RestAck,
    responses(
        (status = 422, body = crate::gateway::rest::RefusalBody, description = "The `Idempotency-Key` belongs to a request with another content."),
        (status = 200, body = RestAcknowledged, description = "The message has ended."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The lease has ended, or is that of another message."),
    ),
)]
pub(crate) async fn ack_message(
    caller: RestCaller,
    PathOf(target): PathOf<MessageTarget>,
    body: JsonBody<RestAck>,
) -> Result<RestReply, Refusal> {
    let RestAck { lease, response } = body.value;
    let lease = lease_of(&lease)?;
    let response = response.map(|response| JsonText::of(&response)).transpose()?;
    let change = StoreChange::AckMessage { lease, response };
    end_lease(&caller, target, "ack_message", &body.bytes, (lease, change), RestMessageStatus::Completed)
        .await
}

/// Returns a message to the inbox for a later attempt, or makes it a dead letter.
#[utoipa::path(
    post, path = "/agents/{agentId}/messages/{messageId}/nack", tag = "messages",
    params(
        MessageTarget,
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, pattern = "^[!-~]+$", description = "A repeated request with this key has the first response."),
    ),
    request_body = RestNack,
    responses(
        (status = 422, body = crate::gateway::rest::RefusalBody, description = "The `Idempotency-Key` belongs to a request with another content."),
        (status = 200, body = RestAcknowledged, description = "The message waits again, or is a dead letter after its last attempt."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The lease has ended, or is that of another message."),
    ),
)]
pub(crate) async fn nack_message(
    caller: RestCaller,
    PathOf(target): PathOf<MessageTarget>,
    body: JsonBody<RestNack>,
) -> Result<RestReply, Refusal> {
    let RestNack { lease, delay, error, requeue } = body.value;
    let lease = lease_of(&lease)?;
    let (change, status) = if requeue.unwrap_or(true) {
        let longest = Duration::from_secs(caller.gateway().config.limits.task_seconds);
        let delay = Duration::from_millis(delay.map_or(0, |delay| delay.0)).min(longest);
        (StoreChange::NackMessage { lease, delay, error }, RestMessageStatus::Received)
    } else {
        let error =
            error.unwrap_or_else(|| format!("{}: it was rejected without a reason", failure::UNDELIVERABLE));
        (StoreChange::RejectMessage { lease, error }, RestMessageStatus::Error)
    };
    end_lease(&caller, target, "nack_message", &body.bytes, (lease, change), status).await
}

/// Parses a lease. A text that is none is a lease that has ended.
fn lease_of(text: &str) -> Result<LeaseToken, Refusal> {
    LeaseToken::from_str(text).map_err(|_| conflict("the lease has ended, or was never given"))
}

/// Checks that a lease is one of the message in the path. Several principals can have sent messages with its id.
fn require_lease(
    store: &dyn Store,
    agent: String,
    message: String,
    lease: LeaseToken,
) -> duologue_store::Result<Result<(), Refusal>> {
    let mut query = MessageQuery::default();
    (query.agent, query.id) = (Some(agent), Some(message));
    let found = StorePage::all(|offset| {
        query.offset = offset;
        store.messages(&query)
    })?;
    Ok(match &found[..] {
        [] => Err(Refusal::not_found("message")),
        found if found.iter().any(|message| lease.is_of_message(message)) => Ok(()),
        _ => Err(conflict("the lease is not that of this message")),
    })
}

async fn end_lease(
    caller: &RestCaller,
    target: MessageTarget,
    operation: &str,
    bytes: &[u8],
    (lease, change): (LeaseToken, StoreChange),
    status: RestMessageStatus,
) -> Result<RestReply, Refusal> {
    let MessageTarget { agent_id, message_id } = target;
    let gateway = caller.gateway();
    gateway.permit(&caller.principal, Action::Act, &agent_id)?;
    let reply = RestReply::ok(&RestAcknowledged { message_id: message_id.clone(), status })?;
    let batch = OnceBatch::new(StoreBatch::new(gateway.time()).with(change), caller.once(operation, bytes)?);
    let end = move |store: &dyn Store| {
        // Its message may be gone or have another lease by now.
        if let Some(reply) = batch.repeated(store)? {
            return Ok(Ok(reply));
        }
        if let Err(refusal) = require_lease(store, agent_id, message_id.clone(), lease)? {
            return Ok(Err(refusal));
        }
        let dead = |outcome| match outcome {
            ChangeOutcome::Dead => {
                let dead = RestAcknowledged { message_id, status: MessageState::Dead.into() };
                RestReply::kept(StatusCode::OK, &dead).map(Some)
            }
            _ => Ok(None),
        };
        Ok(Ok(batch.apply(store, reply, dead)?.reply))
    };
    gateway.in_store(end).await?
}
