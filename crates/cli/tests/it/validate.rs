//! `duologue validate`, the real binary.

use std::process::Command;

use crate::process::{self, DUOLOGUE};

/// Runs `duologue validate` and returns its output and exit code.
fn validate(args: &[&str], input: &str) -> String {
    let mut command = Command::new(DUOLOGUE);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    process::shown(&process::run(command.arg("validate").args(args).current_dir(folder), input))
}

#[test]
fn a_good_transcript_has_nothing_to_complain_about() {
    insta::assert_snapshot!(validate(&["hello.jsonl"], ""), @r#"
    {"line":2,"from":"client","ok":true,"method":"initialize","kind":"request","lossless":true,"problems":[]}
    {"line":4,"from":"agent","ok":true,"method":"initialize","kind":"response","lossless":true,"problems":[]}
    {"line":5,"from":"client","ok":true,"method":"session/new","kind":"request","lossless":true,"problems":[]}
    {"line":6,"from":"agent","ok":true,"method":"session/new","kind":"response","lossless":true,"problems":[]}
    {"line":7,"from":"client","ok":true,"method":"session/prompt","kind":"request","lossless":true,"problems":[]}
    {"line":8,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[]}
    {"line":9,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[]}
    {"line":10,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[]}
    {"line":11,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[]}
    {"line":12,"from":"agent","ok":true,"method":"session/prompt","kind":"response","lossless":true,"problems":[]}
    10 frames: 0 not ok, 0 more with warnings, 0 not lossless
    exit 0
    "#);
}

#[test]
fn each_fault_is_named() {
    insta::assert_snapshot!(validate(&["faults.jsonl"], ""), @r#"
    {"line":1,"from":"client","ok":true,"method":"initialize","kind":"request","lossless":false,"problems":[{"level":"warning","path":"$.params.clientInfo.mood","problem":"is ignored: no such member is known, or it has not the form it should have"}]}
    {"line":2,"from":"agent","ok":false,"kind":"noise","lossless":true,"problems":[{"level":"error","path":"$","problem":"no message: the line is not JSON (-32700)"}]}
    {"line":3,"from":"agent","ok":true,"method":"initialize","kind":"response","lossless":false,"problems":[{"level":"warning","path":"$.result.agentCapabilities.loadSession","problem":"is ignored: no such member is known, or it has not the form it should have"}]}
    {"line":4,"from":"client","ok":false,"method":"session/new","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params.cwd","problem":"must be absolute"}]}
    {"line":5,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[{"level":"warning","path":"$.params.sessionId","problem":"comes before the response that creates the session"}]}
    {"line":6,"from":"agent","ok":true,"method":"session/new","kind":"response","lossless":true,"problems":[]}
    {"line":7,"from":"client","ok":false,"method":"session/prompt","kind":"request","lossless":false,"problems":[{"level":"error","path":"$.params.prompt[0].text","problem":"invalid type: integer `1`, expected a string"},{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":8,"from":"client","ok":false,"method":"session/prompt","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.id","problem":"2 is in use by the request of line 7, which has no answer yet"},{"level":"error","path":"$.params.sessionId","problem":"names an unknown session"}]}
    {"line":9,"from":"agent","ok":true,"method":"session/prompt","kind":"response","lossless":true,"problems":[]}
    {"line":10,"from":"agent","ok":false,"kind":"response","lossless":true,"problems":[{"level":"error","path":"$.id","problem":"2 has been answered before"}]}
    {"line":11,"from":"agent","ok":false,"kind":"response","lossless":true,"problems":[{"level":"error","path":"$.id","problem":"answers \"9\", which is the id of no request"}]}
    {"line":12,"from":"client","ok":false,"method":"session/update","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is for agents to send, not for clients"}]}
    {"line":13,"from":"agent","ok":false,"method":"session/update","kind":"notification","lossless":false,"problems":[{"level":"error","path":"$.params.update","problem":"missing field `title`"},{"level":"error","path":"$.params.sessionId","problem":"names an unknown session"}]}
    {"line":14,"from":"agent","ok":false,"method":"fs/read_text_file","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params.path","problem":"must be absolute"}]}
    {"line":15,"from":"client","ok":false,"method":"fs/read_text_file","kind":"response","lossless":false,"problems":[{"level":"error","path":"$.result","problem":"missing field `content`"}]}
    {"line":16,"from":"agent","ok":false,"method":"craft/queue","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is no method of the protocol; the names of extensions begin with `_`"},{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":17,"from":"agent","ok":true,"method":"_craft/queue","kind":"request","lossless":true,"problems":[{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":18,"from":"client","ok":false,"method":"session/prompt","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is a request and needs an id"}]}
    {"line":19,"from":"client","ok":false,"method":"session/cancel","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is a notification and has no id"}]}
    {"line":20,"from":"agent","ok":false,"method":"session/cancel","kind":"response","lossless":false,"problems":[{"level":"error","path":"$.jsonrpc","problem":"must be \"2.0\""}]}
    {"line":21,"from":"agent","ok":false,"method":"session/update","kind":"notification","lossless":false,"problems":[{"level":"error","path":"$.params.update.content.text","problem":"holds half a character (a lone surrogate)"}]}
    {"line":22,"from":"agent","ok":false,"kind":"noise","lossless":true,"problems":[{"level":"error","path":"$","problem":"no message: JSON arrays (batches) are not supported (-32600)"}]}
    {"line":23,"from":"agent","ok":false,"kind":"noise","lossless":true,"problems":[{"level":"error","path":"$","problem":"no message: the line is not UTF-8 (-32700)"}]}
    {"line":24,"from":"agent","ok":true,"kind":"noise","lossless":true,"problems":[{"level":"warning","path":"$","problem":"a blank line"}]}
    {"line":25,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":false,"problems":[{"level":"warning","path":"$.params.update[\"note\u202e\"]","problem":"is ignored: no such member is known, or it has not the form it should have"}]}
    {"line":26,"from":"agent","ok":true,"method":"session/update","kind":"notification","lossless":true,"problems":[{"level":"warning","path":"$.params.update.sessionUpdate","problem":"is \"mood\", which is unknown and kept as it is"}]}
    26 frames: 17 not ok, 7 more with warnings, 8 not lossless
    exit 1
    "#);
}

