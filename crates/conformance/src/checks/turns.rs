//! Turns: a prompt, its updates and its response.

use duologue_schema::{PromptRequest, Request as _};
use duologue_transcript::{ParsedLine, Side, entries};
use serde_json::Value;

use crate::finding::{Outcome, checks, fail, pass, warn};
use crate::harness::Harness;

checks! { "turns";
    "session-new" => session_new, Must, SESSION_SETUP,
        "`session/new` in an absolute directory makes a session, or asks for a login.";
    "prompt-answered" => prompt_answered, Must, PROMPT_TURN,
        "`session/prompt` is answered with a stop reason.";
    "stop-reason" => stop_reason, Must, PROMPT_TURN,
        "The stop reason is one of those there are.";
    "updates-before-answer" => updates_before_answer, Should, PROMPT_TURN,
        "The updates of a turn come before the response that ends it.";
    "next-turn" => next_turn, Must, PROMPT_TURN,
        "After one turn a session takes another.";
    "sessions-at-once" => sessions_at_once, Must, SESSION_SETUP,
        "Two sessions of one connection run turns at the same time.";
}

async fn session_new(harness: &mut Harness) -> Outcome {
    let opened = harness.open().await?;
    if opened.id.is_empty() {
        return Ok(fail("the session's id is empty"));
    }
    Ok(pass("a session"))
}

async fn prompt_answered(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let response = match agent.turn(&opened.id).await {
        Ok(turn) => turn.response,
        Err(finding) => {
            harness.without_turn(&finding);
            return Err(finding);
        }
    };
    match response.outcome {
        Ok(result) if result["stopReason"].is_string() => {
            Ok(pass(result["stopReason"].as_str().unwrap_or_default()))
        }
        Ok(result) => Ok(fail(format!("the answer has no stop reason: {result}"))),
        Err(error) => Ok(warn(format!("the prompt is answered with {error}; set another prompt"))),
    }
}

async fn stop_reason(harness: &mut Harness) -> Outcome {
    let (_, turn) = harness.after_turn().await?;
    let Ok(result) = turn.response.outcome else {
        return Ok(crate::finding::skip("the prompt is answered with an error"));
    };
    match result["stopReason"].as_str() {
        Some(reason) if is_stop_reason(reason) => Ok(pass(reason)),
        Some(reason) => Ok(fail(format!("{reason:?} is no stop reason"))),
        None => Ok(crate::finding::skip("the answer has no stop reason")),
    }
}

/// Returns true for a stop reason of the specification.
pub(super) fn is_stop_reason(reason: &str) -> bool {
    matches!(reason, "end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled")
}

async fn updates_before_answer(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, opened) = harness.session().await?;
    let start = agent.log().len();
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    let quiet = agent.waits.quiet * 2;
    agent.serve_for(quiet).await?;
    let records = agent.log().since(start);
    let entries = entries(&records);
    let answered = entries.iter().position(|entry| {
        entry.from() == Side::Agent
            && entry.method() == Some(PromptRequest::METHOD)
            && matches!(entry.parsed, ParsedLine::Response { .. })
    });
    let late = entries.iter().skip(answered.unwrap_or(entries.len())).find(|entry| {
        entry.from() == Side::Agent
            && entry.session.as_ref().is_some_and(|session| session.as_str() == opened.id)
            && match &entry.parsed {
                ParsedLine::Notification { params: Some(params), .. } => {
                    let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
                    belongs_to_turn(&params["update"])
                }
                _ => false,
            }
    });
    match late.and_then(|late| records.get(late.record)) {
        Some(late) => Ok(fail("more of the turn came after its answer").shown([late.clone()])),
        None => Ok(pass("nothing of the turn came after its answer")),
    }
}

/// Returns true if an update belongs to a turn. Commands, modes, usage and titles can come at any time.
fn belongs_to_turn(update: &Value) -> bool {
    matches!(
        update["sessionUpdate"].as_str(),
        Some("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" | "tool_call")
    )
}

async fn next_turn(harness: &mut Harness) -> Outcome {
    let (agent, turn) = harness.after_turn().await?;
    match agent.turn(&turn.session).await?.response.outcome {
        Ok(_) => Ok(pass("answered")),
        Err(error) => Ok(match turn.response.outcome {
            Ok(_) => fail(format!("the second prompt is answered with {error}")),
            Err(_) => crate::finding::skip("the first prompt is answered with an error"),
        }),
    }
}

async fn sessions_at_once(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    let (agent, one) = harness.session().await?;
    let other = agent.open().await?;
    let prompts = [agent.prompt_params(&one.id), agent.prompt_params(&other.id)];
    let mut ids = Vec::new();
    for prompt in prompts {
        ids.push(agent.send_request(PromptRequest::METHOD, prompt).await?);
    }
    for id in ids {
        if let Err(error) = agent.response(&id, "one of two prompts at once").await?.outcome {
            let saw = format!("one of two prompts at once is answered with {error}");
            return Ok(fail(saw).explained_by("prompt-answered"));
        }
    }
    Ok(pass("two turns at once are answered"))
}
