//! The unstable methods and updates of an agent whose client is scripted.

use std::sync::{Arc, Mutex};

use duologue_agent::schema::{
    AgentAuthCapabilities, AgentCapabilities, ArchiveSessionRequest, AuthAccount, AuthState,
    AuthStatusCapabilities, AuthStatusResponse, AuthStatusUpdateNotification, DisableProviderRequest,
    ListSessionsRequest, ListSessionsResponse, LlmProtocol, McpCapabilities, PlanEntry, PlanEntryPriority,
    PlanEntryStatus, PlanItems, ProviderInfo, ProvidersCapabilities, SessionArchiveCapabilities,
    SessionCapabilities, SessionForkCapabilities, SessionId, SessionListCapabilities,
    SessionResumeCapabilities, SessionStatus, SessionStatusCapabilities, SessionStatusRequest,
    SessionSystemPromptCapabilities, SessionSystemPromptModeCapabilities,
    SessionSystemPromptOverrideCapabilities, SessionTitleCapabilities, SetProviderRequest,
    SetSessionTitleRequest, StateUpdate, UnarchiveSessionRequest, Usage,
};
use duologue_agent::{
    Agent, Context, Error, NewSubagent, Prompt, Result, Session, SessionSetup, StopReason, Subagent, Turn,
    serve,
};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Implements every unstable method, and advertises its field.
#[derive(Default)]
struct Unstable {
    capabilities: AgentCapabilities,
    calls: Mutex<Vec<String>>,
}

impl Unstable {
    fn call(&self, call: impl Into<String>) {
        self.calls.lock().expect("no panic").push(call.into());
    }
}

impl Agent for Unstable {
    fn capabilities(&self) -> AgentCapabilities {
        self.capabilities.clone()
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        if let Some(prompt) = session.system_prompt() {
            self.call(format!("new {} {:?}", prompt.mode.as_str(), prompt.content[0].as_text()));
        }
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.call(format!("load {}", session.system_prompt().is_some()));
        Ok(SessionSetup::new())
    }

