//! The unstable requests of a client whose agent is scripted.

use std::future::IntoFuture;
use std::sync::mpsc;

use duologue_client::schema::{
    AuthState, LlmProtocol, McpServerAcp, SessionArchiveFilter, SessionStatus, SystemPromptMode,
};
use duologue_client::{Client, Connection, Error, Result, Session};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time};

fn all() -> Value {
    json!({
        "loadSession": true,
        "auth": {"status": {}},
        "providers": {},
        "sessionCapabilities": {
            "systemPrompt": {"mode": {"override": {}}},
            "resume": {}, "fork": {}, "archive": {}, "status": {}, "title": {}, "list": {},
        },
    })
}

async fn session_of(connection: &Connection, agent: &mut ScriptedPeer) -> Session {
    let (session, ()) = tokio::join!(connection.new_session("/"), agent.accept_session("s"));
    session.expect("a session")
}

/// Answers one request and returns its params.
async fn answer(agent: &mut ScriptedPeer, method: &str, result: Value) -> Value {
    let request = agent.expect(method).await;
    agent.respond(&request, result).await;
    request["params"].clone()
}

fn capability<T>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::NotSupported { capability }) => capability,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was sent"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_system_prompt_is_part_of_every_request_for_a_session() {
    in_time(async {
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), all()).await;
        let builder = |mode| connection.session_in("/").system_prompt(mode, "Be brief.");
        let prompt = |mode: &str| json!({"mode": mode, "content": [{"type": "text", "text": "Be brief."}]});
        let (session, params) = tokio::join!(
            builder(SystemPromptMode::Append).create(),
            answer(&mut agent, "session/new", json!({"sessionId": "s"}))
        );
        session.expect("a session");
        assert_eq!(params["systemPrompt"], prompt("append"));
        let (session, params) = tokio::join!(
            builder(SystemPromptMode::Override).resume("r"),
            answer(&mut agent, "session/resume", json!({}))
        );
        session.expect("a session");
        assert_eq!(params["systemPrompt"], prompt("override"));
        let replay = builder(SystemPromptMode::Append).load("l").expect("loads");
        let (session, params) = tokio::join!(replay.outcome(), answer(&mut agent, "session/load", json!({})));
        session.expect("a session");
        assert_eq!(params["systemPrompt"], prompt("append"));
        let (session, params) = tokio::join!(
            builder(SystemPromptMode::Append).fork("s"),
            answer(&mut agent, "session/fork", json!({"sessionId": "f"}))
        );
        assert_eq!(session.expect("a session").id().as_str(), "f");
        assert_eq!(params["sessionId"], "s");
        assert_eq!(params["systemPrompt"], prompt("append"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_capability() {
    in_time(async {
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), json!({})).await;
        let session = session_of(&connection, &mut agent).await;
        let prompted = connection.session_in("/").system_prompt(SystemPromptMode::Append, "a");
        assert_eq!(capability(prompted.create().await), "sessionCapabilities.systemPrompt");
        let with_server = connection.session_in("/").mcp_server(McpServerAcp::new("Tools", "t"));
        assert_eq!(capability(with_server.create().await), "mcpCapabilities.acp");
        assert_eq!(capability(connection.session_in("/").fork("s").await), "sessionCapabilities.fork");
        assert_eq!(capability(connection.auth_status().await), "auth.status");
        assert_eq!(capability(connection.archive_session("s").await), "sessionCapabilities.archive");
        assert_eq!(capability(connection.unarchive_session("s").await), "sessionCapabilities.archive");
        assert_eq!(capability(connection.session_status("s").await), "sessionCapabilities.status");
        assert_eq!(capability(session.set_title("s").await), "sessionCapabilities.title");
        assert_eq!(capability(connection.list_providers().await), "providers");
        assert_eq!(capability(connection.disable_provider("p").await), "providers");
        let set = connection.set_provider("p", LlmProtocol::Azure, "http://localhost", []);
        assert_eq!(capability(set.await), "providers");
        agent.probe().await;

        let capabilities = json!({"sessionCapabilities": {"systemPrompt": {}, "list": {}}});
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), capabilities).await;
        let prompted = connection.session_in("/").system_prompt(SystemPromptMode::Override, "a");
        assert_eq!(capability(prompted.create().await), "sessionCapabilities.systemPrompt.mode.override");
        let listing = connection.list_sessions(None).expect("a listing");
        assert_eq!(capability(listing.archived(SessionArchiveFilter::Only)), "sessionCapabilities.archive");
        agent.probe().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_authentication_is_asked_for_and_observed() {
    in_time(async {
        let (sender, states) = mpsc::channel();
        let client = Client::new(()).on_auth_status(move |_, status| drop(sender.send(status.state)));
        let (connection, mut agent) = client_of(Wire::Memory, client, all()).await;
        agent.notify("auth/status_update", json!({"state": "unauthenticated"})).await;
        agent.notify("auth/status_update", json!({"accounts": []})).await;
        agent.notify("auth/status_update", json!({"state": "later"})).await;
        let result = json!({"state": "authenticated", "accounts": [{"label": "work", "active": true}]});
        let (status, _) =
            tokio::join!(connection.auth_status().into_future(), answer(&mut agent, "auth/status", result));
        let status = status.expect("a state");
        assert_eq!((status.state, &*status.accounts[0].label), (AuthState::Authenticated, "work"));
        let states: Vec<_> = states.try_iter().map(|state| state.as_str().to_owned()).collect();
        assert_eq!(states, ["unauthenticated", "later"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sessions_are_renamed_archived_and_looked_up() {
    in_time(async {
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), all()).await;
        let session = session_of(&connection, &mut agent).await;
        let (title, params) = tokio::join!(
            session.set_title(" A ").into_future(),
            answer(&mut agent, "session/set_title", json!({"title": "A"}))
        );
        assert_eq!(params, json!({"sessionId": "s", "title": " A "}));
        assert_eq!(title.expect("a title").title, "A");
        assert_eq!(session.state().title.as_deref(), Some("A"));
        let (status, _) = tokio::join!(
            connection.session_status("x").into_future(),
            answer(&mut agent, "session/status", json!({"status": "saved"}))
        );
        assert_eq!(status.expect("a status").status, SessionStatus::Saved);
        let listing = connection.list_sessions(None).expect("a listing");
        let listing = listing.archived(SessionArchiveFilter::Only).expect("offered");
        let archived = json!({"sessions": [{"sessionId": "a", "cwd": "/", "archived": true}]});
        let (sessions, params) = tokio::join!(listing.all(), answer(&mut agent, "session/list", archived));
        assert_eq!(params["archived"], "only");
        assert_eq!(sessions.expect("sessions")[0].archived, Some(true));
        // An archived session is closed: its updates are dropped.
        let (archived, _) = tokio::join!(
            connection.archive_session("s").into_future(),
            answer(&mut agent, "session/archive", json!({}))
        );
        archived.expect("archived");
        agent.send_chunk("s", "late").await;
        agent.probe().await;
        assert_eq!(connection.dropped_updates(), 1);
        let (unarchived, _) = tokio::join!(
            connection.unarchive_session("s").into_future(),
            answer(&mut agent, "session/unarchive", json!({}))
        );
        unarchived.expect("unarchived");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_returns_its_tokens() {
    in_time(async {
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), all()).await;
        let session = session_of(&connection, &mut agent).await;
        let usage = json!({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2});
        let (turn, _) = tokio::join!(
            session.prompt("hi"),
            answer(&mut agent, "session/prompt", json!({"stopReason": "end_turn", "usage": usage}))
        );
        let response = turn.expect("a turn").outcome().await.expect("an outcome");
        assert_eq!(response.usage.expect("tokens").total_tokens, 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn providers_are_listed_set_and_disabled() {
    in_time(async {
        let (connection, mut agent) = client_of(Wire::Memory, Client::new(()), all()).await;
        let provider = json!({"providerId": "main", "supported": ["openai"], "required": true});
        let (list, _) = tokio::join!(
            connection.list_providers().into_future(),
            answer(&mut agent, "providers/list", json!({"providers": [provider]}))
        );
        assert_eq!(list.expect("a list").providers[0].supported, [LlmProtocol::OpenAi]);
        let headers = [("a".to_owned(), "b".to_owned())];
        let (set, params) = tokio::join!(
            connection.set_provider("main", LlmProtocol::OpenAi, "http://localhost", headers).into_future(),
            answer(&mut agent, "providers/set", json!({}))
        );
        set.expect("set");
        assert_eq!(
            params,
            json!({"providerId": "main", "apiType": "openai", "baseUrl": "http://localhost", "headers": {"a": "b"}})
        );
        let (disabled, _) = tokio::join!(
            connection.disable_provider("main").into_future(),
            answer(&mut agent, "providers/disable", json!({}))
        );
        disabled.expect("disabled");
    })
    .await;
}
