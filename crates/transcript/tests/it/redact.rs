//! Redacting whole transcripts.

use std::time::Duration;

use duologue_transcript::schema::{AgentNotification, AgentRequest, ClientRequest};
use duologue_transcript::{
    Header, ParsedLine, ProcessExit, Record, RecordEvent, RecordedLine, Redacted, Redaction, Side, Transcript,
};

/// A transcript from a script: `> ` what the client says, `< ` what the agent says, `! ` stderr.
fn transcript(script: &str) -> Transcript {
    let records = script.lines().filter(|line| !line.trim().is_empty()).enumerate().map(|(at, line)| {
        let (who, text) = line.trim_start().split_at(2);
        let event = match who {
            "> " => RecordEvent::Line(RecordedLine::new(Side::Client, text.as_bytes())),
            "< " => RecordEvent::Line(RecordedLine::new(Side::Agent, text.as_bytes())),
            _ => RecordEvent::Stderr(text.into()),
        };
        Record::new(Duration::from_millis(at as u64), event)
    });
    Transcript::new(Header::new("duologue test"), records.collect())
}

fn script(transcript: &Transcript) -> String {
    let lines = transcript.records().iter().map(|record| match &record.event {
        RecordEvent::Line(line) => {
            let who = if line.from == Side::Client { "> " } else { "< " };
            format!("{who}{}\n", String::from_utf8_lossy(line.bytes()))
        }
        RecordEvent::Stderr(text) => format!("! {text}\n"),
        other => format!("{other:?}\n"),
    });
    lines.collect()
}

/// Redacted once and twice, it is what is expected.
fn check(given: &str, expect: &str) {
    let redacted = transcript(given).redacted();
    let trimmed: String = expect
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    assert_eq!(script(&redacted), trimmed);
    assert_eq!(redacted.redacted(), redacted);
    for (given, redacted) in transcript(given).entries().iter().zip(redacted.entries()) {
        assert_eq!(typed(&given.parsed), typed(&redacted.parsed));
    }
}

/// Which typed message a line is.
fn typed(said: &ParsedLine<'_>) -> String {
    match said {
        ParsedLine::Request { method, params, .. } => match ClientRequest::decode(method, *params) {
            Some(request) => request.unwrap().method().to_owned(),
            None => AgentRequest::decode(method, *params)
                .map_or("extension", |request| request.unwrap().method())
                .into(),
        },
        ParsedLine::Notification { method, params, .. } if method == "session/update" => {
            let Some(Ok(AgentNotification::SessionUpdate(told))) = AgentNotification::decode(method, *params)
            else {
                panic!("no update")
            };
            format!("{:?}", std::mem::discriminant(&told.update))
        }
        ParsedLine::Notification { method, .. } => method.to_string(),
        ParsedLine::Response { method, .. } => format!("answer to {method:?}"),
        _ => String::new(),
    }
}

