//! Invalid requests, and several requests at once.

use duologue_schema::{NewSessionRequest, PromptRequest, Request as _};
use serde_json::json;

use crate::finding::{Finding, Outcome, checks, fail, pass, warn};
use crate::harness::Harness;
use crate::raw_process::{ResponseFromAgent, notification, request};

checks! { "requests";
    "answer-id" => answer_id, Must, JSON_RPC,
        "The answer to a request has the id of the request, with the same type and value.";
    "unknown-method" => unknown_method, Must, JSON_RPC,
        "A request for an unknown method is answered with -32601.";
    "unknown-extension" => unknown_extension, Must, EXTENSIBILITY,
        "A request for an extension method it does not have (`_…`) is answered with -32601.";
    "unknown-notification" => unknown_notification, Must, JSON_RPC,
        "A notification it does not know is not answered, and does no harm.";
    "bad-params" => bad_params, Must, JSON_RPC,
        "Params of the wrong type are answered with an error (-32602), and the agent lives on.";
    "missing-params" => missing_params, Must, JSON_RPC,
        "A request without the params it needs is answered with an error, and the agent lives on.";
    "unknown-session" => unknown_session, Should, PROMPT_TURN,
        "A prompt for an unknown session is answered with an error.";
    "relative-cwd" => relative_cwd, Should, SESSION_SETUP,
        "A working directory that is not absolute is refused.";
    "requests-in-flight" => requests_in_flight, Must, SESSION_SETUP,
        "Each `session/new` makes a session with an id of its own, also when several are sent at once.";
}

async fn answer_id(harness: &mut Harness) -> Outcome {
    let response = harness.agent().await?.request("_duologue.dev/nothing", json!({})).await?;
    Ok(pass(format!("the answer has the id {}", response.id)))
}

async fn unknown_method(harness: &mut Harness) -> Outcome {
    let response = harness.agent().await?.request("no/such_method", json!({})).await?;
    Ok(not_found(&response))
}

async fn unknown_extension(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let response = agent.request("_duologue.dev/no_such_method", json!({"some": "params"})).await;
    // An agent with the same fault for all unknown methods has one fault.
    let finding = response.map(|response| not_found(&response)).unwrap_or_else(|finding| finding);
    Ok(finding.explained_by("unknown-method"))
}

fn not_found(response: &ResponseFromAgent) -> Finding {
    match &response.outcome {
        Err(error) if error.code == -32601 => pass("-32601"),
        Err(error) => fail(format!("answered with {error}, not with -32601")),
        Ok(result) => fail(format!("answered with a result: {result}")),
    }
}

async fn unknown_notification(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let start = agent.log().len();
    agent.notify("_duologue.dev/no_such_notification", json!({})).await?;
    agent.send(&notification("no/such_notification", &json!({}))).await?;
    agent.expect_alive("a notification it does not know").await?;
    agent.serve_in_quiet().await?;
    agent.expect_no_response(start)?;
    Ok(pass("no answer, and the next request is answered"))
}

async fn bad_params(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    let response = agent.request(NewSessionRequest::METHOD, json!({"cwd": 7, "mcpServers": []})).await?;
    let finding = refused(&response, "session/new with the number 7 as its cwd");
    agent.expect_alive("params of the wrong type").await?;
    Ok(finding)
}

async fn missing_params(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let id = agent.new_id();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"session/prompt\"}}\n");
    agent.send(line.as_bytes()).await?;
    let response = agent.response(&id, "session/prompt without params").await?;
    let finding = match refused(&response, "session/prompt without params") {
        // Some agents report missing params with another code.
        finding if finding.verdict == crate::finding::Verdict::Warn => pass(finding.saw),
        finding => finding,
    };
    agent.expect_alive("a request without params").await?;
    Ok(finding)
}

fn refused(response: &ResponseFromAgent, what: &str) -> Finding {
    match &response.outcome {
        Err(error) if error.code == -32602 => pass("-32602"),
        Err(error) => warn(format!("{what} is answered with {error}; -32602 says what is wrong")),
        Ok(result) => fail(format!("{what} is answered with a result: {result}")),
    }
}

async fn unknown_session(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let prompt = agent.prompt_params("no-such-session");
    match agent.request(PromptRequest::METHOD, prompt).await?.outcome {
        Err(error) => Ok(pass(format!("{error}"))),
        Ok(result) => Ok(fail(format!("the prompt is answered with a result: {result}"))),
    }
}

async fn relative_cwd(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    let params = json!({"cwd": "some/folder", "mcpServers": []});
    match agent.request(NewSessionRequest::METHOD, params).await?.outcome {
        Err(error) => Ok(pass(format!("{error}"))),
        Ok(_) => Ok(fail("a session was made in some/folder, wherever that is")),
    }
}

async fn requests_in_flight(harness: &mut Harness) -> Outcome {
    let (agent, first) = harness.session().await?;
    let params = agent.new_session_params();
    let ids = [agent.new_id(), agent.new_id(), agent.new_id()];
    for id in &ids {
        agent.send(&request(id, NewSessionRequest::METHOD, &params)).await?;
    }
    let mut sessions = vec![first.id];
    for id in &ids {
        match agent.response(id, "one of three requests at once").await?.outcome {
            Ok(result) => sessions.push(result["sessionId"].as_str().unwrap_or_default().to_owned()),
            Err(error) => {
                // It may only be out of sessions.
                agent.open().await?;
                return Ok(fail(format!("one of three session/new at once: {error}")));
            }
        }
    }
    sessions.sort();
    sessions.dedup();
    match sessions.len() {
        4 => Ok(pass("three session/new at once made three sessions")),
        _ => Ok(fail("several session/new were answered with the same session")),
    }
}