#[test]
fn frames_come_from_standard_input_too() {
    let log = r#"{"from":"client","frame":{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"sessionId":"s","prompt":["hi"]}}}
{"from":"agent","frame":{"jsonrpc":"2.0","id":"a","result":{"stopReason":"tired"}}}
"#;
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":1,"from":"client","ok":false,"method":"session/prompt","kind":"request","lossless":false,"problems":[{"level":"error","path":"$.params.prompt[0]","problem":"invalid type: string \"hi\", expected an object"}]}
    {"line":2,"from":"agent","ok":true,"method":"session/prompt","kind":"response","lossless":true,"problems":[]}
    2 frames: 1 not ok, 0 more with warnings, 1 not lossless
    exit 1
    "#);
    let log = "> {\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"s\"}}\n";
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":1,"from":"client","ok":true,"method":"session/cancel","kind":"notification","lossless":true,"problems":[]}
    1 frame: 0 not ok, 0 more with warnings, 0 not lossless
    exit 0
    "#);
    insta::assert_snapshot!(validate(&["--seen-by", "agent", "-"], log), @r#"
    {"line":1,"from":"agent","ok":false,"method":"session/cancel","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is for clients to send, not for agents"}]}
    1 frame: 1 not ok, 0 more with warnings, 0 not lossless
    exit 1
    "#);
}

