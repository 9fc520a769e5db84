//! The unstable methods and updates of an agent whose client is scripted.

use std::sync::{Arc, Mutex};

use duologue_agent::schema::{
    AgentAuthCapabilities, AgentCapabilities, ArchiveSessionRequest, AuthAccount, AuthState,
    AuthStatusCapabilities, AuthStatusResponse, AuthStatusUpdateNotification, ContentBlock, CursorUpdate,
    DisableProviderRequest, ListSessionsRequest, ListSessionsResponse, LlmProtocol, McpCapabilities,
    PromptSuggestion, PromptSuggestionsUpdate, ProviderInfo, ProvidersCapabilities,
    SessionArchiveCapabilities, SessionCapabilities, SessionConfigOption, SessionConfigSelectOption,
    SessionForkCapabilities, SessionId, SessionListCapabilities, SessionOptionsCapabilities,
    SessionOptionsRequest, SessionResumeCapabilities, SessionStatus, SessionStatusCapabilities,
    SessionStatusRequest, SessionSystemPromptCapabilities, SessionSystemPromptModeCapabilities,
    SessionSystemPromptOverrideCapabilities, SessionTitleCapabilities, SessionUpdate, SetProviderRequest,
    SetSessionTitleRequest, UnarchiveSessionRequest, Usage,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
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
        for first in session.initial_options() {
            self.call(format!("new {} {:?}", first.config_id, first.value));
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

    async fn session_options(&self, _: &Context, request: SessionOptionsRequest) -> Result<SessionSetup> {
        self.call(format!("options {}", request.cwd.display()));
        Ok(SessionSetup::new().config_options(vec![
            SessionConfigOption::select(
                "model",
                "Model",
                "a",
                vec![SessionConfigSelectOption::new("a", "A")],
            ),
            SessionConfigOption::boolean("fast", "Fast", false),
        ]))
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
            "suggest" => {
                let suggestion = PromptSuggestion::new(ContentBlock::text("Run the tests."));
                turn.update(PromptSuggestionsUpdate::new(vec![suggestion])).await?;
                turn.update(SessionUpdate::CursorUpdate(Box::new(CursorUpdate::new("c")))).await?;
            }
            "wait" => turn.cancelled().await,
            "outliving" => {
                let child = turn.subagent("Review").start().await?;
                tokio::spawn(async move { child.cancelled().await });
            }
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

fn all() -> AgentCapabilities {
    let mode =
        SessionSystemPromptModeCapabilities::new().r#override(SessionSystemPromptOverrideCapabilities::new());
    let session = SessionCapabilities::new()
        .system_prompt(SessionSystemPromptCapabilities::new().mode(mode))
        .resume(SessionResumeCapabilities::new())
        .list(SessionListCapabilities::new())
        .fork(SessionForkCapabilities::new())
        .options(SessionOptionsCapabilities::new())
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
        Err(Error::auth_required("log in first"))
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Err(Error::auth_required("log in first"))
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
async fn a_fork_at_a_cursor_is_no_fork_of_the_whole() {
    in_time(async {
        let (mut client, agent, session) = client_of(all(), json!({})).await;
        let mut request = setup(&session, &Value::Null);
        request["cursorId"] = json!("unknown");
        assert_eq!(client.request("session/fork", request).await["error"]["code"], -32602);
        assert_eq!(agent.take(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_options_of_a_session_are_known_before_it_exists() {
    in_time(async {
        let (mut client, agent, _) = client_of(all(), json!({})).await;
        let response = client.request("session/options", json!({"cwd": "/"})).await;
        let options = response["result"]["configOptions"].as_array().expect("options");
        assert_eq!((options.len(), &options[0]["id"]), (1, &json!("model")), "no boolean one: {response}");
        assert_eq!(agent.take(), ["options /"]);
        let (mut client, ..) = client_of(AgentCapabilities::new(), json!({})).await;
        let response = client.request("session/options", json!({"cwd": "/"})).await;
        assert_eq!(response["error"]["code"], -32601);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_values_of_options_reach_the_agent_once_each() {
    in_time(async {
        let (mut client, agent, _) = client_of(all(), json!({})).await;
        let with = |options: Value| json!({"cwd": "/", "mcpServers": [], "configOptions": options});
        let first = json!({"configId": "model", "value": "a"});
        let fast = json!({"configId": "fast", "type": "boolean", "value": true});
        let response = client.request("session/new", with(json!([first, fast]))).await;
        assert!(response["result"].is_object(), "{response}");
        assert_eq!(agent.take().len(), 2);
        for bad in [json!([first, first]), json!([{"configId": "model"}]), json!("model")] {
            let response = client.request("session/new", with(bad.clone())).await;
            assert_eq!(response["error"]["code"], -32602, "{bad}");
        }
        assert_eq!(agent.take(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn suggestions_and_cursors_reach_the_clients_that_advertise_them() {
    in_time(async {
        let offers = json!({"session": {"promptSuggestions": {}, "cursors": {}}});
        for (offered, expected) in [(offers, 2), (json!({}), 0)] {
            let (mut client, _, session) = client_of(all(), offered).await;
            client.prompt(&session, "suggest").await;
            for _ in 0..expected {
                let update = client.next_message().await;
                assert_eq!(update["method"], "session/update", "{update}");
            }
            assert_eq!(client.next_message().await["result"]["stopReason"], "end_turn");
        }
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

/// A child that outlives its turn is cancelled when its session is archived.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_cancels_its_children() {
    in_time(async {
        let (mut client, _, session) = client_of(all(), json!({"subagents": {}})).await;
        let prompt = client.prompt(&session, "outliving").await;
        while client.next_message().await["id"] != prompt {}
        client.send_request("session/archive", json!({"sessionId": session})).await;
        let mut ended = Value::Null;
        while ended["sessionUpdate"] != "subagent_update" {
            ended = client.next_message().await["params"]["update"].clone();
        }
        assert_eq!(ended["state"], json!({"state": "idle", "stopReason": "cancelled"}));
    })
    .await;
}
