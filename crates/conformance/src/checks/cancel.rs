//! Cancellation: the turn ends with the reason `cancelled`, and the session goes on.

use std::time::Duration;

use duologue_schema::{
    CancelNotification, CancelRequestNotification, Notification as _, PromptRequest, Request as _,
    RequestPermissionRequest,
};
use serde_json::json;
use tokio::time::Instant;

use super::turns::is_stop_reason;
use crate::finding::{Finding, Outcome, checks, fail, pass, skip, warn};
use crate::harness::{Agent, Harness, OpenSession};
use crate::raw_process::{
    ErrorFromAgent, FromAgent, ReadOutcome, ResponseFromAgent, notification, request, seconds,
};

checks! { "cancel";
    "cancel-ends-turn" => cancel_ends_turn, Must, CANCEL,
        "After `session/cancel` the prompt is answered with the stop reason `cancelled`.";
    "cancel-at-once" => cancel_at_once, Must, CANCEL,
        "A cancel right behind the prompt does not leave the prompt unanswered, and is no error.";
    "turn-after-cancel" => turn_after_cancel, Must, CANCEL,
        "A session whose turn was cancelled takes another prompt.";
    "cancel-without-turn" => cancel_without_turn, Must, CANCEL,
        "A cancel without a turn, or for an unknown session, is not answered and does no harm.";
    "permission-cancelled" => permission_cancelled, Must, CANCEL,
        "A turn that is cancelled while it asks for permission ends `cancelled`.";
    "cancel-request" => cancel_request, Must, CANCELLATION,
        "`$/cancel_request` for an unknown request is not answered and does no harm.";
}

/// The time to wait for the first update of a turn before it is cancelled.
const FIRST_WORDS: Duration = Duration::from_secs(2);

async fn cancel_ends_turn(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let (sent, response) = match cancelled_turn(agent, &opened).await? {
        Cancelled::TooLate => {
            return Ok(skip("the turn was over before it could be cancelled; set a slow prompt"));
        }
        Cancelled::Answered(sent, response) => (sent, response),
    };
    Ok(verdict(&response, sent, agent.waits.crossed))
}

enum Cancelled {
    TooLate,
    /// The time between the cancel and the response, and the response.
    Answered(Duration, ResponseFromAgent),
}

/// Runs a turn until its first update, cancels it, and waits for the response.
async fn cancelled_turn(agent: &mut Agent, opened: &OpenSession) -> Result<Cancelled, Finding> {
    let prompt = agent.slow_prompt_params(&opened.id);
    let id = agent.send_request(PromptRequest::METHOD, prompt).await?;
    let deadline = Instant::now() + FIRST_WORDS;
    loop {
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Notification(update))
                if update.params["sessionId"] == opened.id.as_str() =>
            {
                // Updates that only describe the session do not show that the turn has begun.
                let kind = update.params["update"]["sessionUpdate"].as_str().unwrap_or_default();
                if kind.ends_with("_chunk") || kind.starts_with("tool_call") || kind == "plan" {
                    break;
                }
            }
            ReadOutcome::Message(message) => agent.handle(message).await?,
            ReadOutcome::Timeout | ReadOutcome::End => break,
        }
        if agent.has_response(&id) {
            return Ok(Cancelled::TooLate);
        }
    }
    let sent = Instant::now();
    agent.cancel(&opened.id).await?;
    let response = agent.response(&id, "a prompt that was cancelled").await?;
    Ok(Cancelled::Answered(sent.elapsed(), response))
}

fn verdict(response: &ResponseFromAgent, after: Duration, crossed: Duration) -> Finding {
    match &response.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => pass("cancelled"),
        Ok(_) if after < crossed => {
            skip("the turn ended by itself at the moment it was cancelled; set a slow prompt")
        }
        Ok(result) => fail(format!(
            "answered with {} {} after the cancel",
            result["stopReason"],
            seconds(Duration::from_secs(after.as_secs()))
        )),
        Err(error) => refused(error),
    }
}

fn refused(error: &ErrorFromAgent) -> Finding {
    fail(format!("the cancelled prompt is answered with {error}")).explained_by("prompt-answered")
}