#[test]
fn ids_paths_and_times_are_named() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"x","version":"1.2.3"}}}
        < {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}
        ! 2026-11-21T11:02:09.274Z session 8724c388-e3c6-4303-927d-e8674b0d4afa in /home/me/proj
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/home/me/proj","mcpServers":[],"additionalDirectories":["/srv/lib"]}}
        < {"jsonrpc":"2.0","id":1,"result":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa"}}
        > {"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","prompt":[{"type":"text","text":"read \/home\/me\/proj\/a.rs, /srv/lib and /home/me/.cache"}]}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","update":{"sessionUpdate":"tool_call","toolCallId":"call_82e3f0afd1ea","title":"Read","locations":[{"path":"/home/me/proj/a.rs","line":3}],"_meta":{"durationMs":190,"startedAt":1795255243998,"step":"52cf57fc-09ac-4e2a-827d-f028687f4cb3"}}}}
        < {"jsonrpc":"2.0","id":0,"method":"fs/read_text_file","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","path":"/home/me/proj/a.rs"}}
        > {"jsonrpc":"2.0","id":0,"result":{"content":"made 2026-01-02 03:04:05"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","update":{"sessionUpdate":"agent_message_chunk","messageId":"m-77","content":{"type":"text","text":"In /home/m"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","update":{"sessionUpdate":"agent_message_chunk","messageId":"m-77","content":{"type":"text","text":"e/proj/a.rs"}}}}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}
        < {"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}
        "#,
        r#"
        > {"jsonrpc":"2.0","id":"[request-1]","method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"x","version":"1.2.3"}}}
        < {"jsonrpc":"2.0","id":"[request-1]","result":{"protocolVersion":1}}
        ! [time] session [session-1] in [cwd]
        > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[],"additionalDirectories":["[cwd-2]"]}}
        < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"sessionId":"[session-1]"}}
        > {"jsonrpc":"2.0","id":"[session-1.request-2]","method":"session/prompt","params":{"sessionId":"[session-1]","prompt":[{"type":"text","text":"read [cwd]\/a.rs, [cwd-2] and [home]/.cache"}]}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"tool_call","toolCallId":"[tool-call-1]","title":"Read","locations":[{"path":"[cwd]/a.rs","line":3}],"_meta":{"durationMs":0,"startedAt":0,"step":"[id-1]"}}}}
        < {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"fs/read_text_file","params":{"sessionId":"[session-1]","path":"[cwd]/a.rs"}}
        > {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"content":"made [time]"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","messageId":"[message-1]","content":{"type":"text","text":"In [cwd]"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","messageId":"[message-1]","content":{"type":"text","text":"/a.rs"}}}}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"[session-1.request-2]"}}
        < {"jsonrpc":"2.0","id":"[session-1.request-2]","result":{"stopReason":"cancelled"}}
        "#,
    );
}

#[test]
fn sessions_are_numbered_by_their_first_request_and_count_for_themselves() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w/a","mcpServers":[]}}
        > {"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/w/b","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":2,"result":{"sessionId":"s2"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s2","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"/w/b/x /w/a"}}}}
        < {"jsonrpc":"2.0","id":1,"result":{"sessionId":"s1"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"/w/a/x s1 m"}}}}
        > {"jsonrpc":"2.0","id":"q","method":"session/list","params":{}}
        < {"jsonrpc":"2.0","id":"q","result":{"sessions":[{"sessionId":"s2","cwd":"/w/b"},{"sessionId":"old","cwd":"/tmp/c"}]}}
        "#,
        r#"
        > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        > {"jsonrpc":"2.0","id":"[session-2.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":"[session-2.request-1]","result":{"sessionId":"[session-2]"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-2]","update":{"sessionUpdate":"agent_message_chunk","messageId":"[message-1]","content":{"type":"text","text":"[cwd]/x /w/a"}}}}
        < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"sessionId":"[session-1]"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","messageId":"[message-1]","content":{"type":"text","text":"[cwd]/x s1 m"}}}}
        > {"jsonrpc":"2.0","id":"[request-1]","method":"session/list","params":{}}
        < {"jsonrpc":"2.0","id":"[request-1]","result":{"sessions":[{"sessionId":"[session-2]","cwd":"[cwd]"},{"sessionId":"[session-3]","cwd":"[tmp]/c"}]}}
        "#,
    );
}

#[test]
fn the_first_session_that_exists_is_the_first() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w/a","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"log in"}}
        > {"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/w/a","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}
        > {"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/w/b","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":3,"result":{"sessionId":"t"}}
        "#,
        r#"
        > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":"[session-1.request-1]","error":{"code":-32000,"message":"log in"}}
        > {"jsonrpc":"2.0","id":"[session-1.request-2]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":"[session-1.request-2]","result":{"sessionId":"[session-1]"}}
        > {"jsonrpc":"2.0","id":"[session-2.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":"[session-2.request-1]","result":{"sessionId":"[session-2]"}}
        "#,
    );
}

#[test]
fn a_secret_in_pieces_is_found() {
    check(
        r#"
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"key: sk-ab"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1,"size":2}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"cdef\u0067hijkl"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"mnopqrst0123, ok"}}}}
        ! -----BEGIN RSA PRIVATE KEY-----
        ! MIIEpAIBAAKCAQEA
        ! -----END RSA PRIVATE KEY----- done
        "#,
        r#"
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"key: [secret]"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"usage_update","used":1,"size":2}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-2]","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""}}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":", ok"}}}}
        ! [secret]
        ! [secret]
        !  done
        "#,
    );
}

