//! The form of each kind of event in the script.

use std::time::Duration;

use duologue_transcript::{
    Header, ProcessExit, Record, RecordEvent, RecordedLine, RenderOptions, Side, Transcript,
    assert_transcript,
};

/// A transcript of lines that begin with `>` (the client), `<` (the agent) or `!` (stderr).
fn transcript(text: &str) -> Transcript {
    let records = text.trim().lines().enumerate().filter_map(|(at, line)| {
        let (mark, line) = line.trim_start().split_at_checked(2)?;
        let event = match mark {
            "> " => RecordEvent::Line(RecordedLine::new(Side::Client, line.as_bytes())),
            "< " => RecordEvent::Line(RecordedLine::new(Side::Agent, line.as_bytes())),
            _ => RecordEvent::Stderr(line.to_owned()),
        };
        Some(Record::new(Duration::from_millis(at as u64 * 1500), event))
    });
    Transcript::new(Header::new("a test"), records.collect())
}

fn requests(lines: &[(&str, &str, &str, &str)]) -> Transcript {
    let mut text = String::new();
    for (id, (side, method, params, answer)) in lines.iter().enumerate() {
        let other = if *side == ">" { "<" } else { ">" };
        text += &format!(
            "{side} {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        text += &format!("{other} {{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}\n");
    }
    transcript(&text)
}

fn updates(lines: &[&str]) -> Transcript {
    let text: Vec<_> = lines
        .iter()
        .map(|update| {
            format!(r#"< {{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
        })
        .collect();
    transcript(&text.join("\n"))
}

#[test]
fn a_conversation() {
    let transcript = transcript(
        r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":false},"terminal":true,"_meta":{"duologue":{"messageClear":true}}},"clientInfo":{"name":"editor","version":"1.2"}}}
        < {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"close":{},"list":{}}},"authMethods":[{"id":"login","name":"Log in","description":null}],"agentInfo":{"name":"agent","version":"3"}}}
        < Loading models…
        ! a warning
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/home/me","mcpServers":[{"name":"files","command":"/bin/mcp","args":["-v"],"env":[]}]}}
        > {"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/home/you","mcpServers":[]}}
        < {"jsonrpc":"2.0","id":2,"result":{"sessionId":"b"}}
        < {"jsonrpc":"2.0","id":1,"result":{"sessionId":"a","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code","description":"Writes"}]},"models":{"now":"m"}}}
        > {"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"a","prompt":[{"type":"text","text":"Fix it"},{"type":"resource_link","name":"main.rs","uri":"file:///main.rs"}]}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"Let me"}}}}
        > {"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"b","prompt":[{"type":"text","text":"Hi"}]}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":" see:\n\n- one\n"}}}}
        < {"jsonrpc":"2.0","id":4,"error":{"code":-32000,"message":"Log in first","data":{"methods":["login"]}}}
        < {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a","update":{"sessionUpdate":"agent_message_clear","messageId":"m"}}}
        < {"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}
        > {"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"a","prompt":[{"type":"text","text":"And?"}]}}
        "#,
    );
    insta::assert_snapshot!(transcript.render(), @r#"
    ## connection

    → initialize v1 editor 1.2
      can _meta = {"duologue":{"messageClear":true}}
      can fs readTextFile writeTextFile = false
      can terminal
    ← initialize v1 agent 3
      can loadSession
      can sessionCapabilities close list
      auth login "Log in" {"description":null}
    ← noise "Loading models…" (the line is not JSON (-32700))

    ## session a

    → session/new /home/me
      mcp server files /bin/mcp -v {"env":[]}
    ← session/new {"models":{"now":"m"}}
      mode ask
        ask "Ask"
        code "Code" "Writes"
    → session/prompt
      "Fix it"
      resource_link file:///main.rs "main.rs"
    ← agent_message m
      | Let me see:
      |
      | - one
      |
    ← agent_message_clear m
    ← session/prompt end_turn

    → session/prompt "And?" (no answer)

    ## session b

    → session/new /home/you
    ← session/new ok
    → session/prompt "Hi"
    ← session/prompt error -32000 "Log in first" {"data":{"methods":["login"]}}

    ## stderr

    | a warning
    "#);
    insta::assert_snapshot!(transcript.fold(), @r#"
    ## session a

    user
      "Fix it"
      resource_link file:///main.rs "main.rs"
    agent m (empty)
    user "And?"

    ## session b

    user "Hi"
    "#);
}

#[test]
fn session_updates() {
    let transcript = updates(&[
        r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"Edit main.rs","kind":"edit","status":"pending","locations":[{"path":"/main.rs","line":7},{"path":"/b c.rs","line":null}],"rawInput":{"b":1,"a":2},"name":"edit"}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","content":[{"type":"diff","path":"/main.rs","oldText":"a\nb\nc\n","newText":"a\nB\nc\n"},{"type":"diff","path":"/new.rs","oldText":null,"newText":"x"},{"type":"terminal","terminalId":"sh"},{"type":"content","content":{"type":"text","text":"one\n  two"}},{"type":"hologram","size":3}],"rawOutput":"done"}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[]}"#,
        r#"{"sessionUpdate":"plan","entries":[{"content":"Look","priority":"high","status":"completed"},{"content":"Think","priority":"low","status":"in_progress"},{"content":"Do","priority":"medium","status":"pending"},{"content":"Undo","priority":"low","status":"skipped"}]}"#,
        r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"web","description":"Search","input":{"hint":"query"}},{"name":"test","description":"Run tests","input":null}]}"#,
        r#"{"sessionUpdate":"current_mode_update","currentModeId":"code"}"#,
        r#"{"sessionUpdate":"config_option_update","configOptions":[{"id":"model","name":"Model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small"}]},{"id":"fast","name":"Fast","type":"boolean","currentValue":true}]}"#,
        r#"{"sessionUpdate":"session_info_update","title":"A title","updatedAt":null}"#,
        r#"{"sessionUpdate":"usage_update","used":10,"size":200,"cost":{"amount":0.5,"currency":"EUR"}}"#,
        r#"{"sessionUpdate":"notice","severity":"warning","title":"Slow","description":"Very"}"#,
        r#"{"sessionUpdate":"compaction_update","compactionId":"c","status":"in_progress"}"#,
        r#"{"sessionUpdate":"compaction_summary_chunk","compactionId":"c","content":{"type":"text","text":"Sh"}}"#,
        r#"{"sessionUpdate":"compaction_summary_chunk","compactionId":"c","content":{"type":"text","text":"ort"}}"#,
        r#"{"sessionUpdate":"mood","mood":"\u001b[31mred"}"#,
        r#""not an object""#,
    ]);
    insta::assert_snapshot!(transcript.render(), @r#"
    ## session s

    ← tool_call t edit pending "Edit main.rs" {"name":"edit"}
      at /main.rs:7
      at "/b c.rs"
      rawInput {"a":2,"b":1}
    ← tool_call_update t completed
      diff /main.rs
          a
        - b
        + B
          c
      new file /new.rs
        + x
      terminal sh
      | one
      |   two
      {"size":3,"type":"hologram"}
      rawOutput "done"
    ← tool_call_update t {"content":[]}
    ← plan
      [x] "Look" high
      [~] "Think" low
      [ ] "Do" medium
      [?] "Undo" low {"status":"skipped"}
    ← available_commands_update
      /web … "query" "Search"
      /test "Run tests" {"input":null}
    ← current_mode_update code
    ← config_option_update
      option model = big select "Model"
        big "Big"
        small "Small"
      option fast = true boolean "Fast"
    ← session_info_update "A title" {"updatedAt":null}
    ← usage_update 10 of 200 0.5 EUR
    ← notice warning "Slow" "Very"
    ← compaction_update c in_progress
    ← compaction_summary c "Short"
    ← session/update {"mood":"\u001b[31mred","sessionUpdate":"mood"}
    ← session/update {"update":"not an object"}
    "#);
}

