//! The validation of frames of the draft of version 2.

use std::fmt::Write as _;
use std::time::Duration;

use duologue_conformance::frames::validate;
use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, Side, Transcript};

const HELLO: &str = r#"
    > {"id":0,"method":"initialize","params":{"protocolVersion":2,"capabilities":{"elicitation":{"form":{}}},"info":{"name":"editor","version":"1"},"clientInfo":{"name":"editor","version":"1"}}}
    < {"id":0,"result":{"protocolVersion":2,"capabilities":{"session":{}},"info":{"name":"agent","version":"3"}}}
    > {"id":1,"method":"session/new","params":{"cwd":"/p"}}
    < {"id":1,"result":{"sessionId":"s"}}
"#;

/// Returns the problems of the lines behind the ones of [`HELLO`].
fn problems(script: &str) -> String {
    let lines = HELLO.trim().lines().chain(script.trim().lines());
    let records = lines.map(|line| {
        let (mark, line) = line.trim_start().split_at_checked(2).unwrap();
        let side = if mark == "> " { Side::Client } else { Side::Agent };
        let line = line.replacen('{', r#"{"jsonrpc":"2.0","#, 1);
        Record::new(Duration::ZERO, RecordEvent::Line(RecordedLine::new(side, line.into_bytes())))
    });
    let mut text = String::new();
    for report in validate(&Transcript::new(Header::new("a test"), records.collect())) {
        for problem in report.problems {
            let level = format!("{:?}", problem.level).to_lowercase();
            let _ = writeln!(text, "{}: {level}: {} {}", report.line, problem.path, problem.problem);
        }
    }
    text
}

#[test]
fn a_turn_by_the_rules_has_no_problems() {
    let script = r#"
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle"}}}
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}
    < {"id":2,"result":{"messageId":"u1"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"Hi"}]}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"Hel"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message","messageId":"m","content":null}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"new","title":null,"capabilities":{"cancel":{}}}}}
    > {"id":3,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"new"}}
    < {"id":3,"result":{}}
    < {"id":0,"method":"elicitation/create","params":{"sessionId":"s","mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}}
    > {"id":0,"result":{"action":"cancel"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_output_chunk","terminalId":"sh","data":"b2sK"}}}
    "#;
    insta::assert_snapshot!(problems(script), @"");
}

#[test]
fn the_order_of_a_turn_is_checked() {
    let script = r#"
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}
    < {"id":2,"result":{"messageId":"u1"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"early"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"x"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"late"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle"}}}
    > {"id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}
    < {"id":3,"result":{"messageId":"u3"}}
    "#;
    insta::assert_snapshot!(problems(script), @r#"
    7: error: $.params.update comes before the state `running`
    10: error: $.params.update ends the work on the message "u1", which is no update yet
    11: error: $.params.update.messageId belongs to the work that the state `idle` has ended
    13: warning: $.params.update.stopReason is missing: it ends foreground work
    15: warning: $ no state `idle` ends the work on the prompt
    "#);
}

/// An offer can be withdrawn, and a permission request can make one.
#[test]
fn only_what_offers_it_is_cancelled() {
    let script = r#"
    > {"id":2,"method":"terminal/cancel","params":{"sessionId":"s","terminalId":"t"}}
    < {"id":2,"error":{"code":-32602,"message":"no"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"t","capabilities":{"cancel":{}}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"t","command":"ls"}}}
    > {"id":3,"method":"terminal/cancel","params":{"sessionId":"s","terminalId":"t"}}
    < {"id":3,"result":{}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"terminal_update","terminalId":"t","exitStatus":{},"capabilities":null}}}
    > {"id":4,"method":"terminal/cancel","params":{"sessionId":"s","terminalId":"t"}}
    < {"id":4,"error":{"code":-32602,"message":"no"}}
    < {"id":0,"method":"session/request_permission","params":{"sessionId":"s","title":"?","subject":{"type":"tool_call","toolCall":{"toolCallId":"c","capabilities":{"cancel":{}}}},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}
    > {"id":5,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"c"}}
    < {"id":5,"result":{}}
    > {"id":0,"result":{"outcome":{"outcome":"cancelled"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","capabilities":null}}}
    > {"id":6,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"c"}}
    < {"id":6,"error":{"code":-32602,"message":"no"}}
    "#;
    insta::assert_snapshot!(problems(script), @r#"
    5: error: $.params.terminalId needs the capability `cancel`, which the other side has not
    12: error: $.params.terminalId needs the capability `cancel`, which the other side has not
    19: error: $.params.toolCallId needs the capability `cancel`, which the other side has not
    "#);
}

#[test]
fn methods_types_and_capabilities_are_those_of_version_2() {
    let script = r#"
    > {"id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/p","mcpServers":[]}}
    < {"id":2,"error":{"code":-32601,"message":"no"}}
    > {"id":3,"method":"session/delete","params":{"sessionId":"s"}}
    < {"id":3,"result":{}}
    > {"id":4,"method":"auth/login","params":{"methodId":"x"}}
    < {"id":4,"result":{}}
    > {"id":5,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"image","data":"","mimeType":"image/png"}]}}
    < {"id":5,"result":{"stopReason":"end_turn"}}
    > {"id":6,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"c"}}
    < {"id":6,"result":{}}
    > {"id":7,"method":"session/resume","params":{"sessionId":"s","cwd":"p","additionalDirectories":["/q"]}}
    < {"id":7,"result":{}}
    < {"id":0,"method":"elicitation/create","params":{"sessionId":"s","mode":"url","message":"?","elicitationId":"e","url":"https://x"}}
    > {"id":0,"result":{"action":"cancel"}}
    < {"id":1,"method":"session/request_permission","params":{"sessionId":"s","title":"?","options":[]}}
    > {"id":1,"result":{"outcome":{"outcome":"cancelled"}}}
    < {"id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/p/a"}}
    > {"id":2,"error":{"code":-32601,"message":"no"}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"current_mode_update","currentModeId":"m"}}}
    < {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","content":[{"type":"diff","changes":[{"operation":"move","oldPath":"a","path":"/b"}]}]}}}
    > {"id":8,"method":"_ask","params":{}}
    "#;
    insta::assert_snapshot!(problems(script), @r#"
    5: error: $.method is no method of version 2; the names of extensions begin with `_`
    7: error: $.method needs the capability `session.delete`, which the other side has not
    9: error: $.method needs the capability `authMethods`, which the other side has not
    11: error: $.params.prompt needs the capability `session.prompt.image`, which the other side has not
    12: error: $.result missing field `messageId`
    13: error: $.params.toolCallId needs the capability `cancel`, which the other side has not
    15: error: $.params.cwd must be absolute
    15: error: $.params.additionalDirectories needs the capability `session.additionalDirectories`, which the other side has not
    17: error: $.params.mode needs the capability `elicitation.url`, which the other side has not
    19: error: $.params.options must have at least one option
    21: error: $.method is no method of version 2; the names of extensions begin with `_`
    23: error: $.params.update missing field `messageId`
    24: warning: $.params.update.sessionUpdate is "current_mode_update", which is unknown and kept as it is
    25: error: $.params.update.content[0].changes[0].oldPath must be absolute
    26: warning: $ has no answer
    "#);
}

/// Clients and agents send nothing that the descriptions of the schema forbid.
#[test]
fn requests_are_complete_and_offered() {
    let script = r#"
    > {"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
    < {"id":2,"error":{"code":-32602,"message":"no"}}
    > {"id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/p","systemPrompt":{"mode":"append","content":[{"type":"text","text":"x"}]}}}
    < {"id":3,"error":{"code":-32602,"message":"no"}}
    > {"id":4,"method":"session/list","params":{"archived":"only"}}
    < {"id":4,"result":{"sessions":[]}}
    > {"id":5,"method":"session/new","params":{"cwd":"/p","mcpServers":[{"type":"acp","name":"T","serverId":"t"}]}}
    < {"id":5,"error":{"code":-32602,"message":"no"}}
    < {"id":0,"method":"session/request_permission","params":{"sessionId":"s","title":"?","options":[{"optionId":"o","name":"O","kind":"allow_once"},{"optionId":"o","name":"N","kind":"reject_once"}]}}
    > {"id":0,"result":{"outcome":{"outcome":"cancelled"}}}
    > {"id":6,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"editor","version":"1"}}}
    < {"id":6,"result":{"protocolVersion":2,"capabilities":{"session":{"fork":{},"systemPrompt":{}}},"info":{"name":"agent","version":"3"},"authMethods":[{"type":"terminal","methodId":"t","name":"T"}]}}
    > {"id":7,"method":"auth/login","params":{"methodId":"t"}}
    < {"id":7,"error":{"code":-32602,"message":"no"}}
    > {"id":8,"method":"session/fork","params":{"sessionId":"s","cwd":"/p","systemPrompt":{"mode":"override","content":[{"type":"text","text":"x"}]}}}
    < {"id":8,"error":{"code":-32602,"message":"no"}}
    > {"id":9,"method":"session/new","params":{"cwd":"/p","systemPrompt":{"mode":"append","content":[]}}}
    < {"id":9,"error":{"code":-32602,"message":"no"}}
    "#;
    insta::assert_snapshot!(problems(script), @r#"
    5: error: $.params.prompt must have at least one block
    7: error: $.params.systemPrompt needs the capability `session.systemPrompt`, which the other side has not
    9: error: $.params.archived needs the capability `session.archive`, which the other side has not
    11: error: $.params.mcpServers needs the capability `session.mcp.acp`, which the other side has not
    13: error: $.params.options must have an id of its own for each option
    17: error: $.params.methodId is a login in a terminal, which has no request
    19: error: $.params.systemPrompt.mode needs the capability `session.systemPrompt.mode.override`, which the other side has not
    21: error: $.params.systemPrompt.content must be one or more blocks of text
    "#);
}