async fn cancel_at_once(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let id = agent.new_id();
    let mut lines = request(&id, PromptRequest::METHOD, &agent.slow_prompt_params(&opened.id));
    lines.extend(notification(CancelNotification::METHOD, &json!({"sessionId": opened.id})));
    agent.send(&lines).await?;
    let response = agent.response(&id, "a prompt that was cancelled at once").await;
    match response.map_err(|finding| finding.explained_by("cancel-ends-turn"))?.outcome {
        // The turn may have ended before the cancel arrived.
        Ok(result) => Ok(match &result["stopReason"] {
            reason if reason.as_str().is_some_and(is_stop_reason) => pass(format!("answered with {reason}")),
            other => fail(format!("answered with {other}, which is no stop reason")),
        }),
        Err(error) => Ok(refused(&error).explained_by("cancel-ends-turn")),
    }
}

async fn turn_after_cancel(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let first =
        cancelled_turn(agent, &opened).await.map_err(|_| skip("the cancelled turn is never answered"))?;
    if matches!(first, Cancelled::TooLate) {
        return Ok(skip("the turn was over before it could be cancelled; set a slow prompt"));
    }
    match agent.turn(&opened.id).await?.response.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => {
            Ok(fail("the turn after the cancelled one ends cancelled too"))
        }
        Ok(_) => Ok(pass("the next prompt is answered")),
        Err(error) => Ok(fail(format!("the next prompt is answered with {error}"))),
    }
}

async fn cancel_without_turn(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let start = agent.log().len();
    agent.cancel(&opened.id).await?;
    agent.cancel("no-such-session").await?;
    agent.expect_alive("a cancel without a turn").await?;
    agent.expect_no_response(start)?;
    harness.expect_turns()?;
    let agent = harness.agent().await?;
    match agent.turn(&opened.id).await?.response.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => {
            Ok(fail("a cancel from before the prompt ended its turn"))
        }
        Ok(_) => Ok(pass("no answer, and the next prompt runs")),
        Err(error) => Ok(warn(format!("no answer, but the next prompt is answered with {error}"))),
    }
}

async fn cancel_request(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let start = agent.log().len();
    agent.notify(CancelRequestNotification::METHOD, json!({"requestId": "an unknown request"})).await?;
    agent.expect_alive("a $/cancel_request").await?;
    agent.expect_no_response(start)?;
    Ok(pass("no answer, and the next request is answered"))
}

async fn permission_cancelled(harness: &mut Harness) -> Outcome {
    let (agent, opened) = harness.session().await?;
    let prompt = agent.permission_prompt_params(&opened.id);
    let id = agent.send_request(PromptRequest::METHOD, prompt).await?;
    let deadline = Instant::now() + agent.patience;
    let permission = loop {
        match agent.next(deadline).await {
            ReadOutcome::Message(FromAgent::Request(permission))
                if permission.method == RequestPermissionRequest::METHOD =>
            {
                break permission;
            }
            ReadOutcome::Message(message) => agent.handle(message).await?,
            ReadOutcome::Timeout | ReadOutcome::End => {
                harness.expect_turns()?;
                return Ok(skip("it neither asks for permission nor answers the prompt"));
            }
        }
        if agent.has_response(&id) {
            return Ok(match agent.response(&id, "a prompt for a permission request").await?.outcome {
                Err(error) => skip(format!(
                    "its turn failed before it asked for permission: {error}; the prompt is sent in several sessions"
                )),
                Ok(_) => skip("it does not ask for permission; set a permission prompt that makes it do so"),
            });
        }
    };
    agent.cancel(&opened.id).await?;
    agent.respond(&permission.id, Ok(json!({"outcome": {"outcome": "cancelled"}}))).await?;
    // The permission request is answered, so the response cannot have crossed the cancel.
    let response = agent.response(&id, "a prompt cancelled during a permission request").await;
    Ok(match response.map_err(|finding| finding.explained_by("cancel-ends-turn"))?.outcome {
        Ok(result) if result["stopReason"] == "cancelled" => pass("cancelled"),
        Ok(result) => {
            let saw = format!("answered with {}, not cancelled", result["stopReason"]);
            fail(saw).explained_by("cancel-ends-turn")
        }
        Err(error) => refused(&error).explained_by("cancel-ends-turn"),
    })
}