#[test]
fn a_duplicate_member_is_reported() {
    let log = r#"> {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"a","sessionId":"b","prompt":[{"type":"text","text":"1","te\u0078t":"2"}]}}
< {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
"#;
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":1,"from":"client","ok":true,"method":"session/prompt","kind":"request","lossless":false,"problems":[{"level":"warning","path":"$.params.sessionId","problem":"is a duplicate; parsers differ in the one they use"},{"level":"warning","path":"$.params.prompt[0].text","problem":"is a duplicate; parsers differ in the one they use"}]}
    {"line":2,"from":"agent","ok":true,"method":"session/prompt","kind":"response","lossless":true,"problems":[]}
    2 frames: 0 not ok, 1 more with warnings, 1 not lossless
    exit 0
    "#);
}

#[test]
fn unreadable_and_invalid_frames_are_reported_differently() {
    insta::assert_snapshot!(validate(&["nothing.jsonl"], ""), @r#"
    error: nothing.jsonl: No such file or directory (os error 2)
    exit 4
    "#);
    insta::assert_snapshot!(validate(&["-"], ""), @r#"
    error: standard input: neither a recording nor a log of JSON-RPC lines
    exit 4
    "#);
    insta::assert_snapshot!(validate(&["-"], "hello\n"), @r#"
    error: standard input: neither a recording nor a log of JSON-RPC lines
    exit 4
    "#);
    let log = "nonsense\n> {\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":1}}\n{\"dir\":";
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":2,"from":"client","ok":true,"method":"$/cancel_request","kind":"notification","lossless":true,"problems":[]}
    1 frame: 0 not ok, 0 more with warnings, 0 not lossless
    error: line 1 is not a record: neither an object nor a direction and a frame
    error: the file ends within a line, which is left out
    exit 4
    "#);
}

/// A missing member that a receiver requires is an error, and one that a sender may omit is not.
#[test]
fn required_members_of_an_envelope_are_checked() {
    let carried = |kind: &str, session: &str, rest: &str| {
        let asks = ["query", "cancel", "ping"].contains(&kind);
        let id =
            if asks { format!(r#""id":"{kind}{}","#, session.len() + rest.len()) } else { String::new() };
        format!(
            r#"{{"from":"client","frame":{{"jsonrpc":"2.0",{id}"method":"_session/{kind}","params":{{{session}"envelope":{{"id":"e","from":"a","to":"b","ts":1,"kind":"{kind}"{rest}}}}}}}}}"#
        )
    };
    let (session, question) = (r#""sessionId":"s","#, r#","payload":{"question":"Who?"}"#);
    let frames = [
        carried("query", session, question),
        carried("query", "", question),
        carried("query", r#""sessionId":null,"#, question),
        carried("cancel", session, r#","ref":"d","payload":{}"#),
        carried("cancel", "", r#","ref":null,"payload":{}"#),
        carried("result", session, r#","payload":{"status":"completed"}"#),
        carried("pong", "", r#","payload":{"status":"idle"}"#),
        carried("ping", "", ""),
        carried("error", "", r#","payload":{"code":"internal"}"#),
    ];
    insta::assert_snapshot!(validate(&["-"], &frames.join("\n")), @r#"
    {"line":1,"from":"client","ok":true,"method":"_session/query","kind":"request","lossless":true,"problems":[{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":2,"from":"client","ok":false,"method":"_session/query","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params","problem":"missing field `sessionId`"},{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":3,"from":"client","ok":false,"method":"_session/query","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params","problem":"missing field `sessionId`"},{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":4,"from":"client","ok":true,"method":"_session/cancel","kind":"request","lossless":true,"problems":[{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":5,"from":"client","ok":false,"method":"_session/cancel","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params","problem":"missing field `sessionId`"},{"level":"error","path":"$.params.envelope","problem":"missing field `ref`"},{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":6,"from":"client","ok":false,"method":"_session/result","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.params.envelope","problem":"missing field `ref`"}]}
    {"line":7,"from":"client","ok":false,"method":"_session/pong","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.params.envelope","problem":"missing field `ref`"}]}
    {"line":8,"from":"client","ok":true,"method":"_session/ping","kind":"request","lossless":true,"problems":[{"level":"warning","path":"$","problem":"has no answer"}]}
    {"line":9,"from":"client","ok":true,"method":"_session/error","kind":"notification","lossless":true,"problems":[]}
    9 frames: 5 not ok, 3 more with warnings, 0 not lossless
    exit 1
    "#);
}

/// Envelopes, dialogues and work orders have types too; other methods that begin with `_` have none.
#[test]
fn messages_between_agents_are_checked() {
    let frames = [
        r#"{"from":"client","frame":{"jsonrpc":"2.0","id":1,"method":"_session/query","params":{"sessionId":"s","envelope":{"id":"e","from":"a","to":"b","ts":1,"kind":"query","payload":{"question":"Who?","mood":"kind"}}}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","id":1,"result":{"envelope":{"v":2,"id":"f","from":"b","to":"a","ts":1,"kind":"pong","ref":"e","payload":{}}}}}"#,
        r#"{"from":"client","frame":{"jsonrpc":"2.0","id":2,"method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"e","from":"a","to":"b","ts":-1,"kind":"delegate","payload":{"priority":"urgent"}},"more":1}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","id":2,"error":{"code":-31005,"message":"full","data":{"envelope":{"v":1,"id":"g","from":"b","to":"a","ts":1,"kind":"error","ref":"e","payload":{"message":"full"}}}}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"s"}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","method":"_session/ping","params":{"envelope":{"v":1,"id":"h","from":"b","to":"a","ts":1,"kind":"ping","ref":null,"payload":{}}}}}"#,
        r#"{"from":"client","frame":{"jsonrpc":"2.0","id":3,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m","session_id":"","sender_id":"agent://a","recipient_id":"agent://b","timestamp":"t","interaction_step":1,"message_type":"inform","content":{}}}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","id":3,"result":{}}}"#,
        r#"{"from":"client","frame":{"jsonrpc":"2.0","id":4,"method":"_session/work","params":{"input":{"context":{"feature_id":"f","workflow":"w"},"paths":{},"task":{"action":"a","params":{}}}}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","id":4,"result":{"output":{"success":true,"summary":"s","artifacts":[{"path":"p","operation":"create"}],"recommendation":"proceed"}}}}"#,
        r#"{"from":"agent","frame":{"jsonrpc":"2.0","method":"_session/sing","params":[1]}}"#,
    ];
    insta::assert_snapshot!(validate(&["-"], &frames.join("\n")), @r#"
    {"line":1,"from":"client","ok":true,"method":"_session/query","kind":"request","lossless":true,"problems":[]}
    {"line":2,"from":"agent","ok":false,"method":"_session/query","kind":"response","lossless":true,"problems":[{"level":"error","path":"$.result.envelope.v","problem":"must be 1, the version that is spoken"},{"level":"error","path":"$.result.envelope.kind","problem":"must be \"response\" here"}]}
    {"line":3,"from":"client","ok":false,"method":"_session/delegate","kind":"request","lossless":false,"problems":[{"level":"error","path":"$.params.envelope.ts","problem":"field `ts` is out of range: -1"},{"level":"error","path":"$.params.envelope.payload","problem":"missing field `task`"}]}
    {"line":4,"from":"agent","ok":false,"method":"_session/delegate","kind":"response","lossless":false,"problems":[{"level":"error","path":"$.error.data.envelope.payload","problem":"missing field `code`"}]}
    {"line":5,"from":"agent","ok":false,"method":"_session/notify","kind":"notification","lossless":false,"problems":[{"level":"error","path":"$.params","problem":"missing field `envelope`"}]}
    {"line":6,"from":"agent","ok":false,"method":"_session/ping","kind":"notification","lossless":true,"problems":[{"level":"error","path":"$.method","problem":"is a request and needs an id"}]}
    {"line":7,"from":"client","ok":false,"method":"_session/dialogue","kind":"request","lossless":true,"problems":[{"level":"error","path":"$.params.message.session_id","problem":"must have 1 to 128 characters"}]}
    {"line":8,"from":"agent","ok":false,"method":"_session/dialogue","kind":"response","lossless":true,"problems":[{"level":"error","path":"$.result","problem":"holds either a receipt or an error"}]}
    {"line":9,"from":"client","ok":false,"method":"_session/work","kind":"request","lossless":false,"problems":[{"level":"error","path":"$.params.input.context","problem":"missing field `iteration`"}]}
    {"line":10,"from":"agent","ok":false,"method":"_session/work","kind":"response","lossless":false,"problems":[{"level":"error","path":"$.result.output.artifacts[0]","problem":"missing field `content`"}]}
    {"line":11,"from":"agent","ok":true,"method":"_session/sing","kind":"notification","lossless":true,"problems":[]}
    11 frames: 9 not ok, 0 more with warnings, 5 not lossless
    exit 1
    "#);
}

/// Members that mean the same as none are left out by some programs and sent by others.
#[test]
fn members_that_mean_nothing_are_no_problem() {
    let log = r#"> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false},"clientInfo":null}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"authMethods":[],"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false},"mcpCapabilities":{},"sessionCapabilities":{}}}}
"#;
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":1,"from":"client","ok":true,"method":"initialize","kind":"request","lossless":true,"problems":[]}
    {"line":2,"from":"agent","ok":true,"method":"initialize","kind":"response","lossless":true,"problems":[]}
    2 frames: 0 not ok, 0 more with warnings, 0 not lossless
    exit 0
    "#);
}

#[test]
fn unknown_capabilities_are_named() {
    let log = r#"> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"telepathy":true,"smell":false}}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"authMethods":[],"agentCapabilities":{"sessionCapabilities":{"list":{},"rewind":{}}}}}
"#;
    insta::assert_snapshot!(validate(&["-"], log), @r#"
    {"line":1,"from":"client","ok":true,"method":"initialize","kind":"request","lossless":false,"problems":[{"level":"warning","path":"$.params.clientCapabilities.telepathy","problem":"is an unknown capability and is ignored"}]}
    {"line":2,"from":"agent","ok":true,"method":"initialize","kind":"response","lossless":false,"problems":[{"level":"warning","path":"$.result.agentCapabilities.sessionCapabilities.rewind","problem":"is an unknown capability and is ignored"}]}
    2 frames: 0 not ok, 2 more with warnings, 2 not lossless
    exit 0
    "#);
}

#[test]
fn relative_paths_of_tool_calls_are_errors() {
    let log = r#"> {"jsonrpc":"2.0","id":0,"method":"session/new","params":{"cwd":"/w","additionalDirectories":["/x","y"],"mcpServers":[]}}
< {"jsonrpc":"2.0","id":0,"result":{"sessionId":"s"}}
< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","locations":[{"path":"/a"},{"path":"C:\\b"},{"path":"src/c.rs"}],"content":[{"type":"diff","path":"d","newText":""}]}}}
"#;
    let problems: Vec<_> = validate(&["-"], log)
        .lines()
        .filter_map(|line| Some(line.split_once("\"problems\":")?.1.to_owned()))
        .collect();
    insta::assert_snapshot!(problems.join("\n"), @r#"
    [{"level":"error","path":"$.params.additionalDirectories[1]","problem":"must be absolute"}]}
    []}
    [{"level":"error","path":"$.params.update.locations[2].path","problem":"must be absolute"},{"level":"error","path":"$.params.update.content[0].path","problem":"must be absolute"}]}
    "#);
}
