//! Answers a message by an agent that serves the REST interface itself.

use std::time::Duration;

use duologue_store::{JsonText, LeaseToken, StoredMessage};
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{AnswerFailure, found_again, mark_truncated};
use crate::gateway::agent_calls::forwarded;
use crate::gateway::rest::kept_content;
use crate::gateway::rest_agent::{
    FIRST_POLL, LONGEST_POLL, RestFault, RestPeer, answer_about, id_at_agent, trace_headers,
};
use crate::gateway::runner::{continue_work, hand_over};
use crate::gateway::work::WorkPlace;
use crate::gateway::work_turn::check_attachments;
use crate::gateway::{GatewayShared, events, failure};

/// The time for which the agent may keep the request open. It is below `OutboundSettings::total_timeout`.
const WAIT: HeaderValue = HeaderValue::from_static("wait=20");

/// Sends a message, and waits for its answer. The agent knows it by the same id in all attempts.
pub(super) async fn answer(
    gateway: &GatewayShared,
    message: &StoredMessage,
    lease: LeaseToken,
    agent: &RestPeer,
    place: WorkPlace,
) -> Result<Option<JsonText>, AnswerFailure> {
    let limits = &gateway.config.limits;
    let until = Instant::now() + Duration::from_secs(limits.task_seconds);
    let (id, mut answer) = begin(gateway, message, lease, agent).await?;
    let path = ["messages", id.as_str()];
    // A drain need not wait for it.
    drop(place);
    let mut pause = FIRST_POLL;
    loop {
        answer = answer_about(&id, "messageId", answer)?;
        match answer["status"].as_str() {
            Some("received" | "processing") => {}
            Some("completed") => {
                let mut response = agent.checked_result(&answer["response"])?.cloned();
                if let Some(response) = &mut response
                    && check_attachments(response, agent.result_size)
                {
                    mark_truncated(response);
                }
                return response
                    .as_ref()
                    .map(JsonText::of)
                    .transpose()
                    .map_err(|error| error.to_string().into());
            }
            Some("error") => return Err(RestFault::answered(&answer["error"]).into()),
            _ => {
                let why = "the agent answered without a known status";
                return Err(AnswerFailure::of(failure::AGENT_FAILED, why));
            }
        }
        if Instant::now() >= until {
            let why = "the agent took too long (`limits.task_seconds`)";
            return Err(AnswerFailure::of(failure::TIMEOUT, why));
        }
        sleep_until(until.min(Instant::now() + pause)).await;
        pause = pause.saturating_mul(2).min(LONGEST_POLL);
        if is_gone(gateway, message).await {
            return Err(AnswerFailure::Gone);
        }
        match agent.get(&path).await {
            Ok(found) => answer = found,
            // It can have an answer later.
            Err(fault) if fault.is_temporary => {
                pause = pause.max(fault.wait);
                tracing::debug!(?fault, "the answer to a message is not read")
            }
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// Returns true if a message was erased.
async fn is_gone(gateway: &GatewayShared, message: &StoredMessage) -> bool {
    // The log of the server has the reason of an error.
    matches!(gateway.in_store(found_again(message)).await, Ok(false))
}

/// Sends the message, unless an earlier attempt has. Returns its id and its state at the agent.
async fn begin(
    gateway: &GatewayShared,
    message: &StoredMessage,
    lease: LeaseToken,
    agent: &RestPeer,
) -> Result<(String, Value), AnswerFailure> {
    let id_of = |seq| id_at_agent(&message.from.principal, &message.id, message.created, seq);
    let handed = message.handed_seq.unwrap_or(message.seq);
    if message.attempts > 1 || message.handed_seq.is_some() {
        let id = id_of(handed);
        match agent.get(&["messages", &id]).await {
            Err(fault) if fault.is_absent() => {}
            // Work that has failed under the id of a dead letter begins again under another one.
            Ok(found) if handed != message.seq && !is_of_use(&found) => {}
            found => {
                let found = found?;
                continue_work(gateway, lease).await;
                return Ok((id, found));
            }
        }
    }
    let id = id_of(message.seq);
    let (content, metadata) = kept_content(&message.content).map_err(|error| error.to_string())?;
    let metadata = serde_json::to_value(metadata).unwrap_or_default();
    let metadata = forwarded(&metadata, &message.agent, gateway.config.limits.call_depth)
        .map_err(|error| format!("{}: {}", error.code, error.message))?;
    let mut body = json!({"messageId": id, "message": content, "mode": "sync", "metadata": metadata});
    if let Some(correlation) = &message.correlation_id {
        body["correlationId"] = json!(correlation);
    }
    let mut headers = trace_headers(message.trace.as_deref());
    headers.insert("prefer", WAIT);
    hand_over(gateway, lease).await;
    events::message_sent(message);
    let answer = agent.post(&["messages"], &body, headers).await?;
    Ok((id, answer))
}

/// Returns true if the agent works on a message, or has answered it.
fn is_of_use(found: &Value) -> bool {
    matches!(found["status"].as_str(), Some("received" | "processing" | "completed"))
}

impl From<RestFault> for AnswerFailure {
    fn from(fault: RestFault) -> Self {
        let text = format!("{}: {}", fault.code, fault.message);
        if fault.is_temporary {
            AnswerFailure::Unreached(text, fault.wait)
        } else {
            AnswerFailure::Failed(text)
        }
    }
}