    async fn resume_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.call(format!("resume {}", session.system_prompt().is_some()));
        Ok(SessionSetup::new())
    }

    async fn fork_session(&self, _: &Context, session: &Session, origin: SessionId) -> Result<SessionSetup> {
        if origin == "missing" {
            return Err(Error::not_found("no such session"));
        }
        session.set_commands(Vec::new()).await?;
        self.call(format!("fork {} {}", origin, session.system_prompt().is_some()));
        Ok(SessionSetup::new())
    }

    async fn auth_status(&self, context: &Context) -> Result<AuthStatusResponse> {
        context
            .client()
            .auth_status_changed(AuthStatusUpdateNotification::new(AuthState::Unauthenticated))
            .await?;
        Ok(AuthStatusResponse::new(AuthState::Authenticated).accounts(vec![AuthAccount::new("work")]))
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        Ok(request.page([], 10)?)
    }

    async fn set_session_title(&self, _: &Context, request: SetSessionTitleRequest) -> Result<String> {
        Ok(request.title.trim().to_owned())
    }

    async fn archive_session(&self, _: &Context, request: ArchiveSessionRequest) -> Result<()> {
        self.call(format!("archive {}", request.session_id.as_str().len()));
        Ok(())
    }

    async fn unarchive_session(&self, _: &Context, request: UnarchiveSessionRequest) -> Result<()> {
        self.call(format!("unarchive {}", request.session_id));
        Ok(())
    }

    async fn session_status(&self, _: &Context, request: SessionStatusRequest) -> Result<SessionStatus> {
        match request.session_id.as_str() {
            "saved" => Ok(SessionStatus::Saved),
            _ => Err(Error::not_found("no such session")),
        }
    }

    async fn list_providers(&self, _: &Context) -> Result<Vec<ProviderInfo>> {
        Ok(vec![ProviderInfo::new("main", vec![LlmProtocol::OpenAi], true)])
    }

    async fn set_provider(&self, _: &Context, request: SetProviderRequest) -> Result<()> {
        self.call(format!("set {} {:?}", request.provider_id, request.headers));
        Ok(())
    }

    async fn disable_provider(&self, _: &Context, request: DisableProviderRequest) -> Result<()> {
        self.call(format!("disable {}", request.provider_id));
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "usage" => turn.set_token_usage(Usage::new(3, 1, 2)),
            "wait" => turn.cancelled().await,
            "plan" => {
                let entry = PlanEntry::new("Test", PlanEntryPriority::High, PlanEntryStatus::Pending);
                turn.show_plan(PlanItems::new("a", vec![entry])).await?;
                turn.remove_plan("other").await?;
                turn.remove_plan("a").await?;
            }
            "child" => {
                let child = review(turn).start().await?;
                child.instruct("Look.").await?;
                child.message().with_id("m").push("Fine.").await?;
                let _open = child.tool_call("Read").id("t").start().await?;
                child.set_state(StateUpdate::requires_action()).await?;
                child.report("Done.").await?;
                child.finish(StopReason::EndTurn);
            }
            "pieces" => {
                let child = review(turn).start().await?;
                let mut instruction = child.write_instruction();
                instruction.push("Loo").await?;
                instruction.push("k.").await?;
                let mut report = child.write_report();
                report.push("Done.").await?;
                child.finish(StopReason::EndTurn);
            }
            "outliving" => {
                let child = review(turn).start().await?;
                tokio::spawn(async move { child.cancelled().await });
            }
            "dropped" => drop(review(turn).start().await?),
            "cancellable" => {
                let child: Subagent = review(turn).cancellable().cwd("/elsewhere").start().await?;
                child.cancelled().await;
                assert!(!turn.is_cancelled());
            }
            "relative" => drop(review(turn).cwd("elsewhere").start().await?),
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

fn review(turn: &Turn) -> NewSubagent {
    turn.subagent("Review").description("Reads the change")
}

fn all() -> AgentCapabilities {
    let mode =
        SessionSystemPromptModeCapabilities::new().r#override(SessionSystemPromptOverrideCapabilities::new());
    let session = SessionCapabilities::new()
        .system_prompt(SessionSystemPromptCapabilities::new().mode(mode))
        .resume(SessionResumeCapabilities::new())
        .list(SessionListCapabilities::new())
        .fork(SessionForkCapabilities::new())
        .archive(SessionArchiveCapabilities::new())
        .status(SessionStatusCapabilities::new())
        .title(SessionTitleCapabilities::new());
    AgentCapabilities::new()
        .load_session(true)
        .session_capabilities(session)
        .auth(AgentAuthCapabilities::new().status(AuthStatusCapabilities::new()))
        .providers(ProvidersCapabilities::new())
}

async fn client_of(capabilities: AgentCapabilities, client: Value) -> (ScriptedPeer, Arc<Unstable>, String) {
    let (transport, mut peer) = Wire::Memory.scripted();
    let agent = Arc::new(Unstable { capabilities, ..Unstable::default() });
    tokio::spawn(serve(agent.clone(), transport));
    let response = peer.initialize(client).await;
    assert!(response["result"].is_object(), "{response}");
    let session = peer.new_session().await;
    (peer, agent, session)
}

impl Unstable {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().expect("no panic"))
    }
}

fn prompt_of(mode: &str, text: &str) -> Value {
    json!({"mode": mode, "content": [{"type": "text", "text": text}]})
}

fn setup(session: &str, prompt: &Value) -> Value {
    json!({"sessionId": session, "cwd": "/", "mcpServers": [], "systemPrompt": prompt})
}

