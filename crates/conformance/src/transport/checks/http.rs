//! HTTP with SSE: the POST of a message, and the end of a connection.

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::finding::{Outcome, checks, fail, pass};
use crate::raw_process::seconds;
use crate::transport::harness::ServerHarness;
use crate::transport::http::{HttpConnection, JSON, of_connection, of_session};
use crate::transport::wire::{HttpAnswer, initialize, request};

/// The pause between two requests that wait for a change.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

checks! { server "http";
    "http-initialize" => http_initialize, Must, REMOTE,
        "A POST of `initialize` is answered with 200, its response as JSON, and the header `Acp-Connection-Id`.";
    "http-connection-ids" => http_connection_ids, Must, REMOTE,
        "Each connection has an id of its own.";
    "http-content-type" => http_content_type, Must, REMOTE,
        "A POST that is not `application/json` is answered with 415.";
    "http-not-json" => http_not_json, Should, REMOTE,
        "A body that is not JSON is refused with a status of 400 to 499.";
    "http-line-breaks" => http_line_breaks, Must, REMOTE,
        "The body is one message, which may have line breaks.";
    "http-batch" => http_batch, Must, REMOTE,
        "A batch is refused with 501 or 400.";
    "http-connection-missing" => http_connection_missing, Must, REMOTE,
        "A POST other than `initialize` without `Acp-Connection-Id` is answered with 400.";
    "http-connection-unknown" => http_connection_unknown, Must, REMOTE,
        "A POST with an unknown `Acp-Connection-Id` is answered with 404.";
    "http-accepted" => http_accepted, Must, REMOTE,
        "A POST of a message is answered with 202 and an empty body.";
    "http-session-mismatch" => http_session_mismatch, Must, REMOTE,
        "A POST whose `Acp-Session-Id` is not its `sessionId` is answered with 400, or the header is not compared.";
    "http-delete-missing" => http_delete_missing, Must, REMOTE,
        "A DELETE without `Acp-Connection-Id` is answered with 400.";
    "http-delete" => http_delete, Must, REMOTE,
        "A DELETE is answered with 202.";
    "http-deleted" => http_deleted, Must, REMOTE,
        "A DELETE ends the connection: its id is unknown then.";
}

async fn http_initialize(harness: &mut ServerHarness) -> Outcome {
    let answer = harness.wire.request("POST", &[JSON], &initialize().to_string()).await?;
    harness.register(answer.connection_id.clone());
    let connection = HttpConnection::of(&harness.wire, &answer)?;
    let info = &connection.initialized["agentInfo"];
    let name = info["name"].as_str().unwrap_or("an agent without a name");
    Ok(pass(format!("{name} {}", info["version"].as_str().unwrap_or_default()).trim_end()))
}

async fn http_connection_ids(harness: &mut ServerHarness) -> Outcome {
    let (first, second) = (harness.http().await?, harness.http().await?);
    if first.id == second.id {
        return Ok(fail(format!("two connections have the id {}", first.id)));
    }
    Ok(pass(format!("{} and {}", first.id, second.id)))
}

/// Compares the status of an answer.
fn expect(answer: &HttpAnswer, expected: &[u16]) -> Outcome {
    if expected.contains(&answer.status) {
        return Ok(pass(format!("status {}", answer.status)));
    }
    let expected: Vec<String> = expected.iter().map(u16::to_string).collect();
    Ok(fail(format!("{}, not {}", answer.shown(), expected.join(" or "))))
}

async fn http_content_type(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    for headers in [&[("Content-Type", "text/plain")][..], &[]] {
        let answer = harness.wire.request("POST", headers, &initialize().to_string()).await?;
        harness.register(answer.connection_id.clone());
        let expected = expect(&answer, &[415])?;
        if answer.status != 415 {
            return Ok(expected);
        }
    }
    Ok(pass("status 415 for text/plain and for no type"))
}

async fn http_not_json(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    let answer =
        harness.wire.request("POST", &[JSON, of_connection(&connection.id)], "{\"jsonrpc\":").await?;
    match answer.status {
        400..=499 => Ok(pass(format!("status {}", answer.status))),
        _ => Ok(fail(answer.shown())),
    }
}

async fn http_line_breaks(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    let body = format!("{:#}\r\n", initialize());
    let answer = harness.wire.request("POST", &[JSON], &body).await?;
    harness.register(answer.connection_id.clone());
    HttpConnection::of(&harness.wire, &answer)?;
    Ok(pass("`initialize` in several lines is answered"))
}

async fn http_batch(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    let batch = json!([request(1, "_duologue.dev/nothing", &json!({}))]);
    expect(&connection.post(None, &batch).await?, &[400, 501])
}

async fn http_connection_missing(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    let message = request(1, "_duologue.dev/nothing", &json!({})).to_string();
    expect(&harness.wire.request("POST", &[JSON], &message).await?, &[400])
}

async fn http_connection_unknown(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    let message = request(1, "_duologue.dev/nothing", &json!({})).to_string();
    let headers = [JSON, of_connection("00000000-0000-0000-0000-000000000000")];
    expect(&harness.wire.request("POST", &headers, &message).await?, &[404])
}

async fn http_accepted(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    for message in [
        request(1, "_duologue.dev/nothing", &json!({})),
        json!({"jsonrpc": "2.0", "method": "_duologue.dev/nothing", "params": {}}),
    ] {
        let answer = connection.post(None, &message).await?;
        if answer.status != 202 {
            return expect(&answer, &[202]);
        }
        if !answer.body.is_empty() {
            return Ok(fail(format!("the answer has a body: {}", answer.shown())));
        }
    }
    Ok(pass("status 202 for a request and for a notification"))
}

async fn http_session_mismatch(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    let message = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "one"}});
    let headers = [JSON, of_connection(&connection.id), of_session("another")];
    let answer = harness.wire.request("POST", &headers, &message.to_string()).await?;
    // Servers that look for the session of the header first do not find it.
    expect(&answer, &[400, 404, 403, 202]).map(|finding| finding.explained_by("http-accepted"))
}

async fn http_delete_missing(harness: &mut ServerHarness) -> Outcome {
    harness.needs("http-initialize")?;
    expect(&harness.wire.request("DELETE", &[], "").await?, &[400])
}

async fn http_delete(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    expect(&harness.wire.request("DELETE", &[of_connection(&connection.id)], "").await?, &[202])
}

async fn http_deleted(harness: &mut ServerHarness) -> Outcome {
    let connection = harness.http().await?;
    let answer = harness.wire.request("DELETE", &[of_connection(&connection.id)], "").await?;
    if !matches!(answer.status, 200..=299) {
        return Ok(fail(format!("DELETE is answered with {}", answer.shown())).explained_by("http-delete"));
    }
    // The answer says that the request was accepted, not that it is done.
    let deadline = Instant::now() + harness.wire.patience;
    loop {
        let message = json!({"jsonrpc": "2.0", "method": "_duologue.dev/nothing"});
        let answer = connection.post(None, &message).await?;
        match answer.status {
            404 => return Ok(pass("status 404 after it")),
            400..=499 => {
                return Ok(fail(format!("{} after it, not 404", answer.shown()))
                    .explained_by("http-connection-unknown"));
            }
            _ if Instant::now() > deadline => {
                let limit = seconds(harness.wire.patience);
                return Ok(fail(format!(
                    "a message is answered with {} for {limit} after it",
                    answer.shown()
                )));
            }
            _ => sleep(PAUSE).await,
        }
    }
}
