//! Lines as they really come: in pieces, with noise between them, long, and written in every way that
//! JSON allows.

use serde_json::{Value, json};

use super::bench::Bench;
use super::finding::{Check, Finding, Outcome, check, fail, page, pass};
use super::wire::request;

pub(super) const CHECKS: &[Check] = &[
    check!(
        "unparsable-line",
        Must,
        page::JSON_RPC,
        "A line that is no JSON costs that line only: the next request is answered.",
        unparsable_line
    ),
    check!("blank-lines", Should, page::TRANSPORTS, "Blank lines do no harm.", blank_lines),
    check!(
        "crlf",
        Must,
        page::JSON,
        "A line that ends with a carriage return and a line feed is read, since JSON allows white space.",
        crlf
    ),
    check!(
        "split-writes",
        Must,
        page::TRANSPORTS,
        "A message that arrives byte by byte is read.",
        split_writes
    ),
    check!(
        "coalesced-writes",
        Must,
        page::TRANSPORTS,
        "Messages that arrive in one piece are all read.",
        coalesced_writes
    ),
    check!(
        "any-json",
        Must,
        page::JSON,
        "Escapes, white space and another order of members make no difference.",
        any_json
    ),
    check!(
        "deep-json",
        Should,
        page::EXTENSIBILITY,
        "A message with 100 levels of nesting is answered, or refused, and does no harm.",
        deep_json
    ),
    check!(
        "big-line",
        Should,
        page::TRANSPORTS,
        "A message of 4 MiB, such as one with a picture, is answered, or refused, and does no harm.",
        big_line
    ),
];

/// Nobody has it, so that what is tried here has no effect.
const NOTHING: &str = "_duologue.dev/nothing";

async fn unparsable_line(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    agent.send(b"this is no JSON\n{\"jsonrpc\":\"2.0\",\"id\":\n").await?;
    agent.still_there("two lines that are no JSON").await?;
    Ok(pass("the next request is answered"))
}

async fn blank_lines(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    agent.send(b"\n  \n\n").await?;
    agent.still_there("blank lines").await?;
    Ok(pass("the next request is answered"))
}

async fn crlf(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let id = agent.new_id();
    let mut line = request(&id, NOTHING, &json!({}));
    line.pop();
    line.extend_from_slice(b"\r\n");
    agent.send(&line).await?;
    agent.answer(&id, "a request that ends with CR LF").await?;
    Ok(pass("answered"))
}

async fn split_writes(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let id = agent.new_id();
    // Characters of several bytes, so that some are cut in two.
    agent.send_slowly(&request(&id, NOTHING, &json!({"text": "é世界😀"}))).await?;
    agent.answer(&id, "a request that came byte by byte").await?;
    Ok(pass("answered"))
}

async fn coalesced_writes(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let ids = [agent.new_id(), agent.new_id(), agent.new_id()];
    let lines: Vec<u8> = ids.iter().flat_map(|id| request(id, NOTHING, &json!({}))).collect();
    agent.send(&lines).await?;
    for id in &ids {
        agent.answer(id, "one of three requests in one write").await?;
    }
    Ok(pass("three requests in one write are answered"))
}

async fn any_json(bench: &mut Bench) -> Outcome {
    let (agent, _) = bench.session().await?;
    let id = agent.new_id();
    let cwd = agent.folder()["cwd"].as_str().map(escaped).unwrap_or_default();
    let line = format!(
        "  {{ \"params\" :\t{{ \"mcpServers\" : [ ] , \"cwd\" : \"{cwd}\" }} , \
         \"\\u006dethod\" : \"session\\/\\u006eew\" , \"id\" : {id} , \"jsonrpc\" : \"2.0\" }} \n"
    );
    agent.send(line.as_bytes()).await?;
    match agent.answer(&id, "a request with escapes and white space").await?.outcome {
        Ok(_) => Ok(pass("session/new with escapes, white space and its id late works")),
        Err(refusal) => {
            // Unless it takes no more at all.
            agent.open().await?;
            Ok(fail(format!("the same session/new as always is answered with {refusal}")))
        }
    }
}

/// A string in which every character is an escape.
fn escaped(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

async fn deep_json(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let deep = (0..98).fold(json!("deep"), |inner, _| Value::Array(vec![inner]));
    let answer = agent.ask(NOTHING, json!({"_meta": deep})).await?;
    agent.still_there("100 levels of nesting").await?;
    Ok(pass(match answer.outcome {
        Ok(_) => "answered".into(),
        Err(refusal) => format!("{refusal}"),
    }))
}

async fn big_line(bench: &mut Bench) -> Outcome {
    let agent = bench.agent().await?;
    let answer = agent.ask(NOTHING, json!({"data": "A".repeat(4 * 1024 * 1024)})).await;
    let answer = answer.map_err(|finding| Finding {
        saw: "4 MiB in one line are not answered, or end the agent".into(),
        ..finding
    })?;
    agent.still_there("a line of 4 MiB").await?;
    Ok(pass(match answer.outcome {
        Ok(_) => "answered".into(),
        Err(refusal) => format!("{refusal}"),
    }))
}
