//! The rules of redaction, one by one.

use std::time::Duration;

use duologue_transcript::{
    Header, Record, RecordEvent, RecordedLine, Redaction, Secrets, Side, StreamSecrets, Transcript,
};
use serde_json::{Value, json};

const UUID: &str = "8724c388-e3c6-4303-927d-e8674b0d4afa";

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn response(id: impl Into<Value>, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "result": result})
}

fn chunk(session: &str, text: &str) -> Value {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
    notification("session/update", json!({"sessionId": session, "update": update}))
}

fn transcript(lines: &[(Side, Value)]) -> Transcript {
    let record = |(at, (from, line)): (usize, &(Side, Value))| {
        let event = RecordEvent::Line(RecordedLine::new(*from, line.to_string().into_bytes()));
        Record::new(Duration::from_millis(at as u64), event)
    };
    Transcript::new(Header::new("a test"), lines.iter().enumerate().map(record).collect())
}

/// Redacts lines as a whole transcript.
fn redact(redaction: &Redaction, lines: &[(Side, Value)]) -> Vec<Value> {
    let redacted = transcript(lines).redact(redaction);
    let lines = redacted.records().iter().filter_map(|record| record.line());
    lines.map(|line| serde_json::from_slice(line.bytes()).expect("JSON")).collect()
}

/// Redacts the params of a single line of an agent.
fn params(redaction: &Redaction, params: Value) -> Value {
    let [line] = redact(redaction, &[(Side::Agent, notification("_x", params))]).try_into().expect("a line");
    line["params"].clone()
}

/// Redacts lines one by one.
fn line_by_line(lines: &[(Side, Value)]) -> Vec<Value> {
    let mut redactor = Redaction::default().start();
    let redact = |(from, line): &(Side, Value)| {
        let line = redactor.line(&RecordedLine::new(*from, line.to_string().into_bytes()));
        serde_json::from_slice(line.bytes()).expect("JSON")
    };
    lines.iter().map(redact).collect()
}

#[test]
fn recordings_without_secrets_keep_their_times() {
    let lines = [(Side::Client, chunk("s", "one")), (Side::Client, chunk("s", "two"))];
    let at = |redaction: &Redaction| transcript(&lines).redact(redaction).records()[1].at;
    assert_eq!(at(&Redaction::secrets_only()), Duration::from_millis(1));
    assert_eq!(at(&Redaction::default()), Duration::ZERO);
}

#[test]
fn an_empty_match_of_a_pattern_changes_nothing() {
    let redaction = Redaction::default().pattern("y*", "[y]").expect("a pattern");
    assert_eq!(params(&redaction, json!({"text": "ayyb"})), json!({"text": "a[y]b"}));
}

#[test]
fn a_json_path_names_one_element() {
    let redaction = Redaction::default().json_path("$.params.list[1]", "[it]").expect("a path");
    let list = |second: &str| json!({"list": ["one", second], "a/b": "c"});
    assert_eq!(params(&redaction, list("two")), list("[it]"));
}

/// Times and ids of messages between agents are replaced by the same settings as those of ACP.
#[test]
fn each_setting_has_its_values() {
    let message = |time: &str, signature: &str| json!({"message": {"timestamp": time, "signature": signature, "metadata": {"correlation_id": "c1"}}});
    let (time, signature) = ("2026-03-01T12:00:00Z", "abc");
    for (redaction, expected) in [
        (Redaction::default(), message("[time]", "[signature]")),
        (Redaction::default().ids(false), message("[time]", signature)),
        (Redaction::default().times(false), message(time, "[signature]")),
    ] {
        assert_eq!(params(&redaction, message(time, signature)), expected);
    }
    let version = json!({"agentInfo": {"version": "1.2"}, "other": {"version": "1.2"}});
    let redacted = params(&Redaction::default().versions(true), version);
    assert_eq!(redacted, json!({"agentInfo": {"version": "[version]"}, "other": {"version": "1.2"}}));
    assert_eq!(
        params(&Redaction::default(), json!({"elapsedMs": 5, "count": 5})),
        json!({"elapsedMs": 0, "count": 5})
    );
}

/// An empty id names nothing, and only the `id` of the line itself is that of a request.
#[test]
fn only_ids_are_replaced() {
    let ids = json!({"toolCallId": "", "item": {"id": "5"}, "envelope": {"id": ""}});
    assert_eq!(params(&Redaction::default(), ids.clone()), ids);
    let lines = [(Side::Client, request(7, "_x", ids.clone()))];
    assert_eq!(redact(&Redaction::default(), &lines)[0]["params"], ids);
}

/// Another line may name a request of either side.
#[test]
fn requests_are_named_by_both_sides() {
    let lines = [
        (Side::Client, request(7, "_x", json!({}))),
        (Side::Agent, notification("_progress", json!({"requestId": 7}))),
        (Side::Client, notification("$/cancel_request", json!({"requestId": 7}))),
    ];
    let redacted = redact(&Redaction::default(), &lines);
    assert_eq!(redacted[1]["params"]["requestId"], "[request-1]");
    assert_eq!(redacted[2]["params"]["requestId"], "[request-1]");
}

/// A session gets the number that its request has reserved, also while the conversation goes on.
#[test]
fn a_new_session_has_the_number_of_its_request() {
    let lines = [
        (Side::Client, request(1, "session/new", json!({"cwd": "/srv/one", "mcpServers": []}))),
        (Side::Agent, response(1, json!({"sessionId": "s"}))),
        (Side::Agent, chunk("s", "in /srv/one")),
    ];
    for redacted in [line_by_line(&lines), redact(&Redaction::default(), &lines)] {
        assert_eq!(redacted[0]["id"], "[session-1.request-1]");
        assert_eq!(redacted[1]["result"]["sessionId"], "[session-1]");
        assert_eq!(redacted[2], chunk("[session-1]", "in [cwd]"));
    }
    // So does one that any other request opens.
    let lines = [
        (Side::Client, request(1, "_open", json!({}))),
        (Side::Agent, response(1, json!({"sessionId": "s"}))),
    ];
    assert_eq!(redact(&Redaction::default(), &lines)[0]["id"], "[session-1.request-1]");
}

