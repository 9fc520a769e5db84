//! HTTP with SSE: the streams of a connection and of its sessions.

use serde_json::json;
use tokio::time::Instant;

use crate::finding::{Outcome, checks, fail, pass, skip};
use crate::harness::QUIET;
use crate::raw_process::seconds;
use crate::transport::harness::{AgentCalls as _, ServerHarness, response_text};
use crate::transport::http::{NextEvent, STREAM, of_connection};
use crate::transport::wire::{is_response_to, session_of};

checks! { server "events";
    "sse-accept" => sse_accept, Must, REMOTE,
        "A GET without `Accept: text/event-stream` is answered with 406.";
    "sse-connection-missing" => sse_connection_missing, Must, REMOTE,
        "A GET without `Acp-Connection-Id` is answered with 400.";
    "sse-connection-unknown" => sse_connection_unknown, Must, REMOTE,
        "A GET with an unknown `Acp-Connection-Id` is answered with 404.";
    "sse-opens" => sse_opens, Must, REMOTE,
        "A GET with the id of the connection opens its stream: 200 and `text/event-stream`.";
    "sse-connection-answers" => sse_connection_answers, Must, REMOTE,
        "The stream of the connection has the answers that belong to no session, as one event with one message.";
    "sse-session-answers" => sse_session_answers, Must, REMOTE,
        "The stream of a session has its updates, and behind them the answer to its prompt, once.";
    "sse-session-only" => sse_session_only, Must, REMOTE,
        "The messages of a session are on its own stream and on no other one.";
    "sse-agent-request" => sse_agent_request, Must, REMOTE,
        "The answer to a request of the agent is accepted with 202 if it has the headers of its session.";
    "sse-session-unknown" => sse_session_unknown, Must, REMOTE,
        "A GET of an unknown session opens a stream, or is answered with 404 or 403.";
    "sse-second" => sse_second, Must, REMOTE,
        "A second GET of an open stream is answered with 409 or with a stream, and the connection goes on.";
    "sse-deleted" => sse_deleted, Should, REMOTE,
        "A DELETE ends the streams of its connection.";
}

async fn sse_accept(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    let headers = [of_connection(&connection.id), ("Accept", "application/json")];
    let answer = harness.wire.request("GET", &headers, "").await?;
    match answer.status {
        406 => Ok(pass("status 406")),
        _ => Ok(fail(format!("{}, not 406", answer.shown()))),
    }
}

async fn sse_connection_missing(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    let answer = harness.wire.request("GET", &[STREAM], "").await?;
    match answer.status {
        400 => Ok(pass("status 400")),
        _ => Ok(fail(format!("{}, not 400", answer.shown()))),
    }
}

async fn sse_connection_unknown(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    let headers = [STREAM, of_connection("00000000-0000-0000-0000-000000000000")];
    let answer = harness.wire.request("GET", &headers, "").await?;
    match answer.status {
        404 => Ok(pass("status 404")),
        _ => Ok(fail(format!("{}, not 404", answer.shown()))),
    }
}

async fn sse_opens(harness: &mut ServerHarness) -> Outcome {
    let mut connection = harness.http().await?;
    connection.open_stream().await?;
    Ok(pass("the stream is open"))
}

async fn sse_connection_answers(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-opens")?;
    let mut connection = harness.http().await?;
    connection.open_stream().await?;
    let response = connection.call("_duologue.dev/nothing", &json!({})).await.map_err(|mut finding| {
        finding.causes.retain(|cause| *cause != "sse-connection-answers");
        finding
    })?;
    Ok(pass(format!("an unknown method is answered with {}", response_text(&response))))
}

async fn sse_session_answers(harness: &mut ServerHarness) -> Outcome {
    let mut session = harness.http_session().await.map_err(without_own_cause)?;
    let prompt = harness.settings.prompt.clone();
    let turn = session.turn(&prompt).await?;
    let Some(place) = turn.response else {
        // It may be on the other stream.
        if let Some(stream) = &mut session.connection.stream {
            while let NextEvent::Event(event) = stream.next(Instant::now() + QUIET).await? {
                if is_response_to(&event.message, turn.prompt) {
                    return Ok(fail("the answer to the prompt is on the stream of the connection"));
                }
            }
        }
        if turn.has_ended {
            return Ok(fail("the stream of the session ended before the answer to the prompt"));
        }
        let limit = seconds(harness.wire.patience);
        return Ok(fail(format!("the prompt is not answered on the stream of its session within {limit}")));
    };
    if let Some(error) =
        turn.events.get(place).map(|event| &event.message).filter(|message| message["error"].is_object())
    {
        return Ok(harness.no_turn(&format!("the prompt is answered with {}", response_text(error))));
    }
    let updates = turn.events.iter().filter(|event| event.message["method"] == "session/update").count();
    // Nothing of the turn follows its answer, and no second answer.
    while let NextEvent::Event(event) = session.stream.next(Instant::now() + QUIET).await? {
        if is_response_to(&event.message, turn.prompt) {
            return Ok(fail("the prompt is answered twice"));
        }
    }
    Ok(pass(format!("the answer, behind {}", crate::harness::plural(updates, "update"))))
}

