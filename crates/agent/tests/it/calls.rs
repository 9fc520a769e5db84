//! The requests of an agent to its client: their exact params, their results, and the capabilities that they need.

use duologue_agent::schema::{
    CreateElicitationResponse, CreateTerminalRequest, ElicitationSchema, RequestPermissionOutcome,
    TerminalExitStatus, ToolCallUpdate,
};
use duologue_agent::{
    Agent, Error, PermissionOption, PermissionOptionKind, Prompt, Result, StopReason, Turn, serve,
};
use futures::FutureExt;
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Makes the call that the prompt names, and answers with its result as the text of a message.
struct Caller;

impl Agent for Caller {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let result = match prompt.text().as_str() {
            "read" => turn.read_text_file("/a").await?,
            "lines" => turn.read_lines("/a", 7, 3).await?,
            "write" => format!("{:?}", turn.write_text_file("/a", "text").await?),
            "form" => accepted(&turn.elicit_form("Which?", ElicitationSchema::new()).await?),
            "url" => accepted(&turn.elicit_url("Open", "e", "https://example.com").await?),
            "complete" => format!("{:?}", turn.elicitation_complete("e").await?),
            "permission" => {
                let no = PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce);
                match turn.request_permission(ToolCallUpdate::new("call"), vec![no]).await? {
                    RequestPermissionOutcome::Selected(selected) => selected.option_id.to_string(),
                    other => format!("{other:?}"),
                }
            }
            "allowed" => turn.tool_call("T").announce().await?.allowed().await?.to_string(),
            "terminal" => terminal(turn).await?,
            "dropped release" => {
                let terminal = turn.create_terminal("make", ["-x"]).await?;
                assert!(terminal.release().into_future().now_or_never().is_none());
                "dropped".into()
            }
            other => panic!("{other}"),
        };
        turn.message().push(result).await?;
        Ok(StopReason::EndTurn)
    }
}

fn accepted(response: &CreateElicitationResponse) -> String {
    json!(response)["action"].as_str().unwrap_or("none").to_owned()
}

async fn terminal(turn: &Turn) -> Result<String> {
    let mut request = CreateTerminalRequest::new("another", "make");
    (request.args, request.cwd) = (vec!["all".into(), "-x".into()], Some("/src".into()));
    request.output_byte_limit = Some(1000);
    let terminal = turn.create_terminal_with(request).await?;
    assert_eq!(terminal.id().as_str(), "t");
    let output = terminal.output().await?.output;
    terminal.kill().await?;
    let TerminalExitStatus { exit_code, .. } = terminal.wait_for_exit().await?;
    terminal.release().await?;
    Ok(format!("{output} {exit_code:?}"))
}

async fn client_of(capabilities: Value) -> (ScriptedPeer, String) {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(Caller, transport));
    client.initialize(capabilities).await;
    let session = client.new_session().await;
    (client, session)
}

/// Expects a request with these params besides the session, and answers it.
async fn expect(client: &mut ScriptedPeer, session: &str, method: &str, params: Value, result: Value) {
    let request = client.expect(method).await;
    let mut expected = params;
    expected["sessionId"] = json!(session);
    assert_eq!(request["params"], expected, "{method}");
    client.respond(&request, result).await;
}

async fn expect_text(client: &mut ScriptedPeer, text: &str) {
    let update = client.expect("session/update").await;
    assert_eq!(update["params"]["update"]["content"]["text"], text, "{update}");
    assert_eq!(client.next_message().await["result"]["stopReason"], "end_turn");
}

#[tokio::test(start_paused = true)]
async fn every_call_has_its_params_and_its_result() {
    in_time(async {
        let (mut client, session) = client_of(json!({
            "fs": {"readTextFile": true, "writeTextFile": true},
            "terminal": true,
            "elicitation": {"form": {}, "url": {}},
        }))
        .await;
        let no = json!({"optionId": "no", "name": "No", "kind": "reject_once"});
        let accept = json!({"action": "accept", "content": {}});
        let calls = [
            ("read", "fs/read_text_file", json!({"path": "/a"}), json!({"content": "line"}), "line"),
            (
                "lines",
                "fs/read_text_file",
                json!({"path": "/a", "line": 7, "limit": 3}),
                json!({"content": "7"}),
                "7",
            ),
            ("write", "fs/write_text_file", json!({"path": "/a", "content": "text"}), json!({}), "()"),
            (
                "url",
                "elicitation/create",
                json!({"mode": "url", "message": "Open", "elicitationId": "e", "url": "https://example.com"}),
                accept.clone(),
                "accept",
            ),
            (
                "permission",
                "session/request_permission",
                json!({"toolCall": {"toolCallId": "call"}, "options": [no]}),
                json!({"outcome": {"outcome": "selected", "optionId": "no"}}),
                "no",
            ),
        ];
        for (text, method, params, result, expected) in calls {
            client.prompt(&session, text).await;
            expect(&mut client, &session, method, params, result).await;
            expect_text(&mut client, expected).await;
        }

        client.prompt(&session, "form").await;
        let form = client.expect("elicitation/create").await;
        assert_eq!((&form["params"]["mode"], &form["params"]["message"]), (&json!("form"), &json!("Which?")));
        assert_eq!(form["params"]["sessionId"], session);
        client.respond(&form, accept).await;
        expect_text(&mut client, "accept").await;

        client.prompt(&session, "complete").await;
        let complete = client.expect("elicitation/complete").await;
        assert_eq!(complete["params"], json!({"elicitationId": "e"}));
        expect_text(&mut client, "()").await;
    })
    .await;
}

