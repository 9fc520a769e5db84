//! Recordings of connections with the draft of version 2, and of unstable updates of version 1.

use std::io::Cursor;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_transcript::{
    Header, Record, RecordEvent, RecordedLine, Recorder, Redaction, Secrets, Side, StreamSecrets, Transcript,
    forward,
};
use serde_json::{Value, json};

/// A transcript of lines that begin with `>` (the client) or `<` (the agent).
fn transcript(script: &str) -> Transcript {
    let records = script.trim().lines().map(|line| {
        let (mark, line) = line.trim_start().split_at_checked(2).unwrap();
        let side = if mark == "> " { Side::Client } else { Side::Agent };
        let line = line.replacen('{', r#"{"jsonrpc":"2.0","#, 1);
        Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(side, line.into_bytes())))
    });
    Transcript::new(Header::new("a test"), records.collect())
}

fn update_line(update: &Value) -> String {
    format!("< {}", json!({"method": "session/update", "params": {"sessionId": "s", "update": update}}))
}

fn updates(lines: &[Value]) -> Transcript {
    transcript(&lines.iter().map(update_line).collect::<Vec<_>>().join("\n"))
}

const HELLO: &str = r#"
    > {"id":0,"method":"initialize","params":{"protocolVersion":2,"clientCapabilities":{"fs":{"readTextFile":true}},"clientInfo":{"name":"editor","version":"1"},"capabilities":{"elicitation":{"form":{}}},"info":{"name":"editor","version":"1"}}}
    < {"id":0,"result":{"protocolVersion":2,"capabilities":{"session":{"delete":{}}},"info":{"name":"agent","version":"3"},"authMethods":[{"type":"agent","methodId":"login","name":"Log in"}]}}
"#;

