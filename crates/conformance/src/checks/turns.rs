//! Turns: a prompt, what happens, an answer.

use duologue_transcript::{ParsedLine, Side, entries};
use serde_json::Value;

use super::bench::{Bench, QUIET};
use super::finding::{Check, Outcome, check, fail, page, pass, warn};

pub(super) const CHECKS: &[Check] = &[
    check!(
        "session-new",
        Must,
        page::SESSION_SETUP,
        "`session/new` in an absolute directory makes a session, or asks for a login.",
        session_new
    ),
    check!(
        "prompt-answered",
        Must,
        page::PROMPT_TURN,
        "`session/prompt` is answered with a stop reason.",
        prompt_answered
    ),
    check!("stop-reason", Must, page::PROMPT_TURN, "The stop reason is one of those there are.", stop_reason),
    check!(
        "updates-before-answer",
        Should,
        page::PROMPT_TURN,
        "What a turn says comes before the answer that ends it.",
        updates_before_answer
    ),
    check!("next-turn", Must, page::PROMPT_TURN, "After one turn a session takes another.", next_turn),
    check!(
        "sessions-at-once",
        Must,
        page::SESSION_SETUP,
        "Two sessions of one connection run turns at the same time.",
        sessions_at_once
    ),
];

async fn session_new(bench: &mut Bench) -> Outcome {
    let opened = bench.open().await?;
    if opened.id.is_empty() {
        return Ok(fail("the session's id is empty"));
    }
    Ok(pass("a session"))
}

async fn prompt_answered(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let answer = match agent.turn(&opened.id).await {
        Ok(turn) => turn.answer,
        Err(finding) => {
            bench.without_turn(&finding);
            return Err(finding);
        }
    };
    match answer.outcome {
        Ok(result) if result["stopReason"].is_string() => {
            Ok(pass(result["stopReason"].as_str().unwrap_or_default()))
        }
        Ok(result) => Ok(fail(format!("the answer has no stop reason: {result}"))),
        Err(refusal) => {
            Ok(warn(format!("the prompt is answered with {refusal}; choose another with --prompt")))
        }
    }
}

async fn stop_reason(bench: &mut Bench) -> Outcome {
    let (_, turn) = bench.after_turn().await?;
    let Ok(result) = turn.answer.outcome else {
        return Ok(super::finding::skip("the prompt is answered with an error"));
    };
    match result["stopReason"].as_str() {
        Some(reason) if is_stop_reason(reason) => Ok(pass(reason)),
        Some(reason) => Ok(fail(format!("{reason:?} is no stop reason"))),
        None => Ok(super::finding::skip("the answer has no stop reason")),
    }
}

/// Whether it is one of the reasons there are.
pub(super) fn is_stop_reason(reason: &str) -> bool {
    matches!(reason, "end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled")
}

async fn updates_before_answer(bench: &mut Bench) -> Outcome {
    bench.expect_turns()?;
    let (agent, opened) = bench.session().await?;
    let start = agent.tape().len();
    agent.turn(&opened.id).await.map_err(|finding| finding.needed("there is no turn"))?;
    agent.listen(QUIET * 2).await?;
    let records = agent.tape().since(start);
    let entries = entries(&records);
    let answered = entries.iter().position(|entry| {
        entry.from() == Side::Agent
            && entry.method() == Some("session/prompt")
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

/// Whether an update is what a turn says or does. Commands, modes, usage and titles come at any time.
fn belongs_to_turn(update: &Value) -> bool {
    matches!(
        update["sessionUpdate"].as_str(),
        Some("agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" | "tool_call")
    )
}

async fn next_turn(bench: &mut Bench) -> Outcome {
    let (agent, turn) = bench.after_turn().await?;
    match agent.turn(&turn.session).await?.answer.outcome {
        Ok(_) => Ok(pass("answered")),
        Err(refusal) => Ok(match turn.answer.outcome {
            Ok(_) => fail(format!("the second prompt is answered with {refusal}")),
            Err(_) => super::finding::skip("the first prompt is answered with an error"),
        }),
    }
}

async fn sessions_at_once(bench: &mut Bench) -> Outcome {
    bench.expect_turns()?;
    let (agent, one) = bench.session().await?;
    let other = agent.open().await?;
    let prompts = [agent.prompt(&one.id), agent.prompt(&other.id)];
    let mut ids = Vec::new();
    for prompt in prompts {
        ids.push(agent.post("session/prompt", prompt).await?);
    }
    for id in ids {
        if let Err(refusal) = agent.answer(&id, "one of two prompts at once").await?.outcome {
            let saw = format!("one of two prompts at once is answered with {refusal}");
            return Ok(fail(saw).explained_by("prompt-answered"));
        }
    }
    Ok(pass("two turns at once are answered"))
}