/// A request keeps its placeholder however many others are answered before it.
#[test]
fn an_open_request_is_not_forgotten() {
    let answered =
        |id: u32| [(Side::Client, request(id, "_x", json!({}))), (Side::Agent, response(id, json!({})))];
    let mut lines: Vec<_> = answered(1).to_vec();
    lines.push((Side::Client, request(1, "_x", json!({}))));
    lines.extend((2..1100).flat_map(answered));
    lines.push((Side::Agent, response(1, json!({}))));
    assert_eq!(line_by_line(&lines).last().expect("a line")["id"], "[request-2]");
}

/// Only the requests of a client for a session name its folders, and they belong to the session that is created.
#[test]
fn folders_belong_to_their_session() {
    let new = |id: u32, cwd: &str| {
        (Side::Client, request(id, "session/new", json!({"cwd": cwd, "mcpServers": []})))
    };
    let text = |session: &str| (Side::Agent, chunk(session, "/srv/old/a and /srv/new/a"));
    let start = [new(1, "/srv/old"), (Side::Agent, response(1, json!({"sessionId": "s"})))];
    let fork = request(2, "session/fork", json!({"sessionId": "s", "cwd": "/srv/new", "mcpServers": []}));
    let fork = [(Side::Client, fork), (Side::Agent, response(2, json!({"sessionId": "t"})))];
    let lines: Vec<_> = start.iter().chain(&fork).cloned().chain([text("s"), text("t")]).collect();
    let redacted = redact(&Redaction::default(), &lines);
    assert_eq!(redacted[4], chunk("[session-1]", "[cwd]/a and /srv/new/a"));
    assert_eq!(redacted[5], chunk("[session-2]", "/srv/old/a and [cwd]/a"));
    for (from, method) in [(Side::Client, "_x"), (Side::Agent, "session/x")] {
        let other = (from, request(3, method, json!({"sessionId": "s", "cwd": "/srv/new"})));
        let lines: Vec<_> = start.iter().cloned().chain([other, text("s")]).collect();
        assert_eq!(redact(&Redaction::default(), &lines)[3], chunk("[session-1]", "[cwd]/a and /srv/new/a"));
    }
}

/// An id of one session is any word in the text of another one. Stderr may mention those of all.
#[test]
fn ids_of_other_sessions_are_words() {
    let call = |session: &str| {
        let update = json!({"sessionUpdate": "tool_call", "toolCallId": "call_01234567890", "title": "x"});
        (Side::Agent, notification("session/update", json!({"sessionId": session, "update": update})))
    };
    let lines = [
        call("s"),
        (Side::Agent, chunk("t", "see call_01234567890")),
        (Side::Agent, chunk("s", "see call_01234567890")),
    ];
    let redacted = redact(&Redaction::default(), &lines);
    assert_eq!(redacted[1], chunk("[session-2]", "see call_01234567890"));
    assert_eq!(redacted[2], chunk("[session-1]", "see [tool-call-1]"));
    let lines = [(Side::Agent, notification("_x", json!({"sessionId": "s", "toolCallId": UUID})))];
    let mut records = transcript(&lines).records().to_vec();
    records.push(Record::new(Duration::ZERO, RecordEvent::Stderr(format!("see {}", UUID.replace('-', "")))));
    let redacted = Transcript::new(Header::new("a test"), records).redacted();
    assert_eq!(redacted.records()[1].event, RecordEvent::Stderr("see [tool-call-1]".into()));
}

/// The output of a terminal is base64, in which no key can be seen.
#[test]
fn output_of_a_terminal_loses_its_keys() {
    use std::str::from_utf8;
    // "my key: sk-abcdefghijklmnop0123"
    let data = "bXkga2V5OiBzay1hYmNkZWZnaGlqa2xtbm9wMDEyMw==";
    let update = json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": data});
    let line = notification("session/update", json!({"sessionId": "s", "update": update})).to_string();
    let redacted = Secrets::default().redact(line.as_bytes());
    assert!(!from_utf8(&redacted).expect("text").contains(data));
    let mut stream = StreamSecrets::default();
    for _ in 0..3 {
        let redacted = stream.redact(&Secrets::default(), line.as_bytes()).into_owned();
        assert!(!from_utf8(&redacted).expect("text").contains(data));
    }
}

/// A name gives its secrecy to all values: in JSON within a text, and to a number behind an option.
#[test]
fn values_are_secret_by_their_name() {
    let redact = |value: Value| -> Value {
        serde_json::from_slice(&Secrets::default().redact(value.to_string().as_bytes())).expect("JSON")
    };
    let inner = |value: &str| json!({"text": json!([{"password": value}]).to_string()});
    assert_eq!(redact(inner("hunter two")), inner("[secret]"));
    assert_eq!(
        redact(json!({"args": ["--password", 12345678]})),
        json!({"args": ["--password", "[secret]"]})
    );
}

/// A key that was cut off has ended when the next one begins.
#[test]
fn a_whole_key_ends_the_one_before() {
    let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
    let keys = "-----BEGIN PRIVATE KEY----- -----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----";
    stream.redact(&secrets, keys.as_bytes());
    let line = b"abcdefghijklmnopqrstuvwxyz";
    assert_eq!(stream.redact(&secrets, line).as_ref(), line);
}
