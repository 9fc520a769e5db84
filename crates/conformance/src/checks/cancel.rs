//! Cancelling: the turn ends, with the reason `cancelled`, and the session goes on.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::bench::{Agent, Bench, Opened};
use super::finding::{Check, Finding, Outcome, check, fail, page, pass, skip, warn};
use super::turns::is_stop_reason;
use super::wire::{Answer, Next, Refusal, Seen, notification, request, seconds};

pub(super) const CHECKS: &[Check] = &[
    check!(
        "cancel-ends-turn",
        Must,
        page::CANCEL,
        "After `session/cancel` the prompt is answered with the stop reason `cancelled`.",
        cancel_ends_turn
    ),
    check!(
        "cancel-at-once",
        Must,
        page::CANCEL,
        "A cancel right behind the prompt does not leave the prompt unanswered, and is no error.",
        cancel_at_once
    ),
    check!(
        "turn-after-cancel",
        Must,
        page::CANCEL,
        "A session whose turn was cancelled takes another prompt.",
        turn_after_cancel
    ),
    check!(
        "cancel-without-turn",
        Must,
        page::CANCEL,
        "A cancel without a turn, or for a session nobody made, is not answered and does no harm.",
        cancel_without_turn
    ),
    check!(
        "permission-cancelled",
        Must,
        page::CANCEL,
        "A turn that is cancelled while it asks for permission ends `cancelled`.",
        permission_cancelled
    ),
    check!(
        "cancel-request",
        Must,
        page::CANCELLATION,
        "`$/cancel_request` for a request nobody made is not answered and does no harm.",
        cancel_request
    ),
];

/// How long a turn may take to say something before it is cancelled.
const FIRST_WORDS: Duration = Duration::from_secs(2);
/// An answer that comes this soon may have been on its way.
const CROSSED: Duration = Duration::from_secs(1);

async fn cancel_ends_turn(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let (sent, answer) = match cancelled_turn(agent, &opened).await? {
        Cancelled::TooLate => {
            return Ok(skip("the turn was over before it could be cancelled; give a longer --prompt"));
        }
        Cancelled::Answered(sent, answer) => (sent, answer),
    };
    Ok(verdict(&answer, sent))
}

enum Cancelled {
    TooLate,
    /// How long after the cancel it was answered, and what.
    Answered(Duration, Answer),
}

/// Runs a turn until it says something, cancels it, and waits for the answer.
async fn cancelled_turn(agent: &mut Agent, opened: &Opened) -> Result<Cancelled, Finding> {
    let prompt = agent.prompt(&opened.id);
    let id = agent.post("session/prompt", prompt).await?;
    let deadline = Instant::now() + FIRST_WORDS;
    loop {
        match agent.next(deadline).await {
            Next::Seen(Seen::Notification(told)) if told.params["sessionId"] == opened.id.as_str() => {
                // What only describes the session is no sign that the turn has begun.
                let kind = told.params["update"]["sessionUpdate"].as_str().unwrap_or_default();
                if kind.ends_with("_chunk") || kind.starts_with("tool_call") || kind == "plan" {
                    break;
                }
            }
            Next::Seen(Seen::Request(asked)) => agent.serve(&asked).await?,
            Next::Seen(Seen::Answer(answer)) => agent.keep(answer),
            Next::Seen(_) => {}
            Next::Silence | Next::End => break,
        }
        if agent.has_answer(&id) {
            return Ok(Cancelled::TooLate);
        }
    }
    let sent = Instant::now();
    agent.cancel(&opened.id).await?;
    let answer = agent.answer(&id, "a prompt that was cancelled").await?;
    Ok(Cancelled::Answered(sent.elapsed(), answer))
}

fn verdict(answer: &Answer, after: Duration) -> Finding {
    match &answer.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => pass("cancelled"),
        Ok(_) if after < CROSSED => {
            skip("the turn ended by itself at the moment it was cancelled; give a longer --prompt")
        }
        Ok(result) => fail(format!(
            "answered with {} {} after the cancel",
            result["stopReason"],
            seconds(Duration::from_secs(after.as_secs()))
        )),
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: &Refusal) -> Finding {
    fail(format!("the cancelled prompt is answered with {refusal}")).explained_by("prompt-answered")
}