#[tokio::test(start_paused = true)]
async fn a_system_prompt_reaches_every_way_to_begin_a_session() {
    in_time(async {
        let (mut client, agent, session) = client_of(all(), json!({})).await;
        for (method, mode) in [
            ("session/new", "append"),
            ("session/new", "override"),
            ("session/load", "append"),
            ("session/resume", "override"),
            ("session/fork", "append"),
        ] {
            client.send_request(method, setup(&session, &prompt_of(mode, "Be brief."))).await;
            let response = client.next_message().await;
            assert!(response["result"].is_object(), "{method}: {response}");
        }
        let _commands = client.next_message().await;
        let expected = [
            "new append Some(\"Be brief.\")".to_owned(),
            "new override Some(\"Be brief.\")".to_owned(),
            "load true".to_owned(),
            "resume true".to_owned(),
            format!("fork {session} true"),
        ];
        assert_eq!(agent.take(), expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_system_prompt_is_refused() {
    in_time(async {
        let only_append = AgentCapabilities::new().session_capabilities(
            SessionCapabilities::new().system_prompt(SessionSystemPromptCapabilities::new()),
        );
        let image =
            json!({"mode": "append", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]});
        for (capabilities, prompt) in [
            (all(), prompt_of("prepend", "a")),
            (all(), image),
            (all(), json!({"mode": "append", "content": []})),
            (only_append, prompt_of("override", "a")),
            (AgentCapabilities::new(), prompt_of("append", "a")),
        ] {
            let (mut client, agent, _) = client_of(capabilities, json!({})).await;
            let response = client.request("session/new", setup("", &prompt)).await;
            assert_eq!(response["error"]["code"], -32602, "{prompt}: {response}");
            assert!(agent.take().is_empty());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_client_needs_the_capability() {
    in_time(async {
        let offered = AgentCapabilities::new().mcp_capabilities(McpCapabilities::new().acp(true));
        for (capabilities, is_accepted) in [(offered, true), (AgentCapabilities::new(), false)] {
            let (mut client, ..) = client_of(capabilities, json!({})).await;
            let server = json!({"type": "acp", "name": "Tools", "serverId": "t"});
            let response = client.request("session/new", json!({"cwd": "/", "mcpServers": [server]})).await;
            assert_eq!(response["result"].is_object(), is_accepted, "{response}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_authentication_is_returned_and_reported() {
    in_time(async {
        let (mut client, ..) = client_of(all(), json!({})).await;
        let id = client.send_request("auth/status", json!({})).await;
        let update = client.next_message().await;
        assert_eq!(update["method"], "auth/status_update");
        assert_eq!(update["params"], json!({"state": "unauthenticated"}));
        let response = client.next_message().await;
        assert_eq!(response["id"], id);
        assert_eq!(response["result"], json!({"state": "authenticated", "accounts": [{"label": "work"}]}));
    })
    .await;
}

/// Needs a login.
struct LoggedOut;

impl Agent for LoggedOut {
    fn capabilities(&self) -> AgentCapabilities {
        let status = AgentAuthCapabilities::new().status(AuthStatusCapabilities::new());
        AgentCapabilities::new().auth(status)
    }

    async fn auth_status(&self, _: &Context) -> Result<AuthStatusResponse> {
        Err(Error::auth_required())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Err(Error::auth_required())
    }
}

/// A client asks for the state to learn if a login is necessary.
#[tokio::test(start_paused = true)]
async fn the_state_of_authentication_needs_no_login() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(LoggedOut, transport));
        client.initialize(json!({})).await;
        let response = client.request("auth/status", json!({})).await;
        assert_eq!(response["result"], json!({"state": "unauthenticated"}), "{response}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_the_agent_does_not_support_is_refused() {
    in_time(async {
        let list = SessionCapabilities::new().list(SessionListCapabilities::new());
        let without_archive = AgentCapabilities::new().session_capabilities(list);
        for (capabilities, filter, is_accepted) in [
            (all(), "exclude", true),
            (all(), "only", true),
            (all(), "recent", false),
            (without_archive.clone(), "exclude", true),
            (without_archive, "include", false),
        ] {
            let (mut client, ..) = client_of(capabilities, json!({})).await;
            let response = client.request("session/list", json!({"archived": filter})).await;
            assert_eq!(response["result"].is_object(), is_accepted, "{filter}: {response}");
            assert_eq!(response["error"]["code"] == -32602, !is_accepted, "{filter}: {response}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sessions_are_renamed_archived_and_looked_up() {
    in_time(async {
        let (mut client, agent, session) = client_of(all(), json!({})).await;
        let response =
            client.request("session/set_title", json!({"sessionId": session, "title": " A "})).await;
        assert_eq!(response["result"], json!({"title": "A"}));
        let mut status = Vec::new();
        for id in [&*session, "saved", "missing"] {
            let response = client.request("session/status", json!({"sessionId": id})).await;
            status.push(
                response["result"]["status"].as_str().map_or(response["error"]["code"].clone(), Value::from),
            );
        }
        assert_eq!(status, [json!("open"), json!("saved"), json!(-32002)]);
        // The turn ends before the session is archived, and the session is closed then.
        let prompt = client.prompt(&session, "wait").await;
        let archive = client.send_request("session/archive", json!({"sessionId": session})).await;
        let ended = client.next_message().await;
        assert_eq!((&ended["id"], &ended["result"]["stopReason"]), (&json!(prompt), &json!("cancelled")));
        assert_eq!(client.next_message().await["id"], archive);
        client.prompt(&session, "usage").await;
        assert_eq!(client.next_message().await["error"]["code"], -32002);
        client.request("session/unarchive", json!({"sessionId": "x"})).await;
        assert_eq!(agent.take(), [format!("archive {}", session.len()), "unarchive x".into()]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_is_a_session_of_its_own() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({})).await;
        client.send_request("session/fork", setup(&session, &Value::Null)).await;
        let response = client.next_message().await;
        let fork = response["result"]["sessionId"].as_str().expect("an id").to_owned();
        assert_ne!(fork, session);
        let update = client.next_message().await;
        assert_eq!(update["params"]["sessionId"], json!(fork), "updates follow the response");
        client.prompt(&fork, "usage").await;
        let response = client.next_message().await;
        let usage = json!({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2});
        assert_eq!(response["result"], json!({"stopReason": "end_turn", "usage": usage}));
        let response = client.request("session/fork", setup("missing", &Value::Null)).await;
        assert_eq!(response["error"]["code"], -32002);
        let mut relative = setup(&session, &Value::Null);
        relative["cwd"] = json!("here");
        assert_eq!(client.request("session/fork", relative).await["error"]["code"], -32602);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn providers_are_listed_set_and_disabled() {
    in_time(async {
        let (mut client, agent, _) = client_of(all(), json!({})).await;
        let response = client.request("providers/list", json!({})).await;
        let provider = json!({"providerId": "main", "supported": ["openai"], "required": true});
        assert_eq!(response["result"], json!({"providers": [provider]}));
        let set = json!({
            "providerId": "main", "apiType": "openai", "baseUrl": "http://localhost", "headers": {"a": "b"},
        });
        assert_eq!(client.request("providers/set", set).await["result"], json!({}));
        assert_eq!(
            client.request("providers/disable", json!({"providerId": "main"})).await["result"],
            json!({})
        );
        assert_eq!(agent.take(), ["set main {\"a\": \"b\"}", "disable main"]);
    })
    .await;
}

const METHODS: [&str; 9] = [
    "auth/status",
    "session/set_title",
    "session/archive",
    "session/unarchive",
    "session/status",
    "session/fork",
    "providers/list",
    "providers/set",
    "providers/disable",
];

#[tokio::test(start_paused = true)]
async fn a_method_that_was_not_advertised_is_unknown() {
    in_time(async {
        let capabilities = AgentCapabilities::new();
        let (mut client, agent, session) = client_of(capabilities, json!({})).await;
        for method in METHODS {
            let params = setup(&session, &Value::Null);
            assert_eq!(client.request(method, params).await["error"]["code"], -32601, "{method}");
        }
        assert!(agent.take().is_empty());
    })
    .await;
}

/// Advertises everything and implements nothing.
struct Liar(AgentCapabilities);

impl Agent for Liar {
    fn capabilities(&self) -> AgentCapabilities {
        self.0.clone()
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn an_advertised_method_has_to_be_implemented() {
    in_time(async {
        let session = SessionCapabilities::new;
        let with = |session| AgentCapabilities::new().session_capabilities(session);
        let auth = AgentAuthCapabilities::new().status(AuthStatusCapabilities::new());
        for (capabilities, method) in [
            (AgentCapabilities::new().auth(auth), "auth_status"),
            (with(session().title(SessionTitleCapabilities::new())), "set_session_title"),
            (with(session().archive(SessionArchiveCapabilities::new())), "archive_session"),
            (with(session().status(SessionStatusCapabilities::new())), "session_status"),
            (with(session().fork(SessionForkCapabilities::new())), "fork_session"),
            (AgentCapabilities::new().providers(ProvidersCapabilities::new()), "list_providers"),
        ] {
            let (transport, mut client) = Wire::Memory.scripted();
            tokio::spawn(serve(Liar(capabilities), transport));
            let response = client.initialize(json!({})).await;
            let message = response["error"]["message"].as_str().unwrap_or_else(|| panic!("{response}"));
            assert!(message.ends_with(&format!("does not implement Agent::{method}")), "{message}");
        }
    })
    .await;
}

/// Returns the updates until the response to `prompt`, with their sessions, and the response.
async fn updates(client: &mut ScriptedPeer, prompt: u64) -> (Vec<(String, Value)>, Value) {
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            return (updates, message);
        }
        let session = message["params"]["sessionId"].as_str().expect("a session").to_owned();
        updates.push((session, message["params"]["update"].clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_one_plan_gets_the_last_one() {
    in_time(async {
        let kinds = |updates: &[(String, Value)]| -> Vec<Value> {
            updates.iter().map(|(_, update)| update["sessionUpdate"].clone()).collect()
        };
        let (mut client, _, session) = client_of(all(), json!({"plan": {}})).await;
        let prompt = client.prompt(&session, "plan").await;
        let (several, _) = updates(&mut client, prompt).await;
        assert_eq!(kinds(&several), ["plan_update", "plan_removed", "plan_removed"]);
        let (mut client, _, session) = client_of(all(), json!({})).await;
        let prompt = client.prompt(&session, "plan").await;
        let (one, _) = updates(&mut client, prompt).await;
        assert_eq!(kinds(&one), ["plan", "plan"]);
        let steps: Vec<_> = one.iter().map(|(_, plan)| plan["entries"].as_array().map(Vec::len)).collect();
        assert_eq!(steps, [Some(1), Some(0)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_between_sessions_is_written_in_pieces() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "pieces").await;
        let (updates, _) = updates(&mut client, prompt).await;
        let kinds = |update: &Value| {
            update["sessionUpdate"].as_str().unwrap_or_default().starts_with("session_message")
        };
        let messages: Vec<_> = updates.iter().filter(|(_, update)| kinds(update)).collect();
        let shown: Vec<_> = messages
            .iter()
            .map(|(of, update)| {
                let text = update["content"]["text"].as_str().unwrap_or("begins");
                format!("{} {text}", if *of == session { "parent" } else { "child" })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "parent begins",
                "child begins",
                "parent Loo",
                "child Loo",
                "parent k.",
                "child k.",
                "child begins",
                "parent begins",
                "child Done.",
                "parent Done.",
            ]
        );
        // Both views have an id of their own, and name the other.
        let (sent, received) = (&messages[0].1, &messages[1].1);
        assert_eq!(sent["recipientMessageId"], received["messageId"]);
        assert_eq!(received["senderMessageId"], sent["messageId"]);
        assert_eq!(
            (&messages[2].1["messageId"], &messages[3].1["messageId"]),
            (&sent["messageId"], &received["messageId"])
        );
        assert_eq!(messages[6].1["recipientMessageId"], messages[7].1["messageId"]);
        assert_eq!(messages[6].1["recipientSessionId"], json!(session));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_session_has_its_own_updates() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "child").await;
        let (updates, response) = updates(&mut client, prompt).await;
        assert_eq!(response["result"]["stopReason"], "end_turn");
        let (_, announced) = &updates[0];
        let child = announced["sessionId"].as_str().expect("an id");
        assert_eq!(
            announced,
            &json!({
                "sessionUpdate": "subagent_update", "sessionId": child, "title": "Review",
                "description": "Reads the change", "state": {"state": "running"},
            })
        );
        let short: Vec<_> = updates[1..]
            .iter()
            .map(|(of, update)| {
                let kind = update["sessionUpdate"].as_str().unwrap_or_default();
                let detail = [&update["state"]["state"], &update["status"], &update["content"][0]["text"]];
                let detail = detail.iter().find_map(|value| value.as_str()).unwrap_or_default();
                format!("{} {kind} {detail}", if *of == session { "parent" } else { "child" })
            })
            .collect();
        assert_eq!(
            short,
            [
                "parent session_message Look.",
                "child session_message Look.",
                "child agent_message_chunk ",
                "child tool_call in_progress",
                "parent subagent_update requires_action",
                "child session_message Done.",
                "parent session_message Done.",
                "child tool_call_update failed",
                "parent subagent_update idle",
            ]
        );
        // The two views of a message name each other.
        let (sent, received) = (&updates[1].1, &updates[2].1);
        assert_eq!((&sent["senderSessionId"], &sent["recipientSessionId"]), (&json!(session), &json!(child)));
        assert_eq!(sent["recipientMessageId"], received["messageId"]);
        assert_eq!(received["senderMessageId"], sent["messageId"]);
        assert_eq!(updates[9].1["state"], json!({"state": "idle", "stopReason": "end_turn"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_child_is_idle() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "dropped").await;
        let (updates, _) = updates(&mut client, prompt).await;
        assert_eq!(updates.len(), 2);
        assert_eq!(updates[1].1["state"], json!({"state": "idle"}));
    })
    .await;
}

/// A child that outlives its turn is cancelled when its session is archived.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_cancels_its_children() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "outliving").await;
        updates(&mut client, prompt).await;
        client.send_request("session/archive", json!({"sessionId": session})).await;
        let mut ended = Value::Null;
        while ended["sessionUpdate"] != "subagent_update" {
            ended = client.next_message().await["params"]["update"].clone();
        }
        assert_eq!(ended["state"], json!({"state": "idle", "stopReason": "cancelled"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_cancels_the_work_of_a_child_alone() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "cancellable").await;
        let announced = client.next_message().await["params"]["update"].clone();
        assert_eq!(
            (&announced["capabilities"], &announced["cwd"]),
            (&json!({"cancel": {}}), &json!("/elsewhere"))
        );
        client.cancel(announced["sessionId"].as_str().expect("an id")).await;
        let (updates, response) = updates(&mut client, prompt).await;
        assert_eq!(updates[0].1["state"], json!({"state": "idle", "stopReason": "cancelled"}));
        assert_eq!(response["result"]["stopReason"], "end_turn");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_needs_a_client_that_shows_it() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({})).await;
        client.prompt(&session, "child").await;
        let response = client.next_message().await;
        let detail = response["error"]["data"]["detail"].as_str().expect("a detail");
        assert!(detail.contains("advertise subagents"), "{detail}");
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        client.prompt(&session, "relative").await;
        let response = client.next_message().await;
        let message = response["error"]["message"].as_str().expect("a message");
        assert!(message.contains("relative path"), "{message}");
    })
    .await;
}
