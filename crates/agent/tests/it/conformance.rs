//! Duties that the SDK has for every agent: it obeys the client's capabilities, and keeps sessions and terminals in order.
//! The time is paused: a message that never comes fails its test at once.

use std::time::Duration;

use duologue_agent::schema::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    CompactionStatus, CompactionUpdate, CreateElicitationResponse, CreateTerminalRequest,
    DeleteSessionRequest, ElicitationSchema, InitializeRequest, Notice, NoticeSeverity, SessionCapabilities,
    SessionCloseCapabilities, SessionConfigOption, SessionConfigSelectOption, SessionDeleteCapabilities,
    SessionId, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest, ToolCallUpdate,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Does what the prompt names.
struct Conforming;

impl Agent for Conforming {
    fn capabilities(&self) -> AgentCapabilities {
        let sessions = SessionCapabilities::default()
            .delete(SessionDeleteCapabilities::default())
            .close(SessionCloseCapabilities::default());
        AgentCapabilities::default().load_session(true).session_capabilities(sessions)
    }

    async fn new_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        let models = vec![SessionConfigSelectOption::new("small", "Small")];
        let model = SessionConfigOption::select("model", "Model", "small", models);
        let verbose = SessionConfigOption::boolean("verbose", "Verbose", false);
        Ok(SessionSetup::new().config_options(vec![model, verbose]))
    }

    async fn set_config_option(
        &self,
        _: &Context,
        session: &Session,
        _: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        Ok(session.config_options())
    }

    async fn set_mode(&self, _: &Context, session: &Session, request: SetSessionModeRequest) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.mode_changed(request.mode_id).await
    }

    async fn close_session(&self, _: &Context, _: &Session) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        let terminal = AuthMethod::Terminal(Box::new(AuthMethodTerminal::new("tty", "In a terminal")));
        vec![terminal, AuthMethod::Agent(AuthMethodAgent::new("key", "By key"))]
    }

    async fn authenticate(&self, _: &Context, _: AuthenticateRequest) -> Result<()> {
        Ok(())
    }

    /// Fails after ten seconds in a folder named `fails`.
    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        if session.cwd().ends_with("fails") {
            tokio::time::sleep(Duration::from_secs(10)).await;
            return Err(Error::other("no such conversation"));
        }
        session.update(SessionUpdate::agent_message("replayed")).await?;
        Ok(SessionSetup::new())
    }

    /// Takes ten seconds for the session `slow`.
    async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> Result<()> {
        if request.session_id.as_str() == "slow" {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "show" => show(turn).await?,
            "meta" => {
                let meta = json!({"trace": 1});
                turn.set_answer_meta(meta.as_object().cloned().unwrap_or_default());
            }
            "relative" => {
                let mut terminal = CreateTerminalRequest::new("", "true");
                terminal.cwd = Some("a".into());
                let calls = [
                    turn.read_text_file("a").await.map(drop),
                    turn.read_lines("a", 1, 1).await.map(drop),
                    turn.write_text_file("a", "").await,
                    turn.create_terminal_with(terminal).await.map(drop),
                ];
                for called in calls {
                    assert!(
                        matches!(&called, Err(Error::RelativePath { path, .. }) if path == "a"),
                        "{called:?}"
                    );
                    turn.message().push(called.unwrap_err().to_string()).await?;
                }
            }
            "call" => turn.message().push(refused(turn).await).await?,
            "permission" => {
                let outcome = turn.request_permission(ToolCallUpdate::new("call"), Vec::new()).await;
                turn.message().push(format!("{outcome:?}")).await?;
            }
            "terminal" => {
                let terminal = turn.create_terminal("true", ["-x"]).await?;
                turn.message().push("running").await?;
                drop(terminal);
            }
            "release" => turn.create_terminal("true", ["-x"]).await?.release().await?,
            "last words" => {
                turn.cancelled().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                turn.update(SessionUpdate::agent_message("last words")).await?;
            }
            _ => turn.cancelled().await,
        }
        Ok(StopReason::EndTurn)
    }
}

/// Sends updates that only some clients take, and one that all of them do.
async fn show(turn: &Turn) -> Result<()> {
    let notice = || Notice::new(NoticeSeverity::Warning, "slow");
    turn.notice(notice()).await?;
    turn.session().notice(notice()).await?;
    let compaction = || CompactionUpdate::new("c", CompactionStatus::InProgress);
    turn.update(compaction()).await?;
    turn.session().update(compaction()).await?;
    turn.message().push("text").await
}