#[test]
fn chunks_are_joined_when_nothing_but_their_text_differs() {
    let chunks = [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}"#,
        r#"{"content":{"text":"b","type":"text"},"sessionUpdate":"agent_message_chunk"}"#,
        r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"c"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"d"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"1","content":{"type":"text","text":"e"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"2","content":{"type":"text","text":"f"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"2","content":{"type":"text","text":"g","annotations":{"priority":1}}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"2","_meta":{"x":1},"content":{"type":"text","text":"h"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"2","_meta":{"x":1},"content":{"type":"text","text":"i"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"2","content":{"type":"image","mimeType":"image/png","data":"AAAA"}}"#,
    ];
    insta::assert_snapshot!(updates(&chunks).render(), @r#"
    ## session s

    ← agent_message "ab"
    ← agent_thought "c"
    ← agent_message "d"
    ← agent_message 1 "e"
    ← agent_message 2 "f"
    ← agent_message 2 "g" {"annotations":{"priority":1}}
    ← agent_message 2 "hi" {"_meta":{"x":1}}
    ← agent_message 2 image image/png AAAA
    "#);
    let single = RenderOptions::new().single_chunks(true).times(true).script(&updates(&chunks[..2]));
    insta::assert_snapshot!(single, @r#"
    ## session s

           0.000 ← agent_message_chunk "a"
           1.500 ← agent_message_chunk "b"
    "#);
}

#[test]
fn requests_of_an_agent_to_its_client() {
    let transcript = requests(&[
        (
            "<",
            "session/request_permission",
            r#"{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Delete it"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once","_meta":{"key":"Esc"}}]}"#,
            r#""result":{"outcome":{"outcome":"selected","optionId":"y"}}"#,
        ),
        (
            "<",
            "session/request_permission",
            r#"{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}"#,
            r#""result":{"outcome":{"outcome":"cancelled"}}"#,
        ),
        (
            "<",
            "fs/read_text_file",
            r#"{"sessionId":"s","path":"/a.rs","line":2,"limit":10}"#,
            r#""result":{"content":"fn main() {\n}\n"}"#,
        ),
        ("<", "fs/write_text_file", r#"{"sessionId":"s","path":"/a.rs","content":"x"}"#, r#""result":null"#),
        (
            "<",
            "terminal/create",
            r#"{"sessionId":"s","command":"cargo","args":["test","-p","a b"],"cwd":"/src","env":[{"name":"CI","value":"1"}],"outputByteLimit":1000}"#,
            r#""result":{"terminalId":"sh"}"#,
        ),
        (
            "<",
            "terminal/output",
            r#"{"sessionId":"s","terminalId":"sh"}"#,
            r#""result":{"output":"ok\n","truncated":true,"exitStatus":{"exitCode":0,"signal":null}}"#,
        ),
        (
            "<",
            "terminal/wait_for_exit",
            r#"{"sessionId":"s","terminalId":"sh"}"#,
            r#""result":{"exitCode":null,"signal":"SIGTERM"}"#,
        ),
        ("<", "terminal/release", r#"{"sessionId":"s","terminalId":"sh"}"#, r#""result":{}"#),
        (
            "<",
            "elicitation/create",
            r#"{"sessionId":"s","mode":"form","message":"Name?","requestedSchema":{"type":"object","properties":{}}}"#,
            r#""result":{"action":"accept","content":{"name":"x"}}"#,
        ),
        (
            "<",
            "craft/unknown",
            r#"{"sessionId":"s","b":[1,2],"a":{"z":1,"y":2}}"#,
            r#""error":{"code":-32601,"message":"no \"craft\""}"#,
        ),
    ]);
    insta::assert_snapshot!(transcript.render(), @r#"
    ## session s

    ← session/request_permission t "Delete it"
      ? allow_once y "Yes"
      ? reject_once n "No" {"_meta":{"key":"Esc"}}
    → session/request_permission selected y
    ← session/request_permission t {"options":[]}
    → session/request_permission cancelled
    ← fs/read_text_file /a.rs line 2 limit 10
    → fs/read_text_file
      | fn main() {
      | }
      |
    ← fs/write_text_file /a.rs "x"
    → fs/write_text_file null
    ← terminal/create cargo test -p "a b" {"outputByteLimit":1000}
      in /src
      with CI=1
    → terminal/create sh
    ← terminal/output sh
    → terminal/output exit 0 "ok\n" {"truncated":true}
    ← terminal/wait_for_exit sh
    → terminal/wait_for_exit signal SIGTERM
    ← terminal/release sh
    → terminal/release ok
    ← elicitation/create form "Name?"
      requestedSchema {"properties":{},"type":"object"}
    → elicitation/create accept {"content":{"name":"x"}}
    ← craft/unknown {"a":{"y":2,"z":1},"b":[1,2]}
    → craft/unknown error -32601 "no \"craft\""
    "#);
}

#[test]
fn requests_of_a_client_to_its_agent() {
    let transcript = requests(&[
        (">", "authenticate", r#"{"methodId":"login"}"#, r#""result":{}"#),
        (
            ">",
            "session/list",
            r#"{"cwd":"/src"}"#,
            r#""result":{"sessions":[{"sessionId":"s","cwd":"/src","title":"Old"}],"nextCursor":"2"}"#,
        ),
        (
            ">",
            "session/load",
            r#"{"sessionId":"s","cwd":"/src","mcpServers":[],"additionalDirectories":["/lib"]}"#,
            r#""result":null"#,
        ),
        (">", "session/set_mode", r#"{"sessionId":"s","modeId":"code"}"#, r#""result":{"_meta":{"x":1}}"#),
        (
            ">",
            "session/set_config_option",
            r#"{"sessionId":"s","configId":"model","value":"big"}"#,
            r#""result":{"configOptions":[]}"#,
        ),
        (">", "session/close", r#"{"sessionId":"s"}"#, r#""result":{}"#),
        (">", "_example/positional", r#"[1,"two"]"#, r#""result":3"#),
    ]);
    insta::assert_snapshot!(transcript.render(), @r#"
    ## connection

    → authenticate login
    ← authenticate ok
    → session/list /src
    ← session/list {"nextCursor":"2"}
      s /src "Old"
    → _example/positional [1,"two"]
    ← _example/positional 3

    ## session s

    → session/load /src
      also in /lib
    ← session/load null
    → session/set_mode code
    ← session/set_mode {"_meta":{"x":1}}
    → session/set_config_option model = big
    ← session/set_config_option {"configOptions":[]}
    → session/close
    ← session/close ok
    "#);
}

#[test]
fn crossing_requests_are_distinguished() {
    let transcript = transcript(
        r#"
        < {"jsonrpc":"2.0","id":"x","method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}
        < {"jsonrpc":"2.0","id":"y","method":"fs/read_text_file","params":{"sessionId":"s","path":"/b"}}
        > {"jsonrpc":"2.0","id":"y","result":{"content":"b"}}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}
        > {"jsonrpc":"2.0","id":"x","error":{"code":-32800,"message":"cancelled"}}
        < {"jsonrpc":"2.0","id":"z","method":"fs/read_text_file","params":{"sessionId":"s","path":"/c"}}
        "#,
    );
    insta::assert_snapshot!(transcript.render(), @r#"
    ## session s

    ← fs/read_text_file /a
    ← fs/read_text_file #2 /b
    → fs/read_text_file #2 "b"
    ← $/cancel_request fs/read_text_file
    → fs/read_text_file error -32800 "cancelled"
    ← fs/read_text_file /c (no answer)
    "#);
}

#[test]
fn a_withdrawal_ends_only_requests_of_its_side() {
    let transcript = transcript(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
        < {"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}
        < {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        > {"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"cancelled"}}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        < {"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}
        > {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}
        "#,
    );
    insta::assert_snapshot!(transcript.render(), @r#"
    ## session s

    → session/prompt {"prompt":[]}
    ← fs/read_text_file /a
    ← $/cancel_request fs/read_text_file
    → fs/read_text_file error -32800 "cancelled"
    → $/cancel_request session/prompt
    ← session/prompt cancelled

    → $/cancel_request {"requestId":1}
    "#);
}

#[test]
fn noise_and_the_end_of_a_recording() {
    let line = |side, bytes: &[u8]| RecordEvent::Line(RecordedLine::new(side, bytes));
    let events = vec![
        line(Side::Agent, b"npm WARN \"old\"\r"),
        line(Side::Agent, b"\xff{}"),
        line(Side::Agent, b""),
        line(Side::Client, br#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":"oops"}"#),
        line(Side::Agent, br#"{"jsonrpc":"2.0","id":9,"result":{"late":true}}"#),
        line(Side::Agent, br#"{"jsonrpc":"2.0","method":"_x/y","params":{},"trace":"abc"}"#),
        RecordEvent::Dropped { lines: 3, bytes: 400 },
        RecordEvent::Stderr("at \u{202e}last \n".into()),
        RecordEvent::Exit(serde_json::from_str::<ProcessExit>(r#"{"code":3}"#).unwrap()),
        RecordEvent::Eof(Side::Client),
        RecordEvent::Eof(Side::Agent),
    ];
    let records = events.into_iter().map(|event| Record::new(Duration::ZERO, event)).collect();
    insta::assert_snapshot!(Transcript::new(Header::new("a test"), records).render(), @r#"
    ## connection

    ← noise "npm WARN \"old\"\r" (the line is not JSON (-32700))
    ← noise "\\xff{}" (the line is not UTF-8 (-32700))
    → noise {"id":1,"jsonrpc":"2.0","method":"session/prompt","params":"oops"} (params must be an object or an array (-32602))
    ← answer to nothing, id 9 {"late":true}
    ← _x/y beside it {"trace":"abc"}
    … 3 lines (400 bytes) were not recorded

    ## stderr

    | at \u{202e}last \n

    ## end

    → end of output
    ← end of output
    the agent's process ended with code 3
    "#);
}

#[test]
fn the_structured_form() {
    let transcript = requests(&[(
        ">",
        "session/prompt",
        r#"{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}"#,
        r#""result":{"stopReason":"end_turn"}"#,
    )]);
    insta::assert_json_snapshot!(transcript.script(), @r#"
    {
      "sections": [
        {
          "section": "session",
          "id": "s",
          "steps": [
            {
              "from": "client",
              "what": "request",
              "method": "session/prompt",
              "params": {
                "prompt": [
                  {
                    "text": "Hi",
                    "type": "text"
                  }
                ]
              },
              "answered": true
            },
            {
              "from": "agent",
              "what": "response",
              "method": "session/prompt",
              "result": {
                "stopReason": "end_turn"
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn snapshots_redact_and_say_what_is_missing() {
    let transcript = requests(&[(
        ">",
        "session/new",
        r#"{"cwd":"/home/me/project","mcpServers":[]}"#,
        r#""result":{"sessionId":"0b0e4b33-6a57-4d5e-9b0e-0d6f3c2a1b00"}"#,
    )]);
    assert_transcript!(transcript, @r"
    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    ");

    let missing = std::panic::catch_unwind(|| {
        assert_transcript!(Transcript::load("tests/transcripts/nowhere.jsonl"));
    });
    let message = *missing.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("tests/transcripts/nowhere.jsonl: No such file"), "{message}");
    assert!(message.contains("duologue record"), "{message}");
}

#[test]
fn a_snapshot_in_a_file() {
    let transcript = transcript("! nothing was said");
    assert_transcript!(&transcript);
}

/// Every message of these tests, with any of its values missing or of another kind: whatever is left in
/// it shows. The gate tries a third of these messages, and a campaign all.
#[test]
fn nothing_is_lost() {
    // The members that name a kind are shown in another form.
    const SILENT: [&str; 11] = [
        "2.0",
        "text",
        "content",
        "diff",
        "pending",
        "in_progress",
        "completed",
        "agent_message_chunk",
        "agent_thought_chunk",
        "compaction_summary_chunk",
        "s",
    ];
    let source = include_str!("rendering.rs");
    let mut tried = 0;
    for line in source.lines().filter_map(|line| {
        let start = line.find("{\"")?;
        serde_json::from_str::<serde_json::Value>(line.get(start..=line.rfind('}')?)?).ok()
    }) {
        let update = line.get("sessionUpdate").is_some();
        for changed in
            variants(&line).into_iter().step_by(if duologue_test_support::runs(0) > 0 { 1 } else { 3 })
        {
            let params = match update {
                true => serde_json::json!({"sessionId": "s", "update": changed}),
                false => changed.clone(),
            };
            let methods: &[&str] = match update {
                true => &["session/update"],
                false => &[
                    "initialize",
                    "authenticate",
                    "session/new",
                    "session/list",
                    "session/prompt",
                    "session/set_config_option",
                    "session/request_permission",
                    "fs/read_text_file",
                    "terminal/create",
                    "terminal/output",
                    "terminal/wait_for_exit",
                    "elicitation/create",
                    "_other",
                ],
            };
            for method in methods {
                let asked =
                    serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
                let answer = serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": params});
                let told = serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params});
                for text in [format!("> {asked}\n< {answer}"), format!("< {told}")] {
                    let shown = transcript(&text).render();
                    for leaf in leaves(&params) {
                        let last = shown.matches(&leaf).count() >= 1;
                        assert!(last || SILENT.contains(&leaf.as_str()), "{leaf:?} of {text}\n{shown}");
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 3_000, "{tried}");
}

/// The value with each of its parts in turn missing or of another kind.
fn variants(value: &serde_json::Value) -> Vec<serde_json::Value> {
    use serde_json::{Value, json};
    let mut all = vec![value.clone()];
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let with = |value| {
                    let mut map = map.clone();
                    map.insert(key.clone(), value);
                    Value::Object(map)
                };
                let mut without = map.clone();
                without.remove(key);
                all.push(without.into());
                all.extend([json!("strange"), json!({"odd": "strange"}), json!(["strange"])].map(with));
                all.extend(variants(inner).into_iter().skip(1).map(with));
            }
        }
        Value::Array(items) => {
            for (place, inner) in items.iter().enumerate() {
                let with = |value| {
                    let mut items = items.clone();
                    items[place] = value;
                    Value::Array(items)
                };
                all.push(with(json!("strange")));
                all.extend(variants(inner).into_iter().skip(1).map(with));
            }
        }
        _ => {}
    }
    all
}

/// The words in the strings and numbers in a value.
fn leaves(value: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match value {
        Value::String(text) => text
            .split(|char: char| !char.is_ascii_alphanumeric() && char != '_' && char != '/')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(map) => map.values().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

/// JavaScript cuts text in the middle of a character; and some numbers are too large for anybody.
#[test]
fn barely_readable_lines_are_not_left_out() {
    let transcript = updates(&[
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83d"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ude00 a smile"}}"#,
        r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"_meta":{"x":1e999}}"#,
    ]);
    assert_transcript!(transcript, @r##"
    ## session [session-1]

    ← agent_message "half �� a smile"
    ← noise "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"[session-1]\",\"update\":{\"sessionUpdate\":\"agent_thought_chunk\",\"content\":{\"type\":\"text\",\"text\":\"hm\"},\"_meta\":{\"x\":1e999}}}}" (a message whose JSON cannot be shown)
    "##);
    assert_eq!(transcript.conversations()[0].conversation.agent_text(), "half \u{fffd}\u{fffd} a smile");
}