async fn cancel_at_once(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let id = agent.new_id();
    let mut lines = request(&id, "session/prompt", &agent.prompt(&opened.id));
    lines.extend(notification("session/cancel", &json!({"sessionId": opened.id})));
    agent.send(&lines).await?;
    let answer = agent.answer(&id, "a prompt that was cancelled at once").await;
    match answer.map_err(|finding| finding.explained_by("cancel-ends-turn"))?.outcome {
        // It may have been over before the cancel came.
        Ok(result) => Ok(match &result["stopReason"] {
            reason if reason.as_str().is_some_and(is_stop_reason) => pass(format!("answered with {reason}")),
            other => fail(format!("answered with {other}, which is no stop reason")),
        }),
        Err(refusal) => Ok(refused(&refusal).explained_by("cancel-ends-turn")),
    }
}

async fn turn_after_cancel(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let first =
        cancelled_turn(agent, &opened).await.map_err(|_| skip("the cancelled turn is never answered"))?;
    if matches!(first, Cancelled::TooLate) {
        return Ok(skip("the turn was over before it could be cancelled; give a longer --prompt"));
    }
    match agent.turn(&opened.id).await?.answer.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => {
            Ok(fail("the turn after the cancelled one ends cancelled too"))
        }
        Ok(_) => Ok(pass("the next prompt is answered")),
        Err(refusal) => Ok(fail(format!("the next prompt is answered with {refusal}"))),
    }
}

async fn cancel_without_turn(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let start = agent.tape().len();
    agent.cancel(&opened.id).await?;
    agent.cancel("no-such-session").await?;
    agent.still_there("a cancel without a turn").await?;
    agent.nothing_answered(start)?;
    bench.expect_turns()?;
    let agent = bench.agent().await?;
    match agent.turn(&opened.id).await?.answer.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => {
            Ok(fail("a cancel from before the prompt ended its turn"))
        }
        Ok(_) => Ok(pass("no answer, and the next prompt runs")),
        Err(refusal) => Ok(warn(format!("no answer, but the next prompt is answered with {refusal}"))),
    }
}

async fn cancel_request(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let start = agent.tape().len();
    agent.notify("$/cancel_request", json!({"requestId": "nobody asked this"})).await?;
    agent.still_there("a $/cancel_request").await?;
    agent.nothing_answered(start)?;
    Ok(pass("no answer, and the next request is answered"))
}

async fn permission_cancelled(bench: &mut Bench) -> Outcome {
    let (agent, opened) = bench.session().await?;
    let prompt = agent.prompt(&opened.id);
    let id = agent.post("session/prompt", prompt).await?;
    let deadline = Instant::now() + agent.patience;
    let asked = loop {
        match agent.next(deadline).await {
            Next::Seen(Seen::Request(asked)) if asked.method == "session/request_permission" => break asked,
            Next::Seen(Seen::Request(asked)) => agent.serve(&asked).await?,
            Next::Seen(Seen::Answer(answer)) => agent.keep(answer),
            Next::Seen(_) => {}
            Next::Silence | Next::End => {
                bench.expect_turns()?;
                return Ok(skip("it neither asks for permission nor answers the prompt"));
            }
        }
        if agent.has_answer(&id) {
            return Ok(skip("it does not ask for permission; give a --prompt that makes it"));
        }
    };
    agent.cancel(&opened.id).await?;
    agent.respond(&asked.id, Ok(json!({"outcome": {"outcome": "cancelled"}}))).await?;
    // The question is answered, so nothing is on its way: there is no crossing here.
    let answer = agent.answer(&id, "a prompt cancelled at a question").await;
    Ok(match answer.map_err(|finding| finding.explained_by("cancel-ends-turn"))?.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => pass("cancelled"),
        Ok(result) => {
            let saw = format!("answered with {}, not cancelled", result["stopReason"]);
            fail(saw).explained_by("cancel-ends-turn")
        }
        Err(refusal) => refused(&refusal).explained_by("cancel-ends-turn"),
    })
}
