//! The built-in stages.

use duologue_proxy::{
    PathMap, PermissionPolicy, PermissionRule, Proxy, RecordStage, Recorder, RedactStage, Secrets,
    SystemPromptStage,
};
use duologue_transcript::RecordEvent;
use serde_json::{Value, json};

use crate::setup::{Place, in_every_place};

in_every_place!(
    a_record_has_every_line_before_it_is_passed_on,
    secrets_are_removed_from_what_a_user_reads,
    permissions_are_answered_by_the_kind_of_the_tool,
    a_policy_cannot_be_passed_with_params_that_only_others_read,
    a_policy_cannot_be_passed_with_a_line_that_only_others_read,
    paths_are_mapped_in_both_directions,
    a_strict_map_rejects_other_folders,
    instructions_go_into_the_system_prompt_if_the_agent_supports_it,
    instructions_go_before_the_first_prompt_else,
);

const KEY: &str = "sk-proj-0123456789abcdefghij";

fn options() -> Value {
    json!([
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
        {"optionId": "never", "name": "Never", "kind": "reject_always"},
    ])
}

mod tests {
    use super::*;

    pub(super) async fn a_record_has_every_line_before_it_is_passed_on(place: Place) {
        let recorder = Recorder::in_memory().unwrap();
        let (mut client, mut agent) = place.peers(Proxy::new().stage(RecordStage::new(recorder.clone())));
        client.write("{\"jsonrpc\":\"2.0\",\"method\":\"_a\"}\r\nlog\n").await;
        agent.expect("_a").await;
        let lines = |transcript: &duologue_transcript::Transcript| {
            let lines = transcript.records().iter().filter_map(|record| record.line());
            lines.map(|line| (line.from, line.end, line.bytes().to_vec())).collect::<Vec<_>>()
        };
        use duologue_transcript::{LineEnd, Side};
        let transcript = recorder.transcript().await.unwrap();
        assert_eq!(
            lines(&transcript)[0],
            (Side::Client, LineEnd::CrLf, b"{\"jsonrpc\":\"2.0\",\"method\":\"_a\"}".to_vec())
        );
        assert_eq!(agent.next_line().await.as_deref(), Some("log"));
        agent.send(format!(r#"{{"jsonrpc":"2.0","method":"_b","params":{{"k":"{KEY}"}}}}"#)).await;
        assert_eq!(client.expect("_b").await["params"]["k"], KEY);
        client.close().await;
        agent.read_to_end().await;
        agent.close().await;
        client.read_to_end().await;
        let transcript = recorder.transcript().await.unwrap();
        assert!(String::from_utf8_lossy(&lines(&transcript)[2].2).contains("[secret]"));
        let ends =
            transcript.records().iter().filter(|record| matches!(record.event, RecordEvent::Eof { .. }));
        assert_eq!(ends.count(), 2);
    }

    pub(super) async fn secrets_are_removed_from_what_a_user_reads(place: Place) {
        let secrets = Secrets::default().pattern(r"ACME-\d+").unwrap();
        let (mut client, mut agent) = place.peers(Proxy::new().stage(RedactStage::new().secrets(secrets)));
        agent.send_chunk("s", &format!("the key is {KEY}, ACME-17")).await;
        let update = client.expect("session/update").await;
        assert_eq!(update["params"]["update"]["content"]["text"], "the key is [secret], [secret]");
        // In pieces.
        for piece in ["again sk-proj-0123456789", "abcdefghij", " and more"] {
            agent.send_chunk("s", piece).await;
        }
        let mut text = String::new();
        for _ in 0..3 {
            let update = client.expect("session/update").await;
            text.push_str(update["params"]["update"]["content"]["text"].as_str().unwrap());
        }
        assert!(!text.contains("abcdefghij") && text.ends_with(" and more"), "{text}");
        agent.send(format!("warning: token {KEY}")).await;
        assert_eq!(client.next_line().await.as_deref(), Some("warning: token [secret]"));
        let call = json!({"toolCallId": "t", "title": format!("curl -H 'Authorization: Bearer {KEY}'")});
        let asked = json!({"sessionId": "s", "toolCall": call, "options": options()});
        agent
            .send(json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": asked}))
            .await;
        let asked = client.expect("session/request_permission").await.to_string();
        assert!(!asked.contains(KEY) && asked.contains("always"), "{asked}");
        // Files keep them, and so does everything of the client.
        agent.send(json!({"jsonrpc": "2.0", "id": 2, "method": "fs/write_text_file", "params": {"content": KEY}})).await;
        let write = client.expect("fs/write_text_file").await;
        assert_eq!(write["params"]["content"], KEY);
        client.respond(&write, json!({"content": KEY})).await;
        assert_eq!(agent.next_message().await["result"]["content"], KEY);
    }

    pub(super) async fn permissions_are_answered_by_the_kind_of_the_tool(place: Place) {
        let policy = PermissionPolicy::new()
            .rule("execute", PermissionRule::Deny)
            .rule("read", PermissionRule::Allow)
            .rule("fetch", PermissionRule::Allow);
        let (mut client, mut agent) = place.peers(Proxy::new().stage(policy));
        let selected = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
        let ask = |call: Value| json!({"sessionId": "s", "toolCall": call, "options": options()});
        let decided = [
            (ask(json!({"toolCallId": "1", "kind": "execute"})), selected("no")),
            (ask(json!({"toolCallId": "2", "kind": "read"})), selected("yes")),
            // Version 2.
            (
                json!({"sessionId": "s", "title": "Run it?", "options": options(),
                    "subject": {"type": "command", "command": "rm", "cwd": "/"}}),
                selected("no"),
            ),
            (
                json!({"sessionId": "s", "title": "Read it?", "options": options(),
                    "subject": {"type": "tool_call", "toolCall": {"toolCallId": "3", "kind": "read"}}}),
                selected("yes"),
            ),
            (
                json!({"sessionId": "s", "title": "?", "options": options(), "toolCall": {"toolCallId": "3", "kind": "read"},
                    "subject": {"type": "tool_call", "toolCall": {"toolCallId": "4", "kind": "execute"}}}),
                selected("no"),
            ),
            // Nothing to select.
            (
                json!({"sessionId": "s", "toolCall": {"toolCallId": "4", "kind": "execute"}, "options": []}),
                json!({"outcome": {"outcome": "cancelled"}}),
            ),
            // Several to select.
            (
                json!({"sessionId": "s", "toolCall": {"toolCallId": "4", "kind": "execute"}, "options": [
                    {"optionId": "a", "name": "A", "kind": "reject_once"},
                    {"optionId": "b", "name": "B", "kind": "reject_once"},
                    {"optionId": "c", "name": "C", "kind": "reject_always"},
                ]}),
                json!({"outcome": {"outcome": "cancelled"}}),
            ),
        ];
        for (params, outcome) in decided {
            assert_eq!(
                agent.request("session/request_permission", params.clone()).await["result"],
                outcome,
                "{params}"
            );
        }
        // The kind of an earlier update.
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": "5", "title": "x", "kind": "execute"});
        agent.notify("session/update", json!({"sessionId": "s", "update": call})).await;
        client.expect("session/update").await;
        let known = ask(json!({"toolCallId": "5"}));
        assert_eq!(agent.request("session/request_permission", known).await["result"], selected("no"));
        let other = ask(json!({"toolCallId": "5", "kind": "read"}));
        assert_eq!(agent.request("session/request_permission", other).await["result"], selected("no"));
        // In every spelling. The last of two members with one name counts.
        for kind in [r#""\u006bind":"execute""#, r#""kind":"read","kind":"execute""#] {
            let call = format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"11","title":"x",{kind}}}"#);
            let params = format!(r#"{{"sessionId":"s","update":{call}}}"#);
            agent.send(format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#)).await;
            client.expect("session/update").await;
            let call = ask(json!({"toolCallId": "11", "kind": "read"}));
            assert_eq!(
                agent.request("session/request_permission", call).await["result"],
                selected("no"),
                "{kind}"
            );
            let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "11", "kind": "read"});
            agent.notify("session/update", json!({"sessionId": "s", "update": call})).await;
            client.expect("session/update").await;
        }
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": "10", "title": "x", "kind": "edit"});
        agent.notify("session/update", json!({"sessionId": "s", "update": call})).await;
        client.expect("session/update").await;
        // Everything else is a question for the client.
        let asked = [
            json!({"sessionId": "s", "toolCall": {"toolCallId": "2", "kind": "read"}, "options": [
                {"optionId": "a", "name": "A", "kind": "allow_once"},
                {"optionId": "b", "name": "B", "kind": "allow_once"},
            ]}),
            ask(json!({"toolCallId": "6"})),
            ask(json!({"toolCallId": "10", "kind": "read"})),
            // The kinds of calls with long ids are not kept.
            ask(json!({"toolCallId": "x".repeat(257), "kind": "read"})),
            ask(json!({"toolCallId": "7", "kind": "edit"})),
            ask(json!({"toolCallId": "8", "kind": "_own"})),
            json!({"sessionId": "s", "toolCall": {"toolCallId": "9", "kind": "fetch"},
                "options": [{"optionId": "always", "name": "Always", "kind": "allow_always"}]}),
            json!({"sessionId": "s", "title": "?", "subject": {"type": "_own"}, "options": options()}),
            json!({"sessionId": "s", "title": "?", "toolCall": {"toolCallId": "3", "kind": "read"},
                "subject": {"type": "_own"}, "options": options()}),
        ];
        for params in asked {
            let id = agent.send_request("session/request_permission", params.clone()).await;
            let request = client.expect("session/request_permission").await;
            assert_eq!((&request["params"], &request["id"]), (&params, &json!(id)));
        }
        let policy =
            PermissionPolicy::new().rule("read", PermissionRule::Allow).otherwise(PermissionRule::Deny);
        let (_client, mut agent) = place.peers(Proxy::new().stage(policy));
        for call in [json!({"toolCallId": "6"}), json!({"toolCallId": "8", "kind": "_own"})] {
            assert_eq!(
                agent.request("session/request_permission", ask(call)).await["result"],
                selected("no")
            );
        }
    }

    /// The schema ignores a value of the wrong type, and takes one of two members with the same name.
    pub(super) async fn a_policy_cannot_be_passed_with_params_that_only_others_read(place: Place) {
        let request = |params: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{{{params}}}}}"#
            )
        };
        let options = options();
        let unreadable = [
            format!(r#""sessionId":"s","sessionId":"s","toolCall":{{"toolCallId":"1"}},"options":{options}"#),
            format!(
                r#""sessionId":"s","toolCall":{{"toolCallId":"1","kind":"execute","kind":"read"}},"options":{options}"#
            ),
            format!(
                r#""sessionId":"s","toolCall":{{"toolCallId":"1","kind":["execute"]}},"options":{options}"#
            ),
            format!(
                r#""sessionId":"s","toolCall":{{"toolCallId":"\ud800","kind":"execute"}},"options":{options}"#
            ),
            format!(
                r#""sessionId":"s","toolCall":{{"toolCallId":"1","kind":"execute"}},"subject":"x","options":{options}"#
            ),
        ];
        for rule in ["execute", "_own"] {
            let policy = PermissionPolicy::new().rule(rule, PermissionRule::Deny);
            let (_client, mut agent) = place.peers(Proxy::new().stage(policy));
            for params in &unreadable {
                agent.send(request(params)).await;
                assert_eq!(agent.next_message().await["error"]["code"], -32602, "{params}");
            }
        }
        let (mut client, mut agent) = place.peers(Proxy::new().stage(PermissionPolicy::new()));
        for params in &unreadable {
            agent.send(request(params)).await;
            assert_eq!(client.next_line().await, Some(request(params)));
        }
    }

    pub(super) async fn a_policy_cannot_be_passed_with_a_line_that_only_others_read(place: Place) {
        let policy = PermissionPolicy::new().otherwise(PermissionRule::Deny);
        let (mut client, mut agent) = place.peers(Proxy::new().stage(policy));
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"session/update","method":"session/request_permission","params":{}}"#;
        agent.send(request).await;
        assert_eq!(agent.next_message().await["error"]["code"], -32600);
        agent.send(format!("[{request}]")).await;
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{}}"#;
        // Some programs remove these characters, or end a line there.
        for before in ["\u{a0}", " \u{feff}", "\u{0}", "\u{1f}", "\u{2028}", "log\r", "log\u{2029}"] {
            agent.send(format!("{before}{request}")).await;
        }
        agent.send(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"_x\",\"params\":[\r{request}\r]}}")).await;
        agent.send("a log line").await;
        assert_eq!(client.next_line().await.as_deref(), Some("a log line"));
    }

    pub(super) async fn paths_are_mapped_in_both_directions(place: Place) {
        let paths = PathMap::new().map("/home/me/p", "/workspace");
        let (mut client, mut agent) = place.peers(Proxy::new().stage(paths));
        let params = |folder: &str| {
            json!({
                "cwd": folder, "additionalDirectories": [format!("{folder}/lib"), "/elsewhere"],
                "mcpServers": [{"name": "m", "command": "/home/me/p/server", "args": ["/home/me/p"], "env": []}],
            })
        };
        client
            .send(json!({"jsonrpc": "2.0", "id": 0, "method": "session/new", "params": params("/home/me/p")}))
            .await;
        let new = agent.expect("session/new").await;
        assert_eq!(new["params"], params("/workspace"));
        agent.respond(&new, json!({"sessionId": "s"})).await;
        assert_eq!(client.next_message().await["result"]["sessionId"], "s");
        let update = |folder: &str| {
            json!({"sessionId": "s", "update": {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "/workspace/a",
                "rawInput": {"path": "/workspace/a"}, "locations": [{"path": format!("{folder}/a"), "line": 1}],
                "content": [{"type": "diff", "path": format!("{folder}/a"), "newText": "/workspace"},
                    {"type": "content", "content": {"type": "resource_link", "name": "a", "uri": format!("file://{folder}/a%20b")}}]}})
        };
        agent.notify("session/update", update("/workspace")).await;
        assert_eq!(client.expect("session/update").await["params"], update("/home/me/p"));
        agent.send_request("fs/read_text_file", json!({"sessionId": "s", "path": "/workspace/a"})).await;
        let read = client.expect("fs/read_text_file").await;
        assert_eq!(read["params"]["path"], "/home/me/p/a");
        client.respond(&read, json!({"content": "/home/me/p"})).await;
        assert_eq!(agent.next_message().await["result"]["content"], "/home/me/p");
        // The params of an extension are opaque.
        agent.notify("_own", json!({"path": "/workspace"})).await;
        assert_eq!(client.expect("_own").await["params"]["path"], "/workspace");
    }

    pub(super) async fn a_strict_map_rejects_other_folders(place: Place) {
        let paths = PathMap::new().map("/home/me/p", "/workspace").strict();
        let (mut client, mut agent) = place.peers(Proxy::new().stage(paths));
        let relative = ["../../../../etc/passwd", "notes.txt", " /workspace/a"];
        for path in ["/etc/passwd", "/workspace/../etc/passwd", "/workspaces"].into_iter().chain(relative) {
            for (method, name) in [("fs/read_text_file", "path"), ("terminal/create", "cwd")] {
                let id = agent.send_request(method, json!({"sessionId": "s", name: path})).await;
                let refused = agent.next_message().await;
                assert_eq!(
                    (&refused["id"], &refused["error"]["code"]),
                    (&json!(id), &json!(-32602)),
                    "{path}"
                );
                assert!(refused["error"]["message"].as_str().unwrap().starts_with(path), "{refused}");
            }
        }
        for uri in [" file:///etc/passwd", "\u{200b}file:///etc/passwd", "\u{1}file:///etc/passwd"] {
            let link =
                json!({"sessionId": "s", "toolCall": {"content": [{"type": "resource_link", "uri": uri}]}});
            agent.send_request("session/request_permission", link).await;
            assert_eq!(agent.next_message().await["error"]["code"], -32602, "{uri:?}");
        }
        client.send_request("session/new", json!({"cwd": "/other", "mcpServers": []})).await;
        assert_eq!(client.next_message().await["error"]["code"], -32602);
        // Updates are not requests: what can be mapped is mapped.
        let locations = |folder: &str| json!({"update": {"locations": [{"path": "/etc"}, {"path": "notes.txt"}, {"path": folder}]}});
        agent.notify("session/update", locations("/workspace")).await;
        assert_eq!(client.expect("session/update").await["params"], locations("/home/me/p"));
    }

    pub(super) async fn instructions_go_into_the_system_prompt_if_the_agent_supports_it(place: Place) {
        let block = json!({"type": "text", "text": "Be brief."});
        for (capabilities, version) in [
            (json!({"agentCapabilities": {"sessionCapabilities": {"systemPrompt": {}}}}), 1),
            (json!({"capabilities": {"session": {"systemPrompt": {}}}}), 2),
        ] {
            let (mut client, mut agent) =
                place.peers(Proxy::new().stage(SystemPromptStage::new("Be brief.")));
            client.send_request("initialize", json!({"protocolVersion": version})).await;
            let initialize = agent.expect("initialize").await;
            agent.respond(&initialize, capabilities).await;
            client.next_message().await;
            client.send_request("session/new", json!({"cwd": "/", "mcpServers": []})).await;
            let new = agent.expect("session/new").await;
            let prompt = json!({"mode": "append", "content": [block]});
            assert_eq!(new["params"], json!({"cwd": "/", "mcpServers": [], "systemPrompt": prompt}));
            let own = json!({"mode": "override", "content": [{"type": "text", "text": "Mine."}]});
            client.send_request("session/resume", json!({"sessionId": "s", "systemPrompt": own})).await;
            let resume = agent.expect("session/resume").await;
            assert_eq!(
                resume["params"]["systemPrompt"]["content"],
                json!([{"type": "text", "text": "Mine."}, block])
            );
            client.send(r#"{"jsonrpc":"2.0","id":"n","method":"session/new","params":{ "b":1e400, "systemPrompt" : null,"a":2}}"#).await;
            let line = agent.next_line().await.unwrap();
            assert!(
                line.contains(r#"{ "b":1e400, "systemPrompt" : {"mode":"append","content":[{"#)
                    && line.contains(r#"]},"a":2}}"#),
                "{line}"
            );
            client.prompt("s", "hi").await;
            assert_eq!(agent.expect("session/prompt").await["params"]["prompt"].as_array().unwrap().len(), 1);
        }
    }

    pub(super) async fn instructions_go_before_the_first_prompt_else(place: Place) {
        let (mut client, mut agent) = place.peers(Proxy::new().stage(SystemPromptStage::new("Be brief.")));
        client.send_request("initialize", json!({"protocolVersion": 1})).await;
        let initialize = agent.expect("initialize").await;
        agent.respond(&initialize, json!({"protocolVersion": 1, "agentCapabilities": {}})).await;
        client.next_message().await;
        client.send_request("session/load", json!({"sessionId": "old"})).await;
        agent.expect("session/load").await;
        let mut texts = async |session: &str, text: &str, result: Value| {
            client.prompt(session, text).await;
            let prompt = agent.expect("session/prompt").await;
            let mut answer = json!({"jsonrpc": "2.0", "id": prompt["id"]});
            answer.as_object_mut().unwrap().append(result.clone().as_object_mut().unwrap());
            agent.send(answer).await;
            client.next_message().await;
            let blocks = prompt["params"]["prompt"].as_array().unwrap().clone();
            blocks.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let done = json!({"result": {"stopReason": "end_turn"}});
        let failed = json!({"error": {"code": -32000, "message": "log in"}});
        assert_eq!(texts("old", "hi", done.clone()).await, ["hi"]);
        assert_eq!(texts("a", "/plan", done.clone()).await, ["/plan"]);
        assert_eq!(texts("a", "one", failed).await, ["Be brief.", "one"]);
        assert_eq!(texts("a", "one", done.clone()).await, ["Be brief.", "one"]);
        assert_eq!(texts("a", "two", done.clone()).await, ["two"]);
        assert_eq!(texts("b", "one", done).await, ["Be brief.", "one"]);
    }
}
