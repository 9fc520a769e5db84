//! Lines nobody should send, and what they are answered: tables in `hostile/`, one case a line.
//!
//! `line` is text or a list of parts: text, bytes as numbers, `{"times": n, "of": text}`; a newline
//! is added and `$SESSION` filled in. `agent` and `client` are the answers of our agent and of our
//! client, `[code, id]` or `["result", id]`, in order unless `unordered`. `updates` is what the
//! client's user sees of it. `fresh` cases run before `initialize`. After each case a question must
//! be answered.

mod floods;

use duologue_client::{Client, Turn};
use serde_json::{Value, json};

use duologue_test_support::{PATIENCE, ScriptedPeer, Wire, client_of, in_time};

const AGENT: &str = env!("CARGO_BIN_EXE_echo-agent-under-test");

struct Case {
    name: String,
    line: Value,
    answers: Vec<Value>,
    unordered: bool,
    fresh: bool,
    updates: usize,
}

fn cases(table: &str, side: &str) -> Vec<Case> {
    let case = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        Case {
            name: row["case"].as_str().expect("a name").to_owned(),
            line: row["line"].clone(),
            answers: row[side].as_array().expect("answers").iter().map(expanded).collect(),
            unordered: row["unordered"] == true,
            fresh: row["state"] == "fresh",
            updates: row["updates"].as_u64().unwrap_or_default() as usize,
        }
    };
    table.lines().map(case).collect()
}

/// Answers may hold long ids.
fn expanded(answer: &Value) -> Value {
    match &answer[1] {
        id @ Value::Object(_) => {
            json!([answer[0], String::from_utf8(bytes(&json!([id]), "")).expect("text")])
        }
        _ => answer.clone(),
    }
}

fn bytes(line: &Value, session: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice) {
        match part {
            Value::String(text) => bytes.extend(text.replace("$SESSION", session).bytes()),
            Value::Number(byte) => bytes.push(u8::try_from(byte.as_u64().expect("a byte")).expect("a byte")),
            repeated => {
                let times = usize::try_from(repeated["times"].as_u64().expect("a number")).expect("small");
                let of = repeated["of"].as_str().expect("text").replace("$SESSION", session);
                bytes.extend(of.repeat(times).bytes());
            }
        }
    }
    bytes
}

/// The part of an answer that the tables speak of.
fn shown(answer: &Value) -> Value {
    let what = if answer.get("result").is_some() { json!("result") } else { answer["error"]["code"].clone() };
    json!([what, answer["id"]])
}

/// Writes a line and a question behind it, and returns the answers to the line.
async fn put(peer: &mut ScriptedPeer, line: &[u8], expected: usize) -> Vec<Value> {
    let mut out = line.to_vec();
    out.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":\"probe\",\"method\":\"_probe\"}\n");
    peer.write(out).await;
    let (mut answers, mut is_probed) = (Vec::new(), false);
    while !is_probed || answers.len() < expected {
        let message = peer.next_message().await;
        if message["id"] == "probe" {
            is_probed = true;
        } else if message.get("method").is_none() {
            assert!(message.to_string().len() < 100_000 + line.len() / 2, "an answer of absurd length");
            answers.push(shown(&message));
        }
    }
    // Whatever else it wants to say comes before the answer to one question more.
    let id = peer.send_request("_probe", json!({})).await;
    loop {
        let message = peer.next_message().await;
        if message["id"] == id {
            return answers;
        }
        if message.get("method").is_none() {
            answers.push(shown(&message));
        }
    }
}

/// Runs one case; what is wrong comes back as text.
async fn check(peer: &mut ScriptedPeer, case: &Case, session: &str) -> Result<(), String> {
    let line = bytes(&case.line, session);
    let outcome = tokio::time::timeout(PATIENCE, put(peer, &line, case.answers.len())).await;
    let Ok(mut answers) = outcome else {
        return Err(format!("{}: too few answers", case.name));
    };
    let mut expected = case.answers.clone();
    if case.unordered {
        answers.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
    }
    if answers != expected {
        return Err(format!("{}: {} instead of {}", case.name, json!(answers), json!(expected)));
    }
    Ok(())
}

struct Agent {
    child: tokio::process::Child,
    wire: ScriptedPeer,
}

fn agent() -> Agent {
    use std::process::Stdio;
    let mut child = tokio::process::Command::new(AGENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("an agent");
    let (stdout, stdin) = (child.stdout.take().expect("stdout"), child.stdin.take().expect("stdin"));
    Agent { child, wire: ScriptedPeer::new(stdout, stdin) }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_agent_answers_hostile_lines() {
    in_time(async {
        let mut cases: Vec<Case> = cases(include_str!("../hostile/lines.jsonl"), "agent");
        cases.extend(self::cases(include_str!("../hostile/agent.jsonl"), "agent"));
        let mut faults = Vec::new();
        let mut agent = self::agent();
        agent.wire.initialize(json!({})).await;
        let session = agent.wire.new_session().await;
        for case in &cases {
            let outcome = if case.fresh {
                check(&mut self::agent().wire, case, "").await
            } else {
                check(&mut agent.wire, case, &session).await
            };
            faults.extend(outcome.err());
        }
        assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
        agent.wire.close().await;
        assert!(agent.child.wait().await.expect("a status").success());
    })
    .await;
}

/// Takes updates until the one that was sent last; says how many came before it.
async fn updates_before(turn: &mut Turn, last: &str) -> Result<usize, String> {
    for count in 0.. {
        match turn.next().await {
            Some(Ok(update)) if update.to_string() == last => return Ok(count),
            Some(Ok(_)) => {}
            end => return Err(format!("the turn ended: {end:?}")),
        }
    }
    Ok(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_answers_hostile_lines() {
    in_time(async {
        let mut cases: Vec<Case> = cases(include_str!("../hostile/lines.jsonl"), "client");
        cases.extend(self::cases(include_str!("../hostile/client.jsonl"), "client"));
        let (agent, mut script) = client_of(Wire::Pipes, Client::new(()), json!({})).await;
        let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
        let session = session.expect("a session");
        let (turn, prompt) = tokio::join!(session.prompt("go"), script.expect("session/prompt"));
        let mut turn = turn.expect("a turn");
        let mut faults = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            faults.extend(check(&mut script, case, "s").await.err());
            // The turn goes on as if nothing had been.
            let mark = format!("after case {number}");
            script.send_chunk("s", &mark).await;
            match updates_before(&mut turn, &mark).await {
                Ok(count) if count == case.updates => {}
                Ok(count) => faults.push(format!("{}: {count} updates, not {}", case.name, case.updates)),
                Err(fault) => panic!("{}: {fault}", case.name),
            }
        }
        assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
        script.end_turn(&prompt, "end_turn").await;
        assert!(turn.outcome().await.is_ok());
    })
    .await;
}