const TURN: &str = r#"
    > {"id":1,"method":"session/new","params":{"cwd":"/home/me"}}
    < {"id":1,"result":{"sessionId":"s"}}
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Test it"}]}}
    < {"id":2,"result":{"messageId":"u1"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"Test it"}]}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"Hel"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"lo"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"Hello."}]}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought","messageId":"t","content":null}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"Edit","kind":"edit","status":"in_progress","capabilities":{"cancel":{}}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"requires_action"}}}
    < {"id":"q","method":"session/request_permission","params":{"sessionId":"s","title":"Run the tests?","description":"They are slow","subject":{"type":"command","command":"cargo test","cwd":"/home/me"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}}
    > {"id":"q","result":{"outcome":{"outcome":"selected","optionId":"yes"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{"type":"diff","changes":[{"operation":"modify","path":"/home/me/a.rs"},{"operation":"move","oldPath":"/home/me/b","path":"/home/me/c"}],"patch":{"format":"git_patch","text":"--- a\n+++ b\n"}}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"sh","command":"cargo test","cwd":"/home/me","output":{"data":"cnVu"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_output_chunk","terminalId":"sh","data":"bmluZwo="}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_output_chunk","terminalId":"sh","data":"b2sK"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"sh","exitStatus":{"exitCode":0}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"cancelled","title":null}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"Look","priority":"high","status":"completed"}]}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn","background":[{"type":"terminal","terminalId":"sh"}]}}}
    > {"id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"And?"}]}}
    < {"id":3,"error":{"code":-32000,"message":"Log in first"}}
    > {"id":4,"method":"session/resume","params":{"sessionId":"t","cwd":"/home/me","replayFrom":{"type":"start"}}}
    < {"id":4,"result":{}}
    > {"id":5,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"c"}}
    < {"id":5,"result":{}}
"#;

fn conversation() -> Transcript {
    transcript(&format!("{}\n{}", HELLO.trim(), TURN.trim()))
}

#[test]
fn a_turn_is_shown_from_the_prompt_to_the_idle_state() {
    insta::assert_snapshot!(conversation().render(), @r##"
    ## connection

    → initialize v2 editor 1
      can fs readTextFile
      in version 2 can elicitation form
    ← initialize v2 agent 3
      can session delete
      auth login agent "Log in"

    ## session s

    → session/new /home/me
    ← session/new ok
    → session/prompt "Test it"
    ← session/prompt accepted as u1
    ← user_message u1 = "Test it"
    ← state running
    ← agent_message m "Hello"
    ← agent_message m = "Hello."
    ← agent_thought t cleared
    ← tool_call_update c edit in_progress "Edit" cancellable
    ← state requires_action
    ← session/request_permission "Run the tests?" "They are slow"
      command "cargo test" in /home/me
      ? allow_once yes "Yes"
    → session/request_permission selected yes
    ← tool_call_content_chunk c diff git_patch
      | --- a
      | +++ b
      |
      modify /home/me/a.rs
      move /home/me/b /home/me/c
    ← terminal sh "cargo test" in /home/me = "run"
    ← terminal sh
      | ning
      | ok
      |
    ← terminal sh exit 0
    ← tool_call_update c cancelled {"title":null}
    ← plan p
      [x] "Look" high
    ← state idle end_turn
      background terminal sh

    → session/prompt "And?"
    ← session/prompt error -32000 "Log in first"

    → tool_call/cancel c
    ← tool_call/cancel ok

    ## session t

    → session/resume /home/me replay from start
    ← session/resume ok
    "##);
}

#[test]
fn the_fold_has_the_echo_and_the_last_state_of_everything() {
    insta::assert_snapshot!(conversation().fold(), @r##"
    ## session s

    user u1 "Test it"
    agent m "Hello."
    tool_call c edit cancelled "c"
      diff git_patch
        | --- a
        | +++ b
        |
        modify /home/me/a.rs
        move /home/me/b /home/me/c
    plan p
      [x] "Look" high
    terminal sh exit 0 "cargo test"
      | running
      | ok
      |
    ignored 1 clears of no message

    ## session t
    "##);
}

#[test]
fn the_same_updates_are_other_ones_in_version_1() {
    let version_1 = transcript(&TURN.replace(r#""messageId":"u1"}"#, r#""stopReason":"end_turn"}"#));
    let prompts = version_1.fold().matches("\"Test it\"").count();
    assert_eq!(prompts, 2, "{}", version_1.fold());
}

#[test]
fn plans_and_child_sessions_of_version_1_are_shown() {
    let transcript = updates(&[
        json!({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": []}}),
        json!({"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "# One", "path": "/plan.md"}}),
        json!({"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "f", "content": "# Two"}}),
        json!({"sessionUpdate": "plan_removed", "planId": "f"}),
        json!({"sessionUpdate": "plan_removed", "planId": "unknown"}),
        json!({"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Search", "state": {"state": "running"}}),
        json!({"sessionUpdate": "session_message", "messageId": "m", "senderSessionId": "s", "recipientSessionId": "child", "content": [{"type": "text", "text": "Look"}]}),
        json!({"sessionUpdate": "session_message_chunk", "messageId": "m", "content": {"type": "text", "text": " in"}}),
        json!({"sessionUpdate": "session_message_chunk", "messageId": "m", "content": {"type": "text", "text": "side"}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Delegate", "content": [{"type": "session", "sessionId": "child"}]}),
    ]);
    insta::assert_snapshot!(format!("{}{}", transcript.render(), transcript.fold()), @r##"
    ## session s

    ← plan p {"entries":[]}
    ← plan p /plan.md "# One"
    ← plan f "# Two"
    ← plan_removed f
    ← plan_removed unknown
    ← subagent child "Search" running
    ← session_message m from s to child = "Look"
    ← session_message m " inside"
    ← tool_call c "Delegate"
      session child
    ## session s

    session_message m from s to child "Look inside"
    tool_call c other pending "Delegate"
      session child
    plan p /plan.md "# One"
    subagent child running "Search"
    "##);
}

/// Returns the texts of all updates, decoded.
fn texts(transcript: &Transcript) -> Vec<String> {
    let text = |record: &Record| -> Option<String> {
        let line: Value = serde_json::from_slice(record.line()?.bytes()).ok()?;
        let update = &line["params"]["update"];
        let base64 = update["data"].as_str().or(update["output"]["data"].as_str());
        if let Some(base64) = base64 {
            return Some(String::from_utf8(STANDARD.decode(base64).ok()?).unwrap());
        }
        let content = &update["content"];
        let texts = [
            &content["text"],
            &content["content"]["text"],
            &content[0]["text"],
            &content["patch"]["text"],
            &update["title"],
        ];
        texts.into_iter().find_map(Value::as_str).map(str::to_owned)
    };
    transcript.records().iter().filter_map(text).collect()
}

fn output(text: &str) -> Value {
    json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "sh", "data": STANDARD.encode(text)})
}

/// Secrets in each place that only version 2 has, the last ones in pieces.
fn with_secrets() -> Transcript {
    let key = "sk-abcdefghijklmnop0123";
    let item = |text: &str| json!({"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": {"type": "content", "content": {"type": "text", "text": text}}});
    updates(&[
        json!({"sessionUpdate": "agent_message", "messageId": "m", "content": [{"type": "text", "text": format!("a {key}")}]}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": format!("t {key}")}),
        json!({"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": {"type": "diff", "changes": [], "patch": {"format": "git_patch", "text": format!("+{key}")}}}),
        json!({"sessionUpdate": "terminal_update", "terminalId": "sh", "output": {"data": STANDARD.encode(format!("$ {key} "))}}),
        output(&format!("one {key} two")),
        item("b sk-abcdefghijk"),
        item("lmnop0123 c"),
        output("d sk-abcdefghijk"),
        output("lmnop0123 e"),
    ])
}

/// A whole text begins anew, and pieces continue it. Its kind and its id name it.
#[test]
fn a_secret_that_begins_in_a_whole_text_is_found_in_its_pieces() {
    let (one, two) = ("key sk-proj-0123456789abcdef", "ghijklmnopqrstuv");
    let text = |text: &str| json!({"type": "text", "text": text});
    let whole =
        |kind: &str, content: Value| json!({"sessionUpdate": kind, "messageId": "m", "content": content});
    let compaction = |summary: Value| json!({"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress", "summary": summary});
    let terminal =
        |output: Value| json!({"sessionUpdate": "terminal_update", "terminalId": "sh", "output": output});
    let piece =
        json!({"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": text(two)});
    let chunk = |kind: &str| whole(&format!("{kind}_chunk"), text(two));
    let blocks = json!([text("first"), text(one)]);
    let mut cases = vec![
        (vec![compaction(blocks.clone())], piece.clone(), true),
        (vec![compaction(blocks.clone()), compaction(Value::Null)], piece, false),
        (vec![terminal(json!({"data": STANDARD.encode(one)}))], output(two), true),
        (vec![terminal(json!({"data": STANDARD.encode(one)})), terminal(Value::Null)], output(two), false),
        (vec![terminal(json!({"data": STANDARD.encode(one)})), terminal(json!("x"))], output(two), true),
    ];
    for (kind, other) in [
        ("agent_message", "agent_thought"),
        ("agent_thought", "agent_message"),
        ("user_message", "agent_message"),
        ("session_message", "user_message"),
    ] {
        let begun = whole(kind, blocks.clone());
        let clear = json!({"sessionUpdate": format!("{other}_clear"), "messageId": "m"});
        cases.extend([
            (vec![begun.clone()], chunk(kind), true),
            (vec![begun.clone(), whole(kind, Value::Null)], chunk(kind), false),
            (vec![begun.clone(), whole(kind, json!([text("x")]))], chunk(kind), false),
            // These leave the text as it is.
            (vec![begun.clone(), whole(kind, json!(5))], chunk(kind), true),
            (vec![begun.clone(), whole(other, Value::Null)], chunk(kind), true),
            (vec![begun, clear], chunk(kind), true),
        ]);
    }
    for (mut lines, last, is_found) in cases {
        lines.push(last);
        let params = |update: &Value| {
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}).to_string()
        };
        let (secrets, mut stream) = (Secrets::default(), StreamSecrets::default());
        let streamed: Vec<_> =
            lines.iter().map(|line| stream.redact(&secrets, params(line).as_bytes()).into_owned()).collect();
        let is_changed =
            *streamed.last().expect("a line") != params(lines.last().expect("a line")).into_bytes();
        assert_eq!(is_changed, is_found, "{lines:?}");
        let redacted = updates(&lines).redact(&Redaction::secrets_only());
        let is_left = texts(&redacted).last().is_some_and(|last| last == two);
        assert_eq!(is_left, !is_found, "{lines:?}");
    }
}

#[test]
fn secrets_are_found_in_patches_and_in_base64() {
    let redacted = with_secrets().redacted();
    assert_eq!(
        texts(&redacted),
        [
            "a [secret]",
            "t [secret]",
            "+[secret]",
            "$ [secret] ",
            "one [secret] two",
            "b [secret]",
            " c",
            "d [secret]",
            " e"
        ]
    );
    assert_eq!(redacted.redacted(), redacted);
    // Base64 without a secret keeps its bytes.
    let plain = updates(&[
        output("\u{1b}[31mred"),
        json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "sh", "data": "_no base64_"}),
    ]);
    let data = |record: &Record| {
        let line: Value = serde_json::from_slice(record.line().unwrap().bytes()).unwrap();
        line["params"]["update"]["data"].clone()
    };
    let redacted = plain.redacted();
    assert!(plain.records().iter().map(data).eq(redacted.records().iter().map(data)));
}

#[test]
fn a_recorder_removes_them_before_it_writes() {
    let lines: Vec<u8> = with_secrets()
        .records()
        .iter()
        .flat_map(|record| [record.line().unwrap().bytes(), b"\n"].concat())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recorded = runtime.block_on(async {
        let recorder = Recorder::builder().secrets(Secrets::default()).in_memory().unwrap();
        forward(Side::Agent, Cursor::new(lines), tokio::io::sink(), &recorder).await.unwrap();
        recorder.transcript().await.unwrap()
    });
    let texts = texts(&recorded);
    assert_eq!(
        texts[..5],
        ["a [secret]", "t [secret]", "+[secret]", "$ [secret] ", "one [secret] two"],
        "{texts:?}"
    );
    // The start of a secret in pieces is written before its rest is known.
    assert_eq!(texts[5..], ["b sk-abcdefghijk", "[secret] c", "d sk-abcdefghijk", "[secret] e"]);
}
