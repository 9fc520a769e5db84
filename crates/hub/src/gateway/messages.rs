//! Answers the messages of an inbox with prompt turns, or with the envelopes of an agent.

mod rest_message;

use std::sync::Arc;
use std::time::Duration;

use duologue_client::{PromptBuilder, exchange};
use duologue_schema::{Json, RequestPermissionOutcome, StopReason, TraceContext};
use duologue_store::{
    BatchOutcome, JsonText, LeaseToken, Leased, Store, StoreBatch, StoreChange, StoredMessage, TaskFailure,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::gateway::agent_turn::{
    MessageContent, TurnOutput, WorkSession, failure_of, is_worker_lost, prompt_of_message,
};
use crate::gateway::conversations::MessageSession;
use crate::gateway::rest_agent::return_pause;
use crate::gateway::result_size::ResultSize;
use crate::gateway::runner::{LEASE, insist, renewing};
use crate::gateway::work::WorkPlace;
use crate::gateway::work_turn::{add_attachments, is_delegation_lost};
use crate::gateway::{GatewayShared, Refusal, RefusalCode, events, failure};
use crate::state::CONTEXT_LOST;

/// The reason for which a message has no answer.
enum AnswerFailure {
    /// The connection to the agent was lost. The message is treated as after the loss of a server.
    Lost,
    /// The message was erased.
    Gone,
    /// The agent has not begun the message.
    NotBegun(String),
    /// The agent was not reached, or knows the message by its id. It is sent again, after this time at the earliest.
    Unreached(String, Duration),
    /// The agent or the message failed.
    Failed(String),
    /// The agent does not know the conversation any more, and has not begun the message.
    ContextLost(String),
}

impl AnswerFailure {
    fn of(code: &str, why: &str) -> Self {
        AnswerFailure::Failed(format!("{code}: {why}"))
    }
}

impl From<String> for AnswerFailure {
    fn from(reason: String) -> Self {
        AnswerFailure::Failed(reason)
    }
}

/// Answers one message.
pub(crate) async fn run(gateway: Arc<GatewayShared>, leased: Leased<StoredMessage>, mut place: WorkPlace) {
    let Leased { entry: message, lease } = leased;
    let outcome = match gateway.rest_agent(&message.agent) {
        Some(agent) => {
            let mut closing = gateway.closing.subscribe();
            let answer = rest_message::answer(&gateway, &message, lease, &agent, place);
            tokio::select! {
                answered = renewing(&gateway, lease, answer) => answered,
                // The agent works on, and the next start finds the message there.
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
        None => renewing(&gateway, lease, answer(&gateway, &message, lease, &mut place)).await,
    };
    let change = match outcome {
        // The next start returns it to its place.
        Err(AnswerFailure::NotBegun(_)) if gateway.is_draining() || gateway.is_closing() => return,
        // It is lost, or runs again, with the next start.
        Err(AnswerFailure::Lost | AnswerFailure::Failed(_)) if gateway.is_closing() => return,
        Err(AnswerFailure::Gone) => return,
        Ok(response) => StoreChange::AckMessage { lease, response },
        Err(AnswerFailure::Unreached(error, wait)) => {
            let delay = return_pause(message.attempts).max(wait);
            StoreChange::NackMessage { lease, delay, error: Some(error) }
        }
        // Its agent may have acted already, so no other attempt follows.
        Err(
            AnswerFailure::NotBegun(error) | AnswerFailure::Failed(error) | AnswerFailure::ContextLost(error),
        ) => StoreChange::RejectMessage { lease, error },
        Err(AnswerFailure::Lost) => StoreChange::RenewLease { lease, lasts: Duration::ZERO },
    };
    finish(&gateway, lease, change).await;
}

/// Changes the store until that succeeds or the lease is lost.
async fn change(gateway: &GatewayShared, change: StoreChange) -> Result<BatchOutcome, Refusal> {
    insist(|| {
        let batch = StoreBatch::new(gateway.time()).with(change.clone());
        gateway.in_store(move |store| store.apply(batch))
    })
    .await
}

/// Writes the outcome of a message. An answer that the store refuses is an error.
async fn finish(gateway: &GatewayShared, lease: LeaseToken, outcome: StoreChange) {
    let is_answer = matches!(outcome, StoreChange::AckMessage { .. });
    let mut written = change(gateway, outcome).await;
    if let Err(refusal) = &written
        && is_answer
        && refusal.code == RefusalCode::InvalidParameter
    {
        let error = format!("{}: the answer cannot be stored: {refusal}", failure::TOO_LARGE);
        written = change(gateway, StoreChange::RejectMessage { lease, error }).await;
    }
    if let Err(refusal) = written {
        tracing::error!(?lease, %refusal, "the answer to a message was lost");
    }
}

async fn answer(
    gateway: &GatewayShared,
    message: &StoredMessage,
    lease: LeaseToken,
    place: &mut WorkPlace,
) -> Result<Option<JsonText>, AnswerFailure> {
    let content: MessageContent = message.content.parse().map_err(|error| error.to_string())?;
    let gone = || "the agent is not in the configuration any more".to_owned();
    let agent = gateway.hosted(&message.agent).ok_or_else(gone)?;
    if message.handed_seq == Some(message.seq) && content.metadata["retry"] != "safe" {
        // The configuration had an agent elsewhere in the place of this one.
        let why = "another agent had the message before this one was configured in its place";
        return Err(AnswerFailure::of(TaskFailure::RESTARTED, why));
    }
    let limit = Instant::now() + Duration::from_secs(gateway.config.limits.task_seconds);
    let trace = message.trace.as_deref().and_then(TraceContext::new);
    let opened = MessageSession::open(&agent, message, trace.as_ref()).await;
    let mut session =
        opened.map_err(|error| AnswerFailure::NotBegun(named(failure_of(failure::UNREACHABLE, &error))))?;
    let begun = match content.metadata["retry"] == "safe" {
        // It returns to its place if it is lost.
        true => StoreChange::RenewLease { lease, lasts: LEASE },
        false => StoreChange::StartMessage { lease },
    };
    if let Err(refusal) = change(gateway, begun).await {
        let (owner, found) = (&message.from.principal, found_again(message));
        gateway.leave(session.work, Some(agent), owner, found).await;
        return Err(AnswerFailure::NotBegun(refusal.message.into_owned()));
    }
    events::message_sent(message);
    let size = gateway.result_size;
    let answered = async {
        match content.kind.as_str() {
            "query" | "notify" if agent.config.envelopes => {
                place.begin();
                send_envelope(&session.work, &message.id, &content, trace, limit, size).await
            }
            _ => {
                let prompt = || prompt_of_message(&content, trace.as_ref());
                match follow(&mut session.work, prompt(), size, place).await {
                    Err(AnswerFailure::ContextLost(_)) => {
                        let anew = session.begin_anew(&agent, trace.as_ref()).await;
                        anew.map_err(|error| named(failure_of(failure::UNREACHABLE, &error)))?;
                        follow(&mut session.work, prompt(), size, place).await
                    }
                    answered => answered,
                }
            }
        }
    };
    let too_long = |_| AnswerFailure::of(failure::TIMEOUT, "the agent took too long (`limits.task_seconds`)");
    let outcome = timeout_at(limit, answered).await.map_err(too_long).and_then(|answered| answered);
    let has_lost_context = session.has_lost_context;
    // A turn that took too long would go on in a session that stays open.
    session.end(&agent, outcome.is_ok()).await;
    let Some(mut response) = outcome? else { return Ok(None) };
    if has_lost_context {
        response["metadata"]["context"] = json!("lost");
    }
    JsonText::of(&response).map(Some).map_err(|error| error.to_string().into())
}

/// Returns the check if a message is still there. A later one with its id is another message, and one that is sent again keeps
/// its time.
fn found_again(
    message: &StoredMessage,
) -> impl FnOnce(&dyn Store) -> duologue_store::Result<bool> + Send + 'static {
    let (key, created) = (message.key(), message.created);
    move |store| Ok(store.message(&key)?.is_some_and(|found| found.created == created))
}

/// Sends a message as an envelope. A notification has no response.
async fn send_envelope(
    work: &WorkSession,
    id: &str,
    content: &MessageContent,
    trace: Option<TraceContext>,
    until: Instant,
    size: ResultSize,
) -> Result<Option<Value>, AnswerFailure> {
    let peer = work.session.peer_agent();
    let failed = |error: exchange::Error| match is_delegation_lost(work.is_remote, &error) {
        true => AnswerFailure::Lost,
        false => AnswerFailure::Failed(format!("{}: {}", error.code(), error.fault().message)),
    };
    let named = |name: &str| content.metadata[name].as_str();
    if content.kind == "notify" {
        let topic = named("topic").unwrap_or("message");
        let notify = peer.notify(topic, Json::from(content.content.clone())).id(id).trace_context(trace);
        notify.await.map_err(failed)?;
        // The agent has read the notification when it answers, and its process can end.
        peer.ping().await.map_err(failed)?;
        return Ok(None);
    }
    let query = peer.query(content.content.clone()).id(id).trace_context(trace);
    let query = query.deadline(until.saturating_duration_since(Instant::now()));
    let query = match named("domain") {
        Some(domain) => query.domain(domain),
        None => query,
    };
    let answer = query.await.map_err(failed)?;
    let (text, is_cut) = size.cut(answer.summary);
    let mut response = json!({"type": "response", "content": text, "mimeType": "text/plain"});
    if is_cut || answer.truncated {
        mark_truncated(&mut response);
    }
    let data = answer.data.and_then(|data| data.parse::<Value>().ok());
    if let Some(data) = data.filter(|data| size.fits(&response, data)) {
        response["metadata"]["data"] = data;
    }
    Ok(Some(response))
}

async fn follow(
    work: &mut WorkSession,
    prompt: PromptBuilder,
    size: ResultSize,
    place: &mut WorkPlace,
) -> Result<Option<Value>, AnswerFailure> {
    let is_remote = work.is_remote;
    let failed = |error: duologue_client::Error| match is_worker_lost(is_remote, &error) {
        true => AnswerFailure::Lost,
        false if error.code().as_deref() == Some(CONTEXT_LOST) => {
            AnswerFailure::ContextLost(error.to_string())
        }
        false => AnswerFailure::Failed(named(failure_of(failure::AGENT_FAILED, &error))),
    };
    let mut turn = work.session.prompt(prompt).await.map_err(failed)?;
    place.begin();
    let mut output = TurnOutput::default();
    loop {
        tokio::select! {
            update = turn.next() => match update {
                Some(Ok(update)) if output.add(&update) => {}
                Some(Ok(_)) => return Err(AnswerFailure::of(failure::TOO_LARGE, "the updates of the agent exceed 64 MiB")),
                Some(Err(error)) => return Err(failed(error)),
                None => break,
            },
            // A message has nobody who answers questions. A task can have them.
            Some(question) = work.questions.recv() => {
                let _ = question.answer.send(RequestPermissionOutcome::Cancelled);
            }
        }
    }
    let response = turn.outcome().await.map_err(failed)?;
    if response.stop_reason == StopReason::Cancelled {
        return Err(AnswerFailure::of(failure::CANCELLED, "the turn was cancelled"));
    }
    let (text, is_cut) = output.text(size);
    let mut response = json!({"type": "response", "content": text, "mimeType": "text/plain"});
    if add_attachments(&mut response, &output.attachments(), size) || is_cut {
        mark_truncated(&mut response);
    }
    Ok(Some(response))
}

/// Marks an answer of which a part is left out. Its metadata can be of any type at an agent elsewhere.
fn mark_truncated(response: &mut Value) {
    match &mut response["metadata"] {
        Value::Object(metadata) => _ = metadata.insert("truncated".to_owned(), json!(true)),
        metadata => *metadata = json!({"truncated": true}),
    }
}

/// Returns a failure as the store keeps that of a message.
fn named(failure: TaskFailure) -> String {
    format!("{}: {}", failure.code, failure.message)
}

#[cfg(test)]
mod tests {
    use duologue_store::{Claim, InboxKey, MessageSender, MessageState, NewInboxMessage};

    use super::*;
    use crate::gateway::task_run::tests::gateway;

    #[tokio::test]
    async fn an_answer_that_the_store_refuses_is_an_error() {
        let (gateway, _folder) = gateway("", |_| {});
        let message =
            NewInboxMessage::new("writer", "m", MessageSender::new("alice", "a"), JsonText::default());
        let batch = StoreBatch::new(gateway.time()).with(StoreChange::Enqueue(message));
        gateway.store.apply(batch).expect("a message");
        let claim = Claim::new(gateway.time(), LEASE, "hub");
        let lease = gateway.store.claim_messages("writer", &claim).expect("a claim").entries[0].lease;
        let response = JsonText::of(&"x".repeat(5 << 20)).ok();
        finish(&gateway, lease, StoreChange::AckMessage { lease, response }).await;
        let key = InboxKey::new("writer", "alice", "m");
        let message = gateway.store.message(&key).expect("the store").expect("the message");
        let error = message.error.unwrap_or_default();
        assert!(message.state == MessageState::Dead && error.starts_with("too_large: "), "{error}");
    }
}