#[test]
fn a_key_among_what_is_no_message_is_found() {
    check(
        r#"
        < -----BEGIN PRIVATE KEY-----
        > -----BEGIN PRIVATE KEY-----
        < MIIEvQIBADANBgkqhkiG9w0BAQEFAASC
        > no key at all!
        < {"jsonrpc":"2.0","method":"_x"}
        < AQ==
        < -----END PRIVATE KEY----- done
        ! {"accessToken":{"value":"hunter two"}}
        "#,
        r#"
        < [secret]
        > [secret]
        < [secret]
        > no key at all!
        < {"jsonrpc":"2.0","method":"_x"}
        < [secret]
        <  done
        ! {"accessToken":{"value":"[secret]"}}
        "#,
    );
}

#[test]
fn a_uuid_is_known_without_its_dashes_too() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/home/me/x","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":1,"result":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","update":{"sessionUpdate":"tool_call","toolCallId":"0199A7E2C5D47B0E8F00112233445566","title":"log-8724c388e3c64303927de8674b0d4afa"}}}
        < {"jsonrpc":"2.0","method":"_x","params":{"sessionId":"8724c388-e3c6-4303-927d-e8674b0d4afa","text":"see /s/8724C388E3C64303927DE8674B0D4AFA/0199a7e2-c5d4-7b0e-8f00-112233445566 8724c388e3c64303927de8674b0d4afb"}}
        ! opened 8724c388e3c64303927de8674b0d4afa
        "#,
        r#"
        > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"sessionId":"[session-1]"}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"tool_call","toolCallId":"[tool-call-1]","title":"log-8724c388e3c64303927de8674b0d4afa"}}}
        < {"jsonrpc":"2.0","method":"_x","params":{"sessionId":"[session-1]","text":"see /s/[session-1]/[tool-call-1] 8724c388e3c64303927de8674b0d4afb"}}
        ! opened [session-1]
        "#,
    );
}

#[test]
fn the_same_uuid_is_another_id_in_another_session() {
    let a = "8724c388-e3c6-4303-927d-e8674b0d4afa";
    let b = "52cf57fc-09ac-4e2a-827d-f028687f4cb3";
    let line = |session: &str, uuid: &str, text: &str| {
        format!(
            r#"< {{"jsonrpc":"2.0","method":"_x","params":{{"sessionId":"{session}","step":"{uuid}","text":"{text}"}}}}"#
        )
    };
    check(
        &[
            line("s1", a, ""),
            line("s2", b, &format!("of {a}")),
            line("s2", a, &format!("of {a}")),
            format!("! {b}"),
        ]
        .join("\n"),
        &[
            line("[session-1]", "[id-1]", ""),
            line("[session-2]", "[id-1]", &format!("of {a}")),
            line("[session-2]", "[id-2]", "of [id-2]"),
            "! [id-1]".into(),
        ]
        .join("\n"),
    );
}

#[test]
fn an_id_is_the_same_however_it_is_spelled() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":"a\/b","method":"_x"}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"\u0061/b"}}
        < {"jsonrpc":"2.0","id":"a/b","result":null}
        "#,
        r#"
        > {"jsonrpc":"2.0","id":"[request-1]","method":"_x"}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"[request-1]"}}
        < {"jsonrpc":"2.0","id":"[request-1]","result":null}
        "#,
    );
}