/// The session of the request is that of the turn, whatever the request contains.
#[tokio::test(start_paused = true)]
async fn a_terminal_is_used_through_its_handle() {
    in_time(async {
        let (mut client, session) = client_of(json!({"terminal": true})).await;
        client.prompt(&session, "terminal").await;
        let create =
            json!({"command": "make", "args": ["all", "-x"], "cwd": "/src", "outputByteLimit": 1000});
        let id = || json!({"terminalId": "t"});
        let output = json!({"output": "built", "truncated": false});
        expect(&mut client, &session, "terminal/create", create, id()).await;
        expect(&mut client, &session, "terminal/output", id(), output).await;
        expect(&mut client, &session, "terminal/kill", id(), json!({})).await;
        expect(&mut client, &session, "terminal/wait_for_exit", id(), json!({"exitCode": 3})).await;
        expect(&mut client, &session, "terminal/release", id(), json!({})).await;
        expect_text(&mut client, "built Some(3)").await;
        client.probe().await;

        client.prompt(&session, "dropped release").await;
        let create = json!({"command": "make", "args": ["-x"]});
        expect(&mut client, &session, "terminal/create", create, id()).await;
        // The release is neither withdrawn nor repeated.
        let release = client.expect("terminal/release").await;
        expect_text(&mut client, "dropped").await;
        client.respond(&release, json!({})).await;
        client.probe().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_client_fails_the_call() {
    in_time(async {
        let (mut client, session) =
            client_of(json!({"fs": {"writeTextFile": true, "readTextFile": true}, "terminal": true})).await;
        for (text, method) in [("write", "fs/write_text_file"), ("read", "fs/read_text_file")] {
            client.prompt(&session, text).await;
            let request = client.expect(method).await;
            let error = json!({"code": -32603, "message": "disk full"});
            client.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
            let answer = client.next_message().await;
            assert_eq!(answer["error"]["data"]["method"], method, "{answer}");
        }
        client.prompt(&session, "terminal").await;
        let request = client.expect("terminal/create").await;
        client.respond(&request, json!({"terminalId": "t"})).await;
        let request = client.expect("terminal/output").await;
        client.respond(&request, json!({"output": "", "truncated": false})).await;
        let request = client.expect("terminal/kill").await;
        let error = json!({"code": -32603, "message": "no such process"});
        client.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        let release = client.expect("terminal/release").await;
        let answer = client.next_message().await;
        assert_eq!(answer["error"]["data"]["method"], "terminal/kill", "{answer}");
        client.respond(&release, json!({})).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_the_permission_allows_a_call() {
    in_time(async {
        let selected = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
        for (outcome, is_allowed) in [
            (selected("allow"), "true"),
            (selected("reject"), "false"),
            (selected("other"), "false"),
            (json!({"outcome": {"outcome": "cancelled"}}), "false"),
        ] {
            let (mut client, session) = client_of(json!({})).await;
            client.prompt(&session, "allowed").await;
            let request = loop {
                let message = client.next_message().await;
                if message["method"] == "session/request_permission" {
                    break message;
                }
            };
            let options = request["params"]["options"].as_array().expect("options");
            let kinds: Vec<_> = options.iter().map(|option| option["kind"].clone()).collect();
            assert_eq!(kinds, ["allow_once", "reject_once"]);
            client.respond(&request, outcome).await;
            let text = loop {
                let message = client.next_message().await;
                if let Some(text) = message["params"]["update"]["content"]["text"].as_str() {
                    break text.to_owned();
                }
            };
            assert_eq!(text, is_allowed);
        }
    })
    .await;
}

/// Each capability allows its own calls and no other.
#[tokio::test(start_paused = true)]
async fn a_capability_allows_its_own_calls() {
    in_time(async {
        let calls = [
            ("read", json!({"fs": {"readTextFile": true}}), "fs/read_text_file"),
            ("lines", json!({"fs": {"readTextFile": true}}), "fs/read_text_file"),
            ("write", json!({"fs": {"writeTextFile": true}}), "fs/write_text_file"),
            ("terminal", json!({"terminal": true}), "terminal/create"),
            ("form", json!({"elicitation": {"form": {}}}), "elicitation/create"),
            ("url", json!({"elicitation": {"url": {}}}), "elicitation/create"),
        ];
        for (_, capabilities, method) in &calls {
            let (mut client, session) = client_of(capabilities.clone()).await;
            for (text, needed, _) in &calls {
                client.prompt(&session, text).await;
                let message = client.next_message().await;
                if needed == capabilities {
                    assert_eq!(message["method"], *method, "{text}");
                    let error = json!({"code": -32603, "message": "no"});
                    client.send(json!({"jsonrpc": "2.0", "id": message["id"], "error": error})).await;
                    assert!(client.next_message().await["error"].is_object());
                } else {
                    assert_eq!(message["error"]["code"], -32603, "{text} with {capabilities}: {message}");
                }
            }
        }
    })
    .await;
}

#[test]
fn an_error_of_a_handler_has_its_code() {
    let codes = [
        (Error::Cancelled, -32800),
        (Error::TurnEnded, -32603),
        (Error::auth_required("no key"), -32000),
        (Error::invalid_params("no"), -32602),
        (Error::not_found("no"), -32002),
        (Error::other("no"), -32603),
    ];
    for (error, code) in codes {
        let text = error.to_string();
        assert_eq!(error.into_wire().code.0, code, "{text}");
    }
}
