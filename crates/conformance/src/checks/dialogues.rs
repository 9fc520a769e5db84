//! Dialogues: the rules for an agent that advertises them. Other agents skip these checks.
//!
//! The messages are unsigned. An agent that accepts only signed ones skips the checks that need a receipt.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duologue_schema::Request as _;
use duologue_schema::dialogue::{
    DialogueErrorCode, DialogueMessage, DialogueRequest, DialogueResponse, ErrorContent, MessageType, Receipt,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::envelopes::offers;
use crate::finding::{Finding, Outcome, checks, fail, pass, skip};
use crate::harness::{Agent, Harness};
use crate::raw_process::ResponseFromAgent;

checks! { "dialogues";
    "dialogue-refusal" => refusal, Must, DIALOGUES,
        "A dialogue message to another agent is answered with an unsigned `error` message that names it.";
    "dialogue-strict-json" => strict_json, Must, DIALOGUES,
        "A dialogue message with a duplicate key is refused with `INVALID_PARAMETER`.";
    "dialogue-session" => unknown_session, Must, DIALOGUES,
        "A dialogue message in an unknown ACP session is answered with a JSON-RPC error.";
    "dialogue-receipt" => receipt, Must, DIALOGUES,
        "An accepted dialogue message is answered with a receipt that names it.";
    "dialogue-repetition" => repetition, Must, DIALOGUES,
        "The repetition of an accepted dialogue message is answered with a receipt with `duplicate: true`.";
    "dialogue-conflict" => conflict, Must, DIALOGUES,
        "Another dialogue message with the id of an accepted one is refused with `CONFLICT`.";
    "dialogue-expired" => expired, Must, DIALOGUES,
        "A dialogue message whose `ttl` is over is refused with `EXPIRED`.";
    "dialogue-moves" => moves, Must, DIALOGUES,
        "A dialogue that begins with `accept` is refused with `INVALID_PARAMETER` and the legal moves.";
}

/// The name of the client in dialogues.
const OWN: &str = "agent://check.duologue.dev/check";
/// The name of an agent that does not exist.
const NOBODY: &str = "agent://nobody.duologue.dev";

/// Returns the agent and a session, if the agent supports dialogues.
async fn speaker(harness: &mut Harness) -> Result<(&mut Agent, String), Finding> {
    if !offers(harness.agent().await?).dialogue {
        return Err(skip("it does not advertise _meta.duologue.dialogue"));
    }
    let (agent, opened) = harness.session().await?;
    Ok((agent, opened.id))
}

/// Creates a message that opens a dialogue of its own.
fn message(agent: &mut Agent, to: &str) -> Value {
    let id = agent.new_id();
    json!({
        "message_id": format!("check-{id}"),
        "session_id": format!("check-dialogue-{id}"),
        "sender_id": OWN,
        "recipient_id": to,
        "timestamp": timestamp(SystemTime::now()),
        "interaction_step": 1,
        "message_type": "inform",
        "content": {"natural_language": "This is a check."},
        "metadata": {},
    })
}

/// Returns the time as ISO 8601, in seconds of UTC.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The calendar from March on, in eras of 400 years: the leap day is then the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// The answer to a dialogue message.
enum DialogueAnswer {
    Receipt(Receipt),
    /// The error message and its content.
    Refused(Box<DialogueMessage>, Box<ErrorContent>),
}

async fn send(agent: &mut Agent, session: &str, message: &Value) -> Result<DialogueAnswer, Finding> {
    let params = json!({"sessionId": session, "message": message});
    let response = agent.request(DialogueRequest::METHOD, params).await?;
    read(response, message)
}

/// Reads the answer to a message, which is a receipt or an error message.
fn read(response: ResponseFromAgent, message: &Value) -> Result<DialogueAnswer, Finding> {
    let result =
        response.outcome.map_err(|error| fail(format!("answered with {error}, not with a message")))?;
    let answer = DialogueResponse::deserialize(&result)
        .map_err(|error| fail(format!("the answer has another form: {error}")))?;
    match (answer.receipt, answer.error) {
        (Some(receipt), None) => {
            let named = [receipt.message_id.as_str(), receipt.session_id.as_str()];
            if [&message["message_id"], &message["session_id"]] != named {
                return Err(fail(format!("the receipt is for the message {} of {}", named[0], named[1])));
            }
            Ok(DialogueAnswer::Receipt(receipt))
        }
        (None, Some(error)) => {
            let message: DialogueMessage =
                error.parse().map_err(|fault| fail(format!("the error is no dialogue message: {fault}")))?;
            match (&message.message_type, message.content.error()) {
                (MessageType::Error, Some(content)) => {
                    Ok(DialogueAnswer::Refused(Box::new(message), Box::new(content)))
                }
                _ => Err(fail("the error is no message of the type `error` with an error_code")),
            }
        }
        _ => Err(fail(format!("answered with {result}: neither a receipt nor an error, or both"))),
    }
}

/// Sends a message that must be refused, and returns the content of the error.
async fn refused(agent: &mut Agent, session: &str, message: &Value) -> Result<ErrorContent, Finding> {
    match send(agent, session, message).await? {
        DialogueAnswer::Refused(_, content) => Ok(*content),
        DialogueAnswer::Receipt(_) => Err(fail("it is accepted")),
    }
}

fn has_code(content: &ErrorContent, expected: DialogueErrorCode) -> Outcome {
    let code = &content.error_code;
    if *code == expected { Ok(pass(code.to_string())) } else { Err(fail(format!("refused with {code}"))) }
}

/// Returns the name of the agent in dialogues. Only its messages have it, such as the refusal of a message.
async fn name(agent: &mut Agent, session: &str) -> Result<String, Finding> {
    let stray = message(agent, NOBODY);
    match send(agent, session, &stray).await {
        Ok(DialogueAnswer::Refused(error, _)) => Ok(error.sender_id.to_string()),
        Ok(DialogueAnswer::Receipt(_)) => {
            Err(fail("it accepts a message to another agent").explained_by("dialogue-refusal"))
        }
        Err(finding) => Err(finding.explained_by("dialogue-refusal")),
    }
}

/// Returns a message that the agent has accepted, and its receipt.
async fn accepted(agent: &mut Agent, session: &str) -> Result<(Value, Receipt), Finding> {
    let name = name(agent, session).await?;
    let message = message(agent, &name);
    match send(agent, session, &message).await? {
        DialogueAnswer::Receipt(receipt) => Ok((message, receipt)),
        DialogueAnswer::Refused(_, content) => {
            let (code, text) = (&content.error_code, &content.error_message);
            Err(skip(format!("it does not accept our unsigned message: {code} ({text})")))
        }
    }
}

async fn refusal(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let message = message(agent, NOBODY);
    match send(agent, &session, &message).await? {
        DialogueAnswer::Receipt(_) => Ok(fail("a message to another agent is accepted")),
        DialogueAnswer::Refused(error, _) if error.signature.is_some() => {
            Ok(fail("the error is signed, although it can name any message"))
        }
        DialogueAnswer::Refused(_, content) => match content.failed_message_id {
            Some(id) if message["message_id"] == id.as_str() => Ok(pass(content.error_code.to_string())),
            Some(id) => Ok(fail(format!("the error is about the message {id}"))),
            None => Ok(fail("the error has no failed_message_id")),
        },
    }
}

async fn strict_json(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let message = message(agent, NOBODY);
    let id = agent.new_id();
    // Readers that keep the last of two equal keys, and those that keep the first, see the same step.
    let text = message.to_string().replacen('{', "{\"interaction_step\":1,", 1);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{\"sessionId\":{},\"message\":{text}}}}}\n",
        DialogueRequest::METHOD,
        json!(session)
    );
    agent.send(line.as_bytes()).await?;
    let response = agent.response(&id, "a dialogue message with a duplicate key").await?;
    let answer = read(response, &message).map_err(|finding| finding.explained_by("dialogue-refusal"))?;
    match answer {
        DialogueAnswer::Refused(_, content) => has_code(&content, DialogueErrorCode::InvalidParameter),
        DialogueAnswer::Receipt(_) => Ok(fail("it is accepted").explained_by("dialogue-refusal")),
    }
}

async fn unknown_session(harness: &mut Harness) -> Outcome {
    let (agent, _) = speaker(harness).await?;
    let message = message(agent, NOBODY);
    let params = json!({"sessionId": "no-such-session", "message": message});
    match agent.request(DialogueRequest::METHOD, params).await?.outcome {
        Err(error) => Ok(pass(error.to_string())),
        Ok(result) => Ok(fail(format!("answered with {result}"))),
    }
}

async fn receipt(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let (_, receipt) = accepted(agent, &session).await?;
    Ok(match receipt.duplicate {
        true => fail("the receipt of a new message has `duplicate: true`"),
        false => pass(receipt.status.to_string()),
    })
}

async fn repetition(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let (message, _) =
        accepted(agent, &session).await.map_err(|finding| finding.explained_by("dialogue-receipt"))?;
    match send(agent, &session, &message).await? {
        DialogueAnswer::Receipt(receipt) if receipt.duplicate => Ok(pass("duplicate")),
        DialogueAnswer::Receipt(_) => Ok(fail("its receipt has no `duplicate: true`")),
        DialogueAnswer::Refused(_, content) => Ok(fail(format!("refused with {}", content.error_code))),
    }
}

async fn conflict(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let (mut message, _) =
        accepted(agent, &session).await.map_err(|finding| finding.explained_by("dialogue-receipt"))?;
    message["content"]["natural_language"] = json!("This is another check.");
    has_code(&refused(agent, &session, &message).await?, DialogueErrorCode::Conflict)
}

async fn expired(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let (message, _) =
        accepted(agent, &session).await.map_err(|finding| finding.explained_by("dialogue-receipt"))?;
    let mut late = self::message(agent, message["recipient_id"].as_str().unwrap_or_default());
    let hour = Duration::from_secs(3_600);
    late["timestamp"] = json!(timestamp(SystemTime::now().checked_sub(hour).unwrap_or(UNIX_EPOCH)));
    late["metadata"] = json!({"ttl": 1});
    has_code(&refused(agent, &session, &late).await?, DialogueErrorCode::Expired)
}

async fn moves(harness: &mut Harness) -> Outcome {
    let (agent, session) = speaker(harness).await?;
    let (message, _) =
        accepted(agent, &session).await.map_err(|finding| finding.explained_by("dialogue-receipt"))?;
    let mut accept = self::message(agent, message["recipient_id"].as_str().unwrap_or_default());
    accept["message_type"] = json!("accept");
    let content = refused(agent, &session, &accept).await?;
    let finding = has_code(&content, DialogueErrorCode::InvalidParameter)?;
    match content.details.get::<Vec<Value>>("allowed") {
        Some(allowed) if !allowed.is_empty() => Ok(finding),
        _ => Ok(fail("the error does not list the legal moves in details.allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_366_400, "2026-03-01T12:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