#[test]
fn a_rule_holds_where_it_cannot_be_looked_up() {
    let redaction = Redaction::default().json_path("$.params.pin", "[pin]").unwrap();
    let given = transcript(
        r#"
        < {"jsonrpc":"2.0","method":"_x","params":{"pin":"4711","text":"\ud83d"}}
        < {"jsonrpc":"2.0","method":"_x","params":{"sessionId":"s","pin":"4711","n":1e400,"on":true}}
        < {"jsonrpc":"2.0","id":1,"result":{"pin":4711,"n":[1e400]}}
        < {"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"4711","data":1e400}}
        "#,
    );
    let redacted = given.redact(&redaction);
    assert_eq!(
        script(&redacted),
        r#"< {"jsonrpc":"2.0","method":"_x","params":{"pin":"[pin]","text":"\ud83d"}}
< {"jsonrpc":"2.0","method":"_x","params":{"sessionId":"[session-1]","pin":"[secret]","n":0,"on":true}}
< {"jsonrpc":"2.0","id":1,"result":{"pin":0,"n":[0]}}
< {"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"[secret]","data":0}}
"#
    );
    // The same holds for text in chunks.
    let redaction = Redaction::default().json_path("$..text", "[text]").unwrap();
    let given = transcript(
        r#"
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"pin 4711"}}}}
        "#,
    );
    assert!(script(&given.redact(&redaction)).contains(r#""text":"[text]""#));
    let given = transcript(
        r#"
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"pin 4711"},"n":1e400}}}
        "#,
    );
    assert!(script(&given.redact(&redaction)).contains(r#""text":"[secret]""#));
}

#[test]
fn requests_are_forgotten_some_time_after_their_answer() {
    let mut redactor = Redaction::default().start();
    let mut say = |from, text: String| {
        redactor.line(&RecordedLine::new(from, text.into_bytes())).text().unwrap_or_default().to_owned()
    };
    for id in 0..3000 {
        say(Side::Client, format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"_x"}}"#));
        say(Side::Agent, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#));
    }
    let mut withdraw = |id: u32| {
        say(
            Side::Client,
            format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#),
        )
    };
    assert!(withdraw(2999).contains("[request-3000]"));
    assert!(withdraw(1).contains(r#""requestId":1}"#));
}

#[test]
fn rules_of_ones_own() {
    let redaction = Redaction::default()
        .versions(true)
        .folder("/opt/tool", "[tool]")
        .pattern(r"(?i)build (\d+)", "build [n]")
        .unwrap()
        .json_path("$.params.update.rawOutput", "[output]")
        .unwrap()
        .json_path("$..pid", 0)
        .unwrap();
    let given = transcript(
        r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1.2.3"},"info":{"name":"x","version":"1.2.3"},"_meta":{"info":{"version":"7"}},"protocolVersion":1}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Build 12 of /opt/tool/x","rawOutput":{"a":[1,"sk-abcdefghijklmnop0123"]},"_meta":{"pid":77}}}}
        "#,
    );
    assert_eq!(
        script(&given.redact(&redaction)),
        r#"> {"jsonrpc":"2.0","id":"[request-1]","method":"initialize","params":{"clientInfo":{"name":"x","version":"[version]"},"info":{"name":"x","version":"[version]"},"_meta":{"info":{"version":"7"}},"protocolVersion":1}}
< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"[session-1]","update":{"sessionUpdate":"tool_call_update","toolCallId":"[tool-call-1]","title":"build [n] of [tool]/x","rawOutput":"[output]","_meta":{"pid":0}}}}
"#
    );
    let error = Redaction::default().pattern("(", "").unwrap_err();
    assert!(error.to_string().starts_with("the pattern \"(\" cannot be used"), "{error}");
    assert!(Redaction::default().json_path("$[", "").is_err());
}

#[test]
fn the_header_and_the_pace() {
    let mut header = Header::new("duologue test");
    header.program = vec![
        "/home/me/bin/agent".into(),
        "--api-key=abcdef123456".into(),
        "--token".into(),
        "hunter two".into(),
        "/tmp/x".into(),
    ];
    let records = vec![
        Record::new(Duration::from_micros(5), RecordEvent::Stderr("x".into())),
        Record::new(Duration::from_micros(9), RecordEvent::Exit(ProcessExit::default())),
    ];
    let given = Transcript::new(header, records);
    let redacted = given.redacted();
    let header = redacted.header();
    assert_eq!(header.redacted, Redacted::Everything);
    assert_eq!(header.started, std::time::SystemTime::UNIX_EPOCH);
    assert_eq!(header.program, ["agent", "--api-key=[secret]", "--token", "[secret]", "[tmp]/x"]);
    assert!(redacted.records().iter().all(|record| record.at.is_zero()));
    assert_eq!(given.redact(&Redaction::default().keep_pace(true)).records(), given.records());

    let mut file = Vec::new();
    redacted.write(&mut file).unwrap();
    assert_eq!(Transcript::read(file.as_slice()).unwrap(), redacted);
}

