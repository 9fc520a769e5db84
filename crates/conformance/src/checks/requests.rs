//! Requests that are wrong, or more than one.

use serde_json::json;

use super::bench::{Bench, QUIET};
use super::finding::{Check, Finding, Outcome, check, fail, page, pass, warn};
use super::wire::{Answer, notification, request};

pub(super) const CHECKS: &[Check] = &[
    check!(
        "answer-id",
        Must,
        page::JSON_RPC,
        "The answer to a request has the id of the request, with the same type and value.",
        answer_id
    ),
    check!(
        "unknown-method",
        Must,
        page::JSON_RPC,
        "A request for a method nobody has is answered with -32601.",
        unknown_method
    ),
    check!(
        "unknown-extension",
        Must,
        page::EXTENSIBILITY,
        "A request for an extension method it does not have (`_…`) is answered with -32601.",
        unknown_extension
    ),
    check!(
        "unknown-notification",
        Must,
        page::JSON_RPC,
        "A notification it does not know is not answered, and does no harm.",
        unknown_notification
    ),
    check!(
        "bad-params",
        Must,
        page::JSON_RPC,
        "Params of the wrong type are answered with an error (-32602), and the agent lives on.",
        bad_params
    ),
    check!(
        "missing-params",
        Must,
        page::JSON_RPC,
        "A request without the params it needs is answered with an error, and the agent lives on.",
        missing_params
    ),
    check!(
        "unknown-session",
        Should,
        page::PROMPT_TURN,
        "A prompt for a session that was never made is answered with an error.",
        unknown_session
    ),
    check!(
        "relative-cwd",
        Should,
        page::SESSION_SETUP,
        "A working directory that is not absolute is refused.",
        relative_cwd
    ),
    check!(
        "requests-in-flight",
        Must,
        page::SESSION_SETUP,
        "Each `session/new` makes a session with an id of its own, also when several are sent at once.",
        requests_in_flight
    ),
];

async fn answer_id(bench: &mut Bench) -> Outcome {
    let answer = bench.agent().await?.ask("_duologue.dev/nothing", json!({})).await?;
    Ok(pass(format!("the answer has the id {}", answer.id)))
}

async fn unknown_method(bench: &mut Bench) -> Outcome {
    let answer = bench.agent().await?.ask("no/such_method", json!({})).await?;
    Ok(not_found(&answer))
}

async fn unknown_extension(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let answer = agent.ask("_duologue.dev/no_such_method", json!({"some": "params"})).await;
    // An agent that answers every unknown method in the same wrong way has one fault.
    let finding = answer.map(|answer| not_found(&answer)).unwrap_or_else(|finding| finding);
    Ok(finding.explained_by("unknown-method"))
}

fn not_found(answer: &Answer) -> Finding {
    match &answer.outcome {
        Err(refusal) if refusal.code == -32601 => pass("-32601"),
        Err(refusal) => fail(format!("answered with {refusal}, not with -32601")),
        Ok(result) => fail(format!("answered with a result: {result}")),
    }
}

async fn unknown_notification(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let start = agent.tape().len();
    agent.notify("_duologue.dev/no_such_notification", json!({})).await?;
    agent.send(&notification("no/such_notification", &json!({}))).await?;
    agent.still_there("a notification it does not know").await?;
    agent.listen(QUIET).await?;
    agent.nothing_answered(start)?;
    Ok(pass("no answer, and the next request is answered"))
}

async fn bad_params(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    let answer = agent.ask("session/new", json!({"cwd": 7, "mcpServers": []})).await?;
    let finding = refused(&answer, "session/new with the number 7 as its cwd");
    agent.still_there("params of the wrong type").await?;
    Ok(finding)
}

async fn missing_params(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let id = agent.new_id();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"session/prompt\"}}\n");
    agent.send(line.as_bytes()).await?;
    let answer = agent.answer(&id, "session/prompt without params").await?;
    let finding = match refused(&answer, "session/prompt without params") {
        // A helper of its own may report a missing object in its own words.
        finding if finding.verdict == super::finding::Verdict::Warn => pass(finding.saw),
        finding => finding,
    };
    agent.still_there("a request without params").await?;
    Ok(finding)
}

fn refused(answer: &Answer, what: &str) -> Finding {
    match &answer.outcome {
        Err(refusal) if refusal.code == -32602 => pass("-32602"),
        Err(refusal) => warn(format!("{what} is answered with {refusal}; -32602 says what is wrong")),
        Ok(result) => fail(format!("{what} is answered with a result: {result}")),
    }
}

async fn unknown_session(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let prompt = agent.prompt("no-such-session");
    match agent.ask("session/prompt", prompt).await?.outcome {
        Err(refusal) => Ok(pass(format!("{refusal}"))),
        Ok(result) => Ok(fail(format!("the prompt is answered with a result: {result}"))),
    }
}

async fn relative_cwd(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    let params = json!({"cwd": "some/folder", "mcpServers": []});
    match agent.ask("session/new", params).await?.outcome {
        Err(refusal) => Ok(pass(format!("{refusal}"))),
        Ok(_) => Ok(fail("a session was made in some/folder, wherever that is")),
    }
}

async fn requests_in_flight(bench: &mut Bench) -> Outcome {
    let (agent, first) = bench.session().await?;
    let params = agent.folder();
    let ids = [agent.new_id(), agent.new_id(), agent.new_id()];
    for id in &ids {
        agent.send(&request(id, "session/new", &params)).await?;
    }
    let mut sessions = vec![first.id];
    for id in &ids {
        match agent.answer(id, "one of three requests at once").await?.outcome {
            Ok(result) => sessions.push(result["sessionId"].as_str().unwrap_or_default().to_owned()),
            Err(refusal) => {
                // Unless it takes no more at all.
                agent.open().await?;
                return Ok(fail(format!("one of three session/new at once: {refusal}")));
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