/// A skill is called by the first block, unless the agent takes it anywhere.
#[test]
fn skills_are_those_that_each_side_offers() {
    let commands = r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"available_commands_update","availableCommands":[{"type":"skill","name":"k","description":"K"}]}}}"#;
    let prompt = |id: u8, blocks: &[&str]| {
        let blocks = blocks.join(",");
        let request = format!(
            r#"> {{"id":{id},"method":"session/prompt","params":{{"sessionId":"s","prompt":[{blocks}]}}}}"#
        );
        format!("{request}\n< {{\"id\":{id},\"error\":{{\"code\":-32602,\"message\":\"no\"}}}}\n")
    };
    let (skill, text) = (r#"{"type":"skill","name":"k"}"#, r#"{"type":"text","text":"x"}"#);
    let offered = |id: u8, offered: &str| {
        let request = r#""method":"initialize","params":{"protocolVersion":2,"info":{"name":"editor","version":"1"},"capabilities":{"session":{"commands":{"skill":{}}}}}"#;
        let answer = r#""info":{"name":"agent","version":"3"},"authMethods":[]"#;
        let offered = format!(r#""capabilities":{{"session":{{"prompt":{{"skill":{offered}}}}}}}"#);
        format!(
            "> {{\"id\":{id},{request}}}\n< {{\"id\":{id},\"result\":{{\"protocolVersion\":2,{offered},{answer}}}}}\n"
        )
    };
    let script = [
        format!("< {commands}\n"),
        prompt(2, &[skill]),
        offered(3, "{}"),
        format!("< {commands}\n"),
        prompt(4, &[skill, text]),
        prompt(5, &[text, skill]),
        offered(6, r#"{"inline":{}}"#),
        prompt(7, &[text, skill, skill]),
    ];
    insta::assert_snapshot!(problems(&script.concat()), @r#"
    5: error: $.params.update.availableCommands needs the capability `session.commands.skill`, which the other side has not
    6: error: $.params.prompt needs the capability `session.prompt.skill`, which the other side has not
    13: error: $.params.prompt needs the capability `session.prompt.skill.inline`, which the other side has not
    "#);
}
