//! The JSON texts that the types read and write.

use duologue_schema::export::definitions;
use duologue_schema::*;
use insta::assert_snapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn write<T: Serialize>(value: T) -> String {
    serde_json::to_string(&value).unwrap()
}

/// Returns `text` as the type `name` reads and writes it, or the message of the error.
fn round_trip(name: &str, text: &str) -> String {
    let definition = definitions().into_iter().find(|definition| definition.name == name).unwrap();
    (definition.round_trip)(text).unwrap_or_else(|error| format!("error: {error}"))
}

/// Returns each line with its round trip through the type `name`.
fn table(name: &str, lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n  -> {}\n", round_trip(name, line))).collect()
}

#[test]
fn a_clear_has_two_forms() {
    let current = SessionNotification::new("s1", SessionUpdate::agent_message_clear(None));
    assert_snapshot!(write(&current), @r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message_clear"}}"#);
    let one = SessionNotification::new("s1", SessionUpdate::agent_message_clear(MessageId::from("m1")));
    assert_snapshot!(write(&one), @r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message_clear","messageId":"m1"}}"#);
    let thought = SessionUpdate::AgentThoughtClear(MessageClear::new().message_id("m2"));
    assert_snapshot!(write(&thought), @r#"{"sessionUpdate":"agent_thought_clear","messageId":"m2"}"#);
    for notification in [current, one] {
        assert_eq!(read::<SessionNotification>(&write(&notification)), notification);
    }
    assert_snapshot!(table("SessionUpdate", &[
        r#"{"sessionUpdate":"agent_message_clear","messageId":null}"#,
        r#"{"sessionUpdate":"agent_message_clear","messageId":7,"_meta":{"a":1}}"#,
    ]), @r#"
    {"sessionUpdate":"agent_message_clear","messageId":null}
      -> {"sessionUpdate":"agent_message_clear"}
    {"sessionUpdate":"agent_message_clear","messageId":7,"_meta":{"a":1}}
      -> {"sessionUpdate":"agent_message_clear","_meta":{"a":1}}
    "#);
}

/// Version 2 replaces the content of messages. Version 1 reads these updates too.
#[test]
fn the_text_of_a_whole_message_replaces_the_text_before_it() {
    let content = r#","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
    for (kind, change, text) in [
        ("agent_message", content, "\nab"),
        ("agent_message", r#","content":[]"#, "\n"),
        ("agent_message", r#","content":null"#, "\n"),
        ("agent_message", r#","_meta":{"k":1}"#, ""),
        ("agent_thought", content, ""),
        ("user_message", content, ""),
    ] {
        let json = format!(r#"{{"sessionUpdate":"{kind}","messageId":"m"{change}}}"#);
        let update = read::<SessionUpdate>(&json);
        assert_eq!((update.to_string().as_str(), update.tag_outside_v1()), (text, Some(kind)), "{json}");
        assert_eq!(write(&update), json);
        assert_eq!(write(update.with_message_id("n")), json.replace(r#""m""#, r#""n""#));
    }
    assert_eq!(SessionUpdate::agent_message("a").tag_outside_v1(), None);
}

#[test]
fn updates() {
    let chunk = ContentChunk::new("hi").message_id("m1");
    assert_snapshot!(
        write(SessionNotification::new("s1", SessionUpdate::AgentMessageChunk(chunk))),
        @r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"},"messageId":"m1"}}"#
    );
    let call = ToolCall::new("c1", "Reading")
        .kind(ToolKind::Read)
        .locations([ToolCallLocation::new("/a").line(3)])
        .content(vec![
            "text".into(),
            ToolCallContent::diff("/a", None, "new"),
            ToolCallContent::terminal("t"),
        ]);
    assert_snapshot!(write(SessionUpdate::from(call.clone())), @r#"{"sessionUpdate":"tool_call","toolCallId":"c1","title":"Reading","kind":"read","content":[{"type":"content","content":{"type":"text","text":"text"}},{"type":"diff","path":"/a","newText":"new"},{"type":"terminal","terminalId":"t"}],"locations":[{"path":"/a","line":3}]}"#);
    let update = ToolCallUpdate::new("c1").status(ToolCallStatus::Completed).content([]);
    assert_snapshot!(write(SessionUpdate::from(update.clone())), @r#"{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[]}"#);
    let mut after = call;
    update.apply_to(&mut after);
    assert_eq!(
        (after.content.len(), after.status.as_str(), after.title.as_str()),
        (0, "completed", "Reading")
    );
}

#[test]
fn capabilities_write_what_is_there() {
    assert_snapshot!(write(InitializeRequest::new(ProtocolVersion::V1)), @r#"{"protocolVersion":1}"#);
    let client =
        ClientCapabilities::new().terminal(true).fs(FileSystemCapabilities::new().read_text_file(true));
    let request = InitializeRequest::new(ProtocolVersion::LATEST)
        .client_capabilities(client)
        .client_info(Implementation::new("editor", "1.0"));
    assert_snapshot!(write(request), @r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true},"clientInfo":{"name":"editor","version":"1.0"}}"#);
}

#[test]
fn capabilities_answer_questions() {
    let bare = ClientCapabilities::new();
    assert!(!bare.has_message_clear() && !bare.has_form_elicitation() && !bare.has_boolean_options());
    let full: ClientCapabilities = read(
        r#"{"session":{"configOptions":{"boolean":{}},"notices":{},"compaction":null},"elicitation":{"form":{}},
            "_meta":{"duologue":{"messageClear":true,"work":{}}}}"#,
    );
    assert!(full.has_message_clear() && full.has_boolean_options() && full.has_notices());
    assert!(full.has_form_elicitation() && !full.has_url_elicitation() && !full.has_compaction());
}

#[test]
fn deep_nesting_is_passed_over_and_kept() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let update = format!(
        r#"{{"unknown":{deep},"rawInput":{deep},"_meta":{{"a":{deep}}},"toolCallId":"c","sessionUpdate":"tool_call_update"}}"#
    );
    let SessionUpdate::ToolCallUpdate(update) = read(&update) else { panic!("another update") };
    assert_eq!(update.raw_input.unwrap().get(), deep);
}

#[test]
fn bad_values_are_forgiven_where_the_schema_says_so() {
    assert_snapshot!(table("InitializeRequest", &[
        r#"{"protocolVersion":1,"clientCapabilities":7,"clientInfo":{"name":"no version"},"_meta":[]}"#,
        r#"{"protocolVersion":1,"clientCapabilities":{"fs":true,"terminal":"yes","elicitation":{"form":{}}}}"#,
        r#"{"protocolVersion":"1"}"#,
        r#"{"protocolVersion":65536}"#,
    ]), @r#"
    {"protocolVersion":1,"clientCapabilities":7,"clientInfo":{"name":"no version"},"_meta":[]}
      -> {"protocolVersion":1}
    {"protocolVersion":1,"clientCapabilities":{"fs":true,"terminal":"yes","elicitation":{"form":{}}}}
      -> {"protocolVersion":1,"clientCapabilities":{"elicitation":{"form":{}}}}
    {"protocolVersion":"1"}
      -> error: invalid type: string "1", expected u16 at line 1 column 22
    {"protocolVersion":65536}
      -> error: invalid value: integer `65536`, expected u16 at line 1 column 24
    "#);
    assert_snapshot!(table("ContentChunk", &[
        r#"{"content":{"type":"text","text":"a"},"messageId":{"a":[1]}}"#,
        r#"{"content":{"type":"text","text":"a","annotations":{"priority":"high","audience":["user",7]}}}"#,
        r#"{"content":{"type":"text","text":7}}"#,
        r#"{"content":{"type":"hologram","data":[1, 2.50]}}"#,
        r#"{"content":{"data":1,"type":"hologram","more":2}}"#,
        r#"{"content":{"text":"no type"}}"#,
    ]), @r#"
    {"content":{"type":"text","text":"a"},"messageId":{"a":[1]}}
      -> {"content":{"type":"text","text":"a"}}
    {"content":{"type":"text","text":"a","annotations":{"priority":"high","audience":["user",7]}}}
      -> {"content":{"type":"text","text":"a","annotations":{"audience":["user"]}}}
    {"content":{"type":"text","text":7}}
      -> error: invalid type: integer `7`, expected a string at line 1 column 34
    {"content":{"type":"hologram","data":[1, 2.50]}}
      -> {"content":{"type":"hologram","data":[1, 2.50]}}
    {"content":{"data":1,"type":"hologram","more":2}}
      -> {"content":{"data":1,"type":"hologram","more":2}}
    {"content":{"text":"no type"}}
      -> error: missing field `type` at line 1 column 29
    "#);
    assert_snapshot!(table("ToolCallUpdate", &[
        r#"{"toolCallId":"c","content":[]}"#,
        r#"{"toolCallId":"c","content":[{"type":"text","text":"bare"}]}"#,
        r#"{"toolCallId":"c","content":[{"type":"terminal"},7]}"#,
        r#"{"toolCallId":"c","content":[{"type":"terminal"},{"type":"terminal","terminalId":"t"}]}"#,
        r#"{"toolCallId":"c","content":"all","locations":null,"status":"paused","kind":3,"rawInput":null}"#,
        r#"{"toolCallId":7}"#,
    ]), @r#"
    {"toolCallId":"c","content":[]}
      -> {"toolCallId":"c","content":[]}
    {"toolCallId":"c","content":[{"type":"text","text":"bare"}]}
      -> {"toolCallId":"c","content":[{"type":"text","text":"bare"}]}
    {"toolCallId":"c","content":[{"type":"terminal"},7]}
      -> {"toolCallId":"c"}
    {"toolCallId":"c","content":[{"type":"terminal"},{"type":"terminal","terminalId":"t"}]}
      -> {"toolCallId":"c","content":[{"type":"terminal","terminalId":"t"}]}
    {"toolCallId":"c","content":"all","locations":null,"status":"paused","kind":3,"rawInput":null}
      -> {"toolCallId":"c","status":"paused"}
    {"toolCallId":7}
      -> error: invalid type: integer `7`, expected a string at line 1 column 15
    "#);
    assert_snapshot!(table("ToolCall", &[
        r#"{"toolCallId":"c","title":"t","status":null,"kind":"juggle","content":null,"locations":[{"path":"/a","line":-1}]}"#,
    ]), @r#"
    {"toolCallId":"c","title":"t","status":null,"kind":"juggle","content":null,"locations":[{"path":"/a","line":-1}]}
      -> {"toolCallId":"c","title":"t","kind":"juggle","locations":[{"path":"/a"}]}
    "#);
    assert_snapshot!(table("Plan", &[
        r#"{"entries":null}"#,
        r#"{"entries":[{"content":"a","priority":"high","status":"blocked"},{"content":"b"}]}"#,
        r#"{}"#,
    ]), @r#"
    {"entries":null}
      -> {"entries":[]}
    {"entries":[{"content":"a","priority":"high","status":"blocked"},{"content":"b"}]}
      -> {"entries":[{"content":"a","priority":"high","status":"blocked"}]}
    {}
      -> error: missing field `entries` at line 1 column 2
    "#);
    assert_snapshot!(table("PromptRequest", &[r#"{"sessionId":"s","prompt":[{"type":"text"}]}"#]), @r#"
    {"sessionId":"s","prompt":[{"type":"text"}]}
      -> error: missing field `text` at line 1 column 42
    "#);
    assert_snapshot!(table("TerminalOutputResponse", &[
        r#"{"output":"","truncated":false,"exitStatus":{"exitCode":-1,"signal":9}}"#,
    ]), @r#"
    {"output":"","truncated":false,"exitStatus":{"exitCode":-1,"signal":9}}
      -> {"output":"","truncated":false,"exitStatus":{}}
    "#);
    assert_snapshot!(table("ReadTextFileRequest", &[
        r#"{"sessionId":"s","path":"/a","line":4294967296}"#,
        r#"{"sessionId":"s","path":"/a","line":null,"limit":3}"#,
    ]), @r#"
    {"sessionId":"s","path":"/a","line":4294967296}
      -> error: invalid value: integer `4294967296`, expected u32 at line 1 column 46
    {"sessionId":"s","path":"/a","line":null,"limit":3}
      -> {"sessionId":"s","path":"/a","limit":3}
    "#);
}

/// A lenient number has the range of its type, and an integer is a number.
#[test]
fn numbers_out_of_range_are_absent() {
    assert_snapshot!(table("ToolCallLocation", &[
        r#"{"path":"/a","line":4294967295}"#,
        r#"{"path":"/a","line":4294967296}"#,
        r#"{"path":"/a","line":1.5}"#,
    ]), @r#"
    {"path":"/a","line":4294967295}
      -> {"path":"/a","line":4294967295}
    {"path":"/a","line":4294967296}
      -> {"path":"/a"}
    {"path":"/a","line":1.5}
      -> {"path":"/a"}
    "#);
    assert_snapshot!(table("IntegerPropertySchema", &[
        r#"{"default":-9223372036854775808}"#,
        r#"{"default":9223372036854775807}"#,
        r#"{"default":9223372036854775808}"#,
    ]), @r#"
    {"default":-9223372036854775808}
      -> {"default":-9223372036854775808}
    {"default":9223372036854775807}
      -> {"default":9223372036854775807}
    {"default":9223372036854775808}
      -> {}
    "#);
    assert_snapshot!(table("NumberPropertySchema", &[
        r#"{"default":3}"#,
        r#"{"default":-3}"#,
        r#"{"default":1.5}"#,
        r#"{"default":"3"}"#,
    ]), @r#"
    {"default":3}
      -> {"default":3.0}
    {"default":-3}
      -> {"default":-3.0}
    {"default":1.5}
      -> {"default":1.5}
    {"default":"3"}
      -> {}
    "#);
}

/// Parts that an update leaves out stay. Those that it has replace the earlier ones.
#[test]
fn an_update_changes_the_parts_that_it_has() {
    let parts = [
        ("title", r#""old""#, r#""new""#),
        ("name", r#""old""#, r#""new""#),
        ("kind", r#""read""#, r#""edit""#),
        ("status", r#""in_progress""#, r#""failed""#),
        (
            "content",
            r#"[{"type":"terminal","terminalId":"old"}]"#,
            r#"[{"type":"terminal","terminalId":"new"}]"#,
        ),
        ("locations", r#"[{"path":"/old"}]"#, r#"[{"path":"/new"}]"#),
        ("rawInput", "1", "2"),
        ("rawOutput", "1", "2"),
        ("_meta", r#"{"k":1}"#, r#"{"k":2}"#),
    ];
    let call = |changed: &str| {
        let value = |(name, old, new): &(&str, &str, &str)| {
            format!(r#","{name}":{}"#, if *name == changed { new } else { old })
        };
        read::<ToolCall>(&format!(r#"{{"toolCallId":"c"{}}}"#, parts.iter().map(value).collect::<String>()))
    };
    for (name, _, new) in parts {
        let mut changed = call("");
        read::<ToolCallUpdate>(&format!(r#"{{"toolCallId":"c","{name}":{new}}}"#)).apply_to(&mut changed);
        assert_eq!(changed, call(name), "{name}");
        assert_ne!(changed, call(""), "{name}");
    }
    let mut same = call("");
    ToolCallUpdate::new("c").apply_to(&mut same);
    assert_eq!(same, call(""));
}

#[test]
fn three_states() {
    assert_snapshot!(table("SessionInfoUpdate", &[
        r#"{}"#,
        r#"{"title":null,"updatedAt":"2026-01-01T00:00:00Z","_meta":null}"#,
        r#"{"title":7,"_meta":7}"#,
    ]), @r#"
    {}
      -> {}
    {"title":null,"updatedAt":"2026-01-01T00:00:00Z","_meta":null}
      -> {"title":null,"updatedAt":"2026-01-01T00:00:00Z","_meta":null}
    {"title":7,"_meta":7}
      -> {}
    "#);
    assert_snapshot!(table("CompactionUpdate", &[
        r#"{"compactionId":"c","status":"completed","summary":null,"error":null}"#,
        r#"{"compactionId":"c","status":"completed","summary":[]}"#,
        r#"{"compactionId":"c","status":"paused","summary":[{"type":"text"}]}"#,
        r#"{"compactionId":"c","status":"in_progress","summary":[7,{"type":"text","text":"a"}]}"#,
    ]), @r#"
    {"compactionId":"c","status":"completed","summary":null,"error":null}
      -> {"compactionId":"c","status":"completed","summary":null,"error":null}
    {"compactionId":"c","status":"completed","summary":[]}
      -> {"compactionId":"c","status":"completed","summary":[]}
    {"compactionId":"c","status":"paused","summary":[{"type":"text"}]}
      -> {"compactionId":"c","status":"paused"}
    {"compactionId":"c","status":"in_progress","summary":[7,{"type":"text","text":"a"}]}
      -> {"compactionId":"c","status":"in_progress","summary":[{"type":"text","text":"a"}]}
    "#);
}

#[test]
fn mistakes_of_peers() {
    assert_snapshot!(table("CurrentModeUpdate", &[r#"{"modeId":"ask"}"#]), @r#"
    {"modeId":"ask"}
      -> {"currentModeId":"ask"}
    "#);
    assert_snapshot!(table("WriteTextFileResponse", &["null"]), @r#"
    null
      -> {}
    "#);
    assert_snapshot!(table("NewSessionResponse", &["null"]), @r#"
    null
      -> error: missing field `sessionId` at line 1 column 4
    "#);
    assert_snapshot!(table("SetSessionConfigOptionRequest", &[
        r#"{"sessionId":"s","configId":"c","value":"v"}"#,
        r#"{"sessionId":"s","configId":"c","type":"id","value":"v"}"#,
        r#"{"sessionId":"s","configId":"c","type":"boolean","value":"v"}"#,
        r#"{"type":"boolean","value":true,"sessionId":"s","configId":"c"}"#,
        r#"{"sessionId":"s","configId":"c","value":true}"#,
    ]), @r#"
    {"sessionId":"s","configId":"c","value":"v"}
      -> {"sessionId":"s","configId":"c","value":"v"}
    {"sessionId":"s","configId":"c","type":"id","value":"v"}
      -> {"sessionId":"s","configId":"c","value":"v"}
    {"sessionId":"s","configId":"c","type":"boolean","value":"v"}
      -> {"sessionId":"s","configId":"c","value":"v"}
    {"type":"boolean","value":true,"sessionId":"s","configId":"c"}
      -> {"sessionId":"s","configId":"c","type":"boolean","value":true}
    {"sessionId":"s","configId":"c","value":true}
      -> error: `value` must be a string, or a boolean with type `boolean` at line 1 column 45
    "#);
    assert_snapshot!(table("McpServer", &[
        r#"{"name":"n","command":"/bin/n"}"#,
        r#"{"type":"stdio","name":"n","command":"/bin/n","args":null,"env":[]}"#,
        r#"{"type":"later","name":"n","command":"/bin/rm"}"#,
        r#"{"type":"http","name":"n"}"#,
        r#"{"name":"n","url":"https://x","headers":null,"type":"http"}"#,
    ]), @r#"
    {"name":"n","command":"/bin/n"}
      -> {"name":"n","command":"/bin/n","args":[],"env":[]}
    {"type":"stdio","name":"n","command":"/bin/n","args":null,"env":[]}
      -> {"name":"n","command":"/bin/n","args":[],"env":[]}
    {"type":"later","name":"n","command":"/bin/rm"}
      -> {"type":"later","name":"n","command":"/bin/rm"}
    {"type":"http","name":"n"}
      -> error: missing field `url` at line 1 column 26
    {"name":"n","url":"https://x","headers":null,"type":"http"}
      -> {"type":"http","name":"n","url":"https://x","headers":[]}
    "#);
    assert_snapshot!(table("AuthMethod", &[
        r#"{"id":"a","name":"n"}"#,
        r#"{"type":"agent","id":"a","name":"n"}"#,
        r#"{"type":"env_var","id":"a","name":"n","vars":["A"]}"#,
        r#"{"type":"terminal","name":"n"}"#,
    ]), @r#"
    {"id":"a","name":"n"}
      -> {"id":"a","name":"n"}
    {"type":"agent","id":"a","name":"n"}
      -> {"id":"a","name":"n"}
    {"type":"env_var","id":"a","name":"n","vars":["A"]}
      -> {"type":"env_var","id":"a","name":"n","vars":["A"]}
    {"type":"terminal","name":"n"}
      -> error: missing field `id` at line 1 column 30
    "#);
    assert_snapshot!(table("ConfigOptionUpdate", &[
        r#"{"configOptions":[{"id":"a","name":"n","type":"slider","min":0},{"id":"b","name":"n","type":"select"}]}"#,
    ]), @r#"
    {"configOptions":[{"id":"a","name":"n","type":"slider","min":0},{"id":"b","name":"n","type":"select"}]}
      -> {"configOptions":[{"id":"a","name":"n","type":"slider","min":0}]}
    "#);
}

#[test]
fn elicitations() {
    assert_snapshot!(table("CreateElicitationRequest", &[
        r#"{"message":"m","mode":"form","sessionId":"s","requestId":1,"requestedSchema":{}}"#,
        r#"{"mode":"url","requestId":null,"elicitationId":"e","url":"https://x","message":"m"}"#,
        r#"{"mode":"voice","sessionId":"s","pitch":[1.50],"message":"m","_meta":{"a":1}}"#,
        r#"{"mode":"form","requestedSchema":{},"message":"m"}"#,
    ]), @r#"
    {"message":"m","mode":"form","sessionId":"s","requestId":1,"requestedSchema":{}}
      -> {"message":"m","mode":"form","sessionId":"s","requestedSchema":{"type":"object","properties":{}}}
    {"mode":"url","requestId":null,"elicitationId":"e","url":"https://x","message":"m"}
      -> {"message":"m","mode":"url","requestId":null,"elicitationId":"e","url":"https://x"}
    {"mode":"voice","sessionId":"s","pitch":[1.50],"message":"m","_meta":{"a":1}}
      -> {"message":"m","mode":"voice","sessionId":"s","pitch":[1.50],"_meta":{"a":1}}
    {"mode":"form","requestedSchema":{},"message":"m"}
      -> error: missing field `sessionId` at line 1 column 50
    "#);
    assert_snapshot!(table("ElicitationPropertySchema", &[
        r#"{"type":"string","format":"ipv6"}"#,
        r#"{"type":"color","default":"red"}"#,
        r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"default":["a",1]}"#,
        r#"{"type":"array","items":{"type":"string","enum":["a"]}}"#,
    ]), @r#"
    {"type":"string","format":"ipv6"}
      -> {"type":"string","format":"ipv6"}
    {"type":"color","default":"red"}
      -> {"type":"color","default":"red"}
    {"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"default":["a",1]}
      -> {"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"default":["a"]}
    {"type":"array","items":{"type":"string","enum":["a"]}}
      -> {"type":"array","items":{"type":"string","enum":["a"]}}
    "#);
    assert_snapshot!(table("CreateElicitationResponse", &[
        r#"{"action":"accept","content":{"a":"x","b":1,"c":1.5,"d":true,"e":["y"]},"_meta":{"k":1}}"#,
        r#"{"action":"later","until":5}"#,
        r#"{"action":"decline","content":null}"#,
    ]), @r#"
    {"action":"accept","content":{"a":"x","b":1,"c":1.5,"d":true,"e":["y"]},"_meta":{"k":1}}
      -> {"action":"accept","content":{"a":"x","b":1,"c":1.5,"d":true,"e":["y"]},"_meta":{"k":1}}
    {"action":"later","until":5}
      -> {"action":"later","until":5}
    {"action":"decline","content":null}
      -> {"action":"decline"}
    "#);
}

#[test]
fn methods() {
    let raw = |text: &str| -> Json { read(text) };
    let decode = |method: &str, text: &str| match ClientRequest::decode(method, Some(raw(text).as_raw())) {
        None => "no such method".to_owned(),
        Some(Ok(request)) => format!("{}: {}", request.method(), write(request)),
        Some(Err(error)) => error.to_string(),
    };
    assert_snapshot!(decode("session/new", r#"{"cwd":"/a","mcpServers":[]}"#), @r#"session/new: {"cwd":"/a","mcpServers":[]}"#);
    assert_snapshot!(decode("session/prompt", r#"{"sessionId":"secret"}"#), @"session/prompt: missing field `prompt` (-32602)");
    assert_snapshot!(decode("session/prompt", r#"{"sessionId":"s","prompt":"missing field `secret`"}"#), @"session/prompt: the params do not fit: `prompt` is invalid (-32602)");
    assert_snapshot!(decode("logout", "null"), @"logout: {}");
    assert_snapshot!(decode("session/update", "{}"), @"no such method");
    assert!(matches!(ClientRequest::decode("logout", None), Some(Ok(ClientRequest::Logout(_)))));
    let answer =
        |text: &str| AgentResponse::read("session/new", &mut serde_json::Deserializer::from_str(text));
    assert_snapshot!(write(answer(r#"{"x":1,"sessionId":"s"}"#).unwrap().unwrap()), @r#"{"sessionId":"s"}"#);
    assert_snapshot!(answer(r#"{"sessionId":1}"#).unwrap().unwrap_err(), @"invalid type: integer `1`, expected a string at line 1 column 14");
    assert!(ClientResponse::read("session/new", serde_json::Value::Null).is_none());
    assert_eq!(METHODS.into_iter().flatten().count(), 25);
    assert_eq!(PromptRequest::METHOD, "session/prompt");
}

#[test]
fn meta() {
    let text = r#"{"sessionId":"s","_meta":{"a": {"b": 1.50}, "\u0061\u00e9": "x"}}"#;
    let mut meta = read::<CancelNotification>(text).meta.unwrap();
    assert_eq!(meta.get::<String>("aé").as_deref(), Some("x"));
    assert_eq!(meta.get::<u8>("a"), None);
    assert_snapshot!(meta.insert("a", serde_json::json!(2)), @r#"{"aé":"x","a":2}"#);
    assert!(meta.keys().eq(["aé", "a"]));
    assert_eq!((meta.is_empty(), Meta::new().is_empty()), (false, true));
    assert_eq!(
        Meta::of(&[("a", 2)].into_iter().collect::<std::collections::BTreeMap<_, _>>()).unwrap().get("a"),
        Some(2)
    );
    assert!(Meta::of(&2).is_err());
}

/// The schema of ACP marks such lists with both `x-deserialize-default-on-error` and
/// `x-deserialize-skip-invalid-items`.
#[test]
fn an_invalid_required_list_reads_as_empty() {
    for list in ["[7]", "null", "\"x\"", "{}"] {
        let update = read::<AvailableCommandsUpdate>(&format!("{{\"availableCommands\":{list}}}"));
        assert_eq!(update.available_commands, [], "{list}");
        let update = read::<ConfigOptionUpdate>(&format!("{{\"configOptions\":{list}}}"));
        assert_eq!(update.config_options, [], "{list}");
        assert_eq!(read::<Plan>(&format!("{{\"entries\":{list}}}")).entries, [], "{list}");
    }
    assert!(serde_json::from_str::<AvailableCommandsUpdate>("{}").is_err(), "the key is required");
}

/// An optional list that replaces another keeps it instead.
#[test]
fn an_invalid_optional_list_reads_as_absent() {
    let content =
        |list: &str| read::<ToolCallUpdate>(&format!("{{\"toolCallId\":\"c\",\"content\":{list}}}")).content;
    assert_eq!(["[7]", "null", "\"x\""].map(content), [None, None, None]);
    assert_eq!(content("[]"), Some(Vec::new()));
    let one = content(r#"[7,{"type":"terminal","terminalId":"t"}]"#);
    assert_eq!(one, Some(vec![ToolCallContent::terminal("t")]));
}

#[test]
fn a_payload_is_never_echoed() {
    for params in [r#""top secret""#, r#"{"protocolVersion":"top secret"}"#, r#"["top secret"]"#] {
        let error =
            ClientRequest::decode("initialize", Some(read::<Json>(params).as_raw())).unwrap().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Many JSON parsers use the last of two equal keys. A message that they read as a selection must not
/// read as a cancellation here, so a repeated tag is an error.
#[test]
fn a_repeated_tag_is_an_error() {
    fn rejects<T: DeserializeOwned>(json: &str) {
        let error = serde_json::from_str::<T>(json).map(drop).expect_err(json).to_string();
        assert!(error.contains("duplicate key"), "{json}: {error}");
    }
    rejects::<RequestPermissionOutcome>(r#"{"outcome":"cancelled","outcome":"selected","optionId":"allow"}"#);
    rejects::<RequestPermissionOutcome>(r#"{"outcome":"selected","optionId":"allow","outcome":"cancelled"}"#);
    rejects::<ContentBlock>(r#"{"type":"text","text":"a","\u0074ype":"text"}"#);
    rejects::<ContentBlock>(r#"{"type":"hologram","type":"text","text":"a"}"#);
    rejects::<ContentBlock>(r#"{"text":"a","type":"text","type":null}"#);
    rejects::<CreateElicitationRequest>(
        r#"{"mode":"url","elicitationId":"e","message":"","mode":"form","requestId":0,"url":""}"#,
    );
    assert!(serde_json::from_str::<ContentBlock>(r#"{"type":null,"type":"text","text":"a"}"#).is_ok());
}

#[test]
fn logins_and_servers_of_every_kind_have_names() {
    for (login, id, description) in [
        (r#"{"id":"a","name":"A","description":"d"}"#, Some("a"), Some("d")),
        (r#"{"type":"terminal","id":"t","name":"A","description":"d"}"#, Some("t"), Some("d")),
        (r#"{"type":"env_var","id":"e","name":"A","vars":[]}"#, Some("e"), None),
        (r#"{"type":"env_var","id":7,"name":"A","description":"d"}"#, None, Some("d")),
    ] {
        let login: AuthMethod = read(login);
        assert_eq!(login.id(), id.map(AuthMethodId::from), "{login:?}");
        assert_eq!(login.name().as_deref(), Some("A"), "{login:?}");
        assert_eq!(login.description().as_deref(), description, "{login:?}");
    }
    for server in [
        r#"{"name":"A","command":"/bin/a","args":[],"env":[]}"#,
        r#"{"type":"http","name":"A","url":"http://localhost","headers":[]}"#,
        r#"{"type":"sse","name":"A","url":"http://localhost","headers":[]}"#,
        r#"{"type":"acp","name":"A","serverId":"1"}"#,
    ] {
        assert_eq!(read::<McpServer>(server).name().as_deref(), Some("A"), "{server}");
    }
}

/// Of two members with one name the last counts, also in a login of a kind that is not known.
#[test]
fn the_last_name_of_an_unknown_login_counts() {
    let login: AuthMethod =
        read(r#"{"name":"first","type":"later","id":"a","name":"second","id":"b","deep":{"id":"c"}}"#);
    assert_eq!((login.id(), login.name().as_deref()), (Some("b".into()), Some("second")));
}