#[test]
fn a_record_that_nothing_is_known_of() {
    let file = concat!(
        r#"{"format":"acp-transcript","version":1,"recorder":"x","protocolVersion":1,"started":"2026-11-21T14:49:50Z"}"#,
        "\n",
        r#"{"at":0,"mood":"sk-abcdefghijklmnop0123","in":"/home/me/x"}"#,
        "\n",
    );
    let redacted = Transcript::read(file.as_bytes()).unwrap().redacted();
    let RecordEvent::Unknown(json) = &redacted.records()[0].event else { panic!("{redacted:?}") };
    assert_eq!(json.get(), r#"{"at":0,"mood":"[secret]","in":"[home]/x"}"#);
}

#[test]
fn only_secrets() {
    let given = transcript(
        r#"
        > {"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/home/me","mcpServers":[{"name":"m","command":"/bin/m","args":[],"env":[{"name":"A","value":"b"}]}]}}
        "#,
    );
    let redacted = given.redact(&Redaction::secrets_only());
    assert_eq!(
        script(&redacted),
        r#"> {"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/home/me","mcpServers":[{"name":"m","command":"/bin/m","args":[],"env":[{"name":"A","value":"[secret]"}]}]}}
"#
    );
    assert_eq!(redacted.header().redacted, Redacted::Secrets);
    assert_eq!(redacted.header().started, given.header().started);
}

/// Rules by JSON path reach the text of a message too, which is otherwise looked at across its chunks.
#[test]
fn a_rule_by_path_reaches_the_chunks_of_a_message() {
    let chunk = |text: &str| {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        );
        Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(Side::Agent, line.into_bytes())))
    };
    let rules = Redaction::default().json_path("$.params.update.content.text", "[words]").expect("a path");
    for texts in [&["one"][..], &["one", "two", "three"]] {
        let records = texts.iter().map(|text| chunk(text)).collect();
        let redacted = Transcript::new(Header::new("a test"), records).redact(&rules);
        assert!(redacted.render().contains(&"[words]".repeat(texts.len())), "{}", redacted.render());
    }
}

/// Each kind of value is replaced by its own setting alone.
#[test]
fn each_setting_replaces_its_own_values() {
    let line = r#"{"jsonrpc":"2.0","method":"_x","params":{"createdAt":1000000000,"nextAt":999999999,"durationMs":7,"toolCallId":"toolu_01Ab23","a/b":1,"c~d":2,"text":"toolu_01Ab23 at 2026-01-02T03:04:05Z"}}"#;
    let redact = |redaction: Redaction| {
        let redacted = redaction.start().line(&RecordedLine::new(Side::Agent, line.as_bytes()));
        String::from_utf8(redacted.bytes().to_vec()).unwrap()
    };
    let none = Redaction::secrets_only;
    assert_eq!(redact(none()), line);
    assert_eq!(
        redact(none().times(true)),
        line.replace("2026-01-02T03:04:05Z", "[time]").replace(":1000000000", ":0")
    );
    assert_eq!(redact(none().durations(true)), line.replace(r#""durationMs":7"#, r#""durationMs":0"#));
    assert!(!redact(none().ids(true)).contains(r#":"toolu_01Ab23""#));
    assert!(redact(none().ids(true)).contains("2026-01-02T03:04:05Z"));
    let places = none().json_path("$.params['a/b']", 3).and_then(|it| it.json_path("$.params['c~d']", 4));
    let expected = line.replace(r#""a/b":1"#, r#""a/b":3"#).replace(r#""c~d":2"#, r#""c~d":4"#);
    assert_eq!(redact(places.expect("valid paths")), expected);
}
