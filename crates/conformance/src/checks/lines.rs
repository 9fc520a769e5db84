//! Lines in pieces, with noise between them, very long, and with unusual but valid JSON.

use serde_json::{Value, json};

use crate::finding::{Finding, Outcome, checks, fail, pass};
use crate::harness::Harness;
use crate::raw_process::request;

checks! { "lines";
    "unparsable-line" => unparsable_line, Must, JSON_RPC,
        "A line that is no JSON costs that line only: the next request is answered.";
    "blank-lines" => blank_lines, Should, TRANSPORTS,
        "Blank lines do no harm.";
    "crlf" => crlf, Must, JSON,
        "A line that ends with a carriage return and a line feed is read, since JSON allows white space.";
    "split-writes" => split_writes, Must, TRANSPORTS,
        "A message that arrives byte by byte is read.";
    "coalesced-writes" => coalesced_writes, Must, TRANSPORTS,
        "Messages that arrive in one piece are all read.";
    "any-json" => any_json, Must, JSON,
        "Escapes, white space and another order of members make no difference.";
    "deep-json" => deep_json, Should, EXTENSIBILITY,
        "A message with 100 levels of nesting is answered, or refused, and does no harm.";
    "big-line" => big_line, Should, TRANSPORTS,
        "A message of 4 MiB, such as one with a picture, is answered, or refused, and does no harm.";
}

/// A method that no agent implements, so that the requests have no effect.
const NOTHING: &str = "_duologue.dev/nothing";

async fn unparsable_line(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    agent.send(b"this is no JSON\n{\"jsonrpc\":\"2.0\",\"id\":\n").await?;
    agent.expect_alive("two lines that are no JSON").await?;
    Ok(pass("the next request is answered"))
}

async fn blank_lines(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    agent.send(b"\n  \n\n").await?;
    agent.expect_alive("blank lines").await?;
    Ok(pass("the next request is answered"))
}

async fn crlf(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let id = agent.new_id();
    let mut line = request(&id, NOTHING, &json!({}));
    line.pop();
    line.extend_from_slice(b"\r\n");
    agent.send(&line).await?;
    agent.response(&id, "a request that ends with CR LF").await?;
    Ok(pass("answered"))
}

async fn split_writes(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let id = agent.new_id();
    // Characters of several bytes, so that some are split.
    agent.send_slowly(&request(&id, NOTHING, &json!({"text": "é世界😀"}))).await?;
    agent.response(&id, "a request that came byte by byte").await?;
    Ok(pass("answered"))
}

async fn coalesced_writes(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let ids = [agent.new_id(), agent.new_id(), agent.new_id()];
    let lines: Vec<u8> = ids.iter().flat_map(|id| request(id, NOTHING, &json!({}))).collect();
    agent.send(&lines).await?;
    for id in &ids {
        agent.response(id, "one of three requests in one write").await?;
    }
    Ok(pass("three requests in one write are answered"))
}

async fn any_json(harness: &mut Harness) -> Outcome {
    let (agent, _) = harness.session().await?;
    let id = agent.new_id();
    let cwd = agent.new_session_params()["cwd"].as_str().map(escaped).unwrap_or_default();
    let line = format!(
        "  {{ \"params\" :\t{{ \"mcpServers\" : [ ] , \"cwd\" : \"{cwd}\" }} , \
         \"\\u006dethod\" : \"session\\/\\u006eew\" , \"id\" : {id} , \"jsonrpc\" : \"2.0\" }} \n"
    );
    agent.send(line.as_bytes()).await?;
    match agent.response(&id, "a request with escapes and white space").await?.outcome {
        Ok(_) => Ok(pass("session/new with escapes, white space and its id late works")),
        Err(error) => {
            // It may only be out of sessions.
            agent.open().await?;
            Ok(fail(format!("the same session/new as always is answered with {error}")))
        }
    }
}

/// Returns a string with every character escaped.
fn escaped(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

async fn deep_json(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let deep = (0..98).fold(json!("deep"), |inner, _| Value::Array(vec![inner]));
    let response = agent.request(NOTHING, json!({"_meta": deep})).await?;
    agent.expect_alive("100 levels of nesting").await?;
    Ok(pass(match response.outcome {
        Ok(_) => "answered".into(),
        Err(error) => format!("{error}"),
    }))
}

async fn big_line(harness: &mut Harness) -> Outcome {
    let agent = harness.agent().await?;
    let response = agent.request(NOTHING, json!({"data": "A".repeat(4 * 1024 * 1024)})).await;
    let response = response.map_err(|finding| Finding {
        saw: "4 MiB in one line are not answered, or end the agent".into(),
        ..finding
    })?;
    agent.expect_alive("a line of 4 MiB").await?;
    Ok(pass(match response.outcome {
        Ok(_) => "answered".into(),
        Err(error) => format!("{error}"),
    }))
}