/// Makes every call that needs a capability. Returns those that the client would have got.
async fn refused(turn: &Turn) -> String {
    let form =
        turn.elicit_form("Which?", ElicitationSchema::new()).await.map(|_: CreateElicitationResponse| ());
    let calls = [
        ("fs.readTextFile", turn.read_text_file("/a").await.map(drop)),
        ("fs.writeTextFile", turn.write_text_file("/a", "text").await),
        ("terminal", turn.create_terminal("true", ["-x"]).await.map(drop)),
        ("elicitation.form", form),
        ("elicitation.url", turn.elicit_url("Open", "e", "https://example.com").await.map(drop)),
    ];
    let is_refused = |(needed, called): &(&str, Result<()>)| matches!(called, Err(Error::NotSupported { capability }) if capability == needed);
    let sent: Vec<_> = calls.iter().filter(|call| !is_refused(call)).map(|(needed, _)| *needed).collect();
    sent.join(" ")
}

/// Gives all sessions the same id.
struct OneId;

impl Agent for OneId {
    async fn new_session_id(&self) -> Result<SessionId> {
        Ok("one".into())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

async fn client_of(capabilities: Value) -> (ScriptedPeer, Value) {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(Conforming, transport));
    let answer = client.initialize(capabilities).await;
    (client, answer)
}

fn load(session: &str, folder: &str) -> Value {
    json!({"sessionId": session, "cwd": format!("/{folder}"), "mcpServers": []})
}

async fn expect_text(client: &mut ScriptedPeer, text: &str) {
    let update = client.expect("session/update").await;
    assert_eq!(update["params"]["update"]["content"]["text"], text, "{update}");
}

async fn expect_answer(client: &mut ScriptedPeer, id: u64) -> Value {
    let answer = client.next_message().await;
    assert_eq!((answer["id"].as_u64(), &answer["method"]), (Some(id), &Value::Null), "{answer}");
    answer
}

/// The updates of a turn, by their kind.
async fn kinds(client: &mut ScriptedPeer, session: &str, prompt: &str) -> Vec<String> {
    let prompt = client.prompt(session, prompt).await;
    let mut kinds = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            return kinds;
        }
        kinds.push(message["params"]["update"]["sessionUpdate"].as_str().expect("an update").to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn updates_that_a_client_did_not_ask_for_are_not_sent() {
    in_time(async {
        for (session, expected) in [
            (json!({}), &["agent_message_chunk"][..]),
            (json!({"notices": {}}), &["notice", "notice", "agent_message_chunk"]),
            (json!({"compaction": {}}), &["compaction_update", "compaction_update", "agent_message_chunk"]),
        ] {
            let (mut client, _) = client_of(json!({ "session": session })).await;
            let session = client.new_session().await;
            assert_eq!(kinds(&mut client, &session, "show").await, expected);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_login_is_offered_to_clients_with_terminals() {
    in_time(async {
        for (auth, offered) in [(json!({}), &["key"][..]), (json!({"terminal": true}), &["tty", "key"])] {
            let (_, answer) = client_of(json!({ "auth": auth })).await;
            let methods = answer["result"]["authMethods"].as_array().expect("methods");
            assert!(methods.iter().map(|method| &method["id"]).eq(offered), "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_client_did_not_offer_are_not_sent() {
    in_time(async {
        let (mut client, _) = client_of(json!({"fs": {}, "elicitation": {}})).await;
        let session = client.new_session().await;
        assert_eq!(kinds(&mut client, &session, "call").await, [""; 0], "a call was sent");
    })
    .await;
}

/// A client may answer a question of a cancelled turn with the code for cancelled requests.
#[tokio::test(start_paused = true)]
async fn a_cancelled_permission_request_is_no_error() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        for (code, expected) in [(-32800, "Ok(Cancelled)"), (-32603, "Err(")] {
            let prompt = client.prompt(&session, "permission").await;
            let question = client.expect("session/request_permission").await;
            let error = json!({"code": code, "message": "no"});
            client.send(json!({"jsonrpc": "2.0", "id": question["id"], "error": error})).await;
            let said = client.expect("session/update").await;
            let text = said["params"]["update"]["content"]["text"].as_str().expect("text");
            assert!(text.starts_with(expected), "{text}");
            expect_answer(&mut client, prompt).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_is_released_once() {
    in_time(async {
        let (mut client, _) = client_of(json!({"terminal": true})).await;
        let session = client.new_session().await;
        for text in ["terminal", "release"] {
            let prompt = client.prompt(&session, text).await;
            let created = client.expect("terminal/create").await;
            client.respond(&created, json!({"terminalId": "t"})).await;
            if text == "terminal" {
                expect_text(&mut client, "running").await;
            }
            let released = client.expect("terminal/release").await;
            assert_eq!(released["params"], json!({"sessionId": session, "terminalId": "t"}));
            client.respond(&released, json!({})).await;
            expect_answer(&mut client, prompt).await;
            client.probe().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_load_waits_for_the_end_of_the_old_turn() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "last words").await;
        client.probe().await;
        let load = client.send_request("session/load", load(&session, "tmp")).await;
        expect_text(&mut client, "last words").await;
        assert_eq!(expect_answer(&mut client, prompt).await["result"]["stopReason"], "cancelled");
        expect_text(&mut client, "replayed").await;
        expect_answer(&mut client, load).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_has_no_turn() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "until it is cancelled").await;
        client.probe().await;
        let delete = client.send_request("session/delete", json!({"sessionId": session})).await;
        expect_answer(&mut client, delete).await;
        assert_eq!(expect_answer(&mut client, prompt).await["result"]["stopReason"], "cancelled");
        let prompt = client.prompt(&session, "again").await;
        assert_eq!(expect_answer(&mut client, prompt).await["error"]["code"], -32002);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_delete_leaves_the_session_that_was_loaded_meanwhile() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let delete = client.send_request("session/delete", json!({"sessionId": "slow"})).await;
        client.probe().await;
        let restored = client.send_request("session/load", load("slow", "tmp")).await;
        expect_text(&mut client, "replayed").await;
        assert!(expect_answer(&mut client, restored).await["result"].is_object());
        assert!(expect_answer(&mut client, delete).await["result"].is_object());
        assert_eq!(kinds(&mut client, "slow", "show").await, ["agent_message_chunk"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_late_leaves_the_session_restored_meanwhile() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let failing = client.send_request("session/load", load("s", "fails")).await;
        client.probe().await;
        let restored = client.send_request("session/load", load("s", "tmp")).await;
        expect_text(&mut client, "replayed").await;
        assert!(expect_answer(&mut client, restored).await["result"].is_object());
        assert_eq!(expect_answer(&mut client, failing).await["error"]["code"], -32603);
        assert_eq!(kinds(&mut client, "s", "show").await, ["agent_message_chunk"]);
    })
    .await;
}

/// A session that was there before a load that fails is the same one afterwards.
#[tokio::test(start_paused = true)]
async fn a_load_that_fails_gives_the_session_back() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        let failing = client.send_request("session/load", load(&session, "fails")).await;
        assert_eq!(expect_answer(&mut client, failing).await["error"]["code"], -32603);
        assert_eq!(kinds(&mut client, &session, "show").await, ["agent_message_chunk"]);
    })
    .await;
}

/// The session that was open before is given back, in whichever order the loads end.
#[tokio::test(start_paused = true)]
async fn two_loads_that_fail_leave_what_was_there() {
    in_time(async {
        for was_open in [false, true] {
            let (mut client, _) = client_of(json!({})).await;
            let session = if was_open { client.new_session().await } else { "s".to_owned() };
            let first = client.send_request("session/load", load(&session, "fails")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let second = client.send_request("session/load", load(&session, "fails")).await;
            for id in [first, second] {
                assert_eq!(expect_answer(&mut client, id).await["error"]["code"], -32603);
            }
            if was_open {
                assert_eq!(kinds(&mut client, &session, "show").await, ["agent_message_chunk"]);
            } else {
                let prompt = client.prompt(&session, "show").await;
                assert_eq!(expect_answer(&mut client, prompt).await["error"]["code"], -32002);
            }
        }
    })
    .await;
}

/// No turn runs in a session whose load may still fail.
#[tokio::test(start_paused = true)]
async fn a_prompt_waits_for_the_load_of_its_session() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let failing = client.send_request("session/load", load("s", "fails")).await;
        let prompt = client.prompt("s", "show").await;
        assert_eq!(expect_answer(&mut client, failing).await["error"]["code"], -32603);
        assert_eq!(expect_answer(&mut client, prompt).await["error"]["code"], -32002);

        let restored = client.send_request("session/load", load("s", "tmp")).await;
        let prompt = client.prompt("s", "show").await;
        expect_text(&mut client, "replayed").await;
        expect_answer(&mut client, restored).await;
        assert_eq!(client.expect("session/update").await["params"]["sessionId"], "s");
        expect_answer(&mut client, prompt).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn options_that_are_on_or_off_are_shown_to_clients_that_take_them() {
    in_time(async {
        for (options, shown) in [(json!({}), &["model"][..]), (json!({"boolean": {}}), &["model", "verbose"])]
        {
            let (mut client, _) = client_of(json!({"session": {"configOptions": options}})).await;
            let answer = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
            let options = answer["result"]["configOptions"].as_array().expect("options");
            assert!(options.iter().map(|option| &option["id"]).eq(shown), "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn relative_paths_are_refused() {
    in_time(async {
        let (mut client, _) =
            client_of(json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true})).await;
        for (method, params) in [
            ("session/new", json!({"cwd": "a", "mcpServers": []})),
            ("session/new", json!({"cwd": "/", "additionalDirectories": ["a"], "mcpServers": []})),
            ("session/load", json!({"sessionId": "s", "cwd": "a", "mcpServers": []})),
            ("session/list", json!({"cwd": "a"})),
        ] {
            let answer = client.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        }
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "relative").await;
        for _ in 0..4 {
            let update = client.expect("session/update").await;
            let text = update["params"]["update"]["content"]["text"].as_str().expect("text");
            assert!(text.contains("\"a\" must be absolute"), "{text}");
        }
        expect_answer(&mut client, prompt).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn content_and_transports_that_the_agent_did_not_offer_are_refused() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        for kind in ["http", "sse"] {
            let server = json!({"type": kind, "name": "n", "url": "https://example.com", "headers": []});
            let answer = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": [server]})).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
        let server = json!({"name": "n", "command": "/bin/n", "args": [], "env": []});
        for (malformed, place) in [
            (json!([server, {"name": "n"}]), "mcpServers[1]"),
            (json!([server, server, 7]), "mcpServers[2]"),
            (json!({"n": server}), "mcpServers"),
        ] {
            let answer = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": malformed})).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert!(answer["error"].to_string().contains(place), "{answer}");
        }
        let session = client.new_session().await;
        for block in [
            json!({"type": "image", "mimeType": "image/png", "data": ""}),
            json!({"type": "audio", "mimeType": "audio/wav", "data": ""}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "text": ""}}),
        ] {
            let params = json!({"sessionId": session, "prompt": [block]});
            let answer = client.request("session/prompt", params).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_introduced_first_and_once() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Conforming, transport));
        let early = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        assert_eq!(early["error"]["code"], -32600, "{early}");
        let first = client.initialize(json!({})).await;
        assert!(first["result"].is_object(), "{first}");
        let second = client.initialize(json!({"session": {"notices": {}}})).await;
        assert_eq!(second["error"]["code"], -32600, "{second}");
        let session = client.new_session().await;
        assert_eq!(kinds(&mut client, &session, "show").await, ["agent_message_chunk"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_prompt_has_the_meta_of_its_turn() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        for (text, meta) in [("meta", json!({"trace": 1})), ("permission", Value::Null)] {
            let prompt = client.prompt(&session, text).await;
            if text == "permission" {
                client.cancel(&session).await;
                let question = client.expect("session/request_permission").await;
                client.respond(&question, json!({"outcome": {"outcome": "cancelled"}})).await;
            }
            assert_eq!(expect_answer(&mut client, prompt).await["result"]["_meta"], meta);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_id_in_use_is_no_id_for_a_new_session() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(OneId, transport));
        client.initialize(json!({})).await;
        let first = client.new_session().await;
        let second = client.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        assert_eq!(second["error"]["code"], -32603, "{second}");
        assert_eq!(kinds(&mut client, &first, "anything").await, [""; 0]);
    })
    .await;
}

/// A request that waits for the end of a session is not made of the one that is loaded in its place.
#[tokio::test(start_paused = true)]
async fn a_request_behind_a_close_fails_with_its_session() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        let close = client.send_request("session/close", json!({"sessionId": session})).await;
        let mode =
            client.send_request("session/set_mode", json!({"sessionId": session, "modeId": "m"})).await;
        client.probe().await;
        let load = client.send_request("session/load", load(&session, "tmp")).await;
        expect_text(&mut client, "replayed").await;
        expect_answer(&mut client, load).await;
        assert!(expect_answer(&mut client, close).await["result"].is_object());
        assert_eq!(expect_answer(&mut client, mode).await["error"]["code"], -32002);
        assert_eq!(kinds(&mut client, &session, "show").await, ["agent_message_chunk"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_cancelled_in_the_line_is_not_begun() {
    in_time(async {
        let (mut client, _) = client_of(json!({})).await;
        let session = client.new_session().await;
        // Nothing is ahead of the first prompt, so it is begun although it is cancelled at once.
        for ahead in [false, true] {
            let mode = json!({"sessionId": session, "modeId": "m"});
            let mode = client.send_request("session/set_mode", mode).await;
            if !ahead {
                client.expect("session/update").await;
                expect_answer(&mut client, mode).await;
            }
            let prompt = client.prompt(&session, "last words").await;
            client.cancel(&session).await;
            if ahead {
                client.expect("session/update").await;
                expect_answer(&mut client, mode).await;
            } else {
                expect_text(&mut client, "last words").await;
            }
            let answer = expect_answer(&mut client, prompt).await;
            assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
        }
    })
    .await;
}