/// Removes a cause that is the check itself.
fn without_own_cause(mut finding: crate::finding::Finding) -> crate::finding::Finding {
    finding.causes.retain(|cause| *cause != "sse-session-answers");
    finding
}

async fn sse_session_only(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-session-answers")?;
    let mut first = harness.http_session().await?;
    // A second session on the same connection.
    let params = json!({"cwd": harness.settings.folder, "mcpServers": []});
    let response = first.connection.call("session/new", &params).await?;
    let Some(second) = response["result"]["sessionId"].as_str().map(str::to_owned) else {
        let shown = response_text(&response);
        return Ok(skip(format!("a second session is answered with {shown}")));
    };
    let mut other = first.connection.stream_of(&second).await?;
    let prompt = harness.settings.prompt.clone();
    let turn = first.turn(&prompt).await?;
    let stray = turn.events.iter().find(|event| session_of(&event.message).is_some_and(|id| id != first.id));
    if let Some(stray) = stray {
        return Ok(fail(format!(
            "a message of the session {:?} is on the stream of another one",
            session_of(&stray.message)
        )));
    }
    let mut connection = first.connection.stream.take();
    let streams = [("another session", Some(&mut other)), ("the connection", connection.as_mut())];
    for (name, stream) in streams {
        let Some(stream) = stream else { continue };
        while let NextEvent::Event(event) = stream.next(Instant::now() + QUIET).await? {
            let is_update = session_of(&event.message) == Some(&first.id);
            if is_update || is_response_to(&event.message, turn.prompt) {
                return Ok(fail(format!("a message of the session is on the stream of {name}")));
            }
        }
    }
    Ok(pass(format!("{} on the session's own stream", crate::harness::plural(turn.events.len(), "message"))))
}

async fn sse_agent_request(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-session-answers")?;
    let mut session = harness.http_session().await?;
    let prompt = harness.settings.prompt.clone();
    let turn = session.turn(&prompt).await?;
    match turn.replies.iter().find(|reply| reply.status != 202) {
        Some(reply) => Ok(fail(format!("the answer is answered with {}, not 202", reply.shown()))),
        None if turn.replies.is_empty() => Ok(skip("the agent requests nothing in this turn (--prompt)")),
        None if turn.response.is_none() => Ok(fail("the turn does not go on after the answer")),
        None => Ok(pass("status 202, and the turn goes on")),
    }
}

async fn sse_session_unknown(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-opens")?;
    let connection = harness.http().await?;
    match connection.request_stream(Some("no-such-session"), &[]).await? {
        Ok(_) => Ok(pass("a stream is opened")),
        Err(answer) if matches!(answer.status, 403 | 404) => Ok(pass(format!("status {}", answer.status))),
        Err(answer) => Ok(fail(answer.shown())),
    }
}

async fn sse_second(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-connection-answers")?;
    let mut connection = harness.http().await?;
    connection.open_stream().await?;
    let saw = match connection.request_stream(None, &[]).await? {
        Err(answer) if answer.status == 409 => "status 409",
        Err(answer) => return Ok(fail(format!("{}, not 409", answer.shown()))),
        Ok(second) => {
            // Servers that have both or replace the older one serve the newer one.
            connection.stream = Some(second);
            return Ok(pass("a second stream is opened"));
        }
    };
    connection.call("_duologue.dev/nothing", &json!({})).await?;
    Ok(pass(format!("{saw}, and the first stream goes on")))
}

async fn sse_deleted(harness: &mut ServerHarness) -> Outcome {
    harness.needs("sse-connection-answers")?;
    harness.needs("http-deleted")?;
    let mut connection = harness.http().await?;
    connection.open_stream().await?;
    harness.wire.request("DELETE", &[of_connection(&connection.id)], "").await?;
    let Some(stream) = &mut connection.stream else { return Ok(skip("there is no stream")) };
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        match stream.next(deadline).await? {
            NextEvent::Event(_) => {}
            NextEvent::End => return Ok(pass("the stream ends")),
            NextEvent::Quiet => {
                let limit = seconds(harness.wire.patience);
                return Ok(fail(format!("the stream is open {limit} after it")));
            }
        }
    }
}
