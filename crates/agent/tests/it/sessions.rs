//! The bounded memory of an agent's sessions.

use duologue_agent::schema::{AgentCapabilities, SessionCapabilities, SessionCloseCapabilities};
use duologue_agent::{Agent, Context, Prompt, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time_tests};

in_time_tests!(the_memory_of_all_sessions_is_bounded, a_session_that_is_loaded_again_frees_the_old_one);

struct Keeper;

impl Agent for Keeper {
    fn capabilities(&self) -> AgentCapabilities {
        let close = SessionCapabilities::default().close(SessionCloseCapabilities::default());
        AgentCapabilities::default().load_session(true).session_capabilities(close)
    }

    async fn load_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn close_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<()> {
        Ok(())
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// A sixth of what sessions may hold.
async fn large(client: &mut ScriptedPeer, method: &str, id: &str) -> Value {
    let filler = "x".repeat(Session::BYTES_TOGETHER / 6);
    let params = json!({"sessionId": id, "cwd": "/", "mcpServers": [], "_meta": {"filler": filler}});
    client.request(method, params).await
}

async fn the_memory_of_all_sessions_is_bounded() {
    let (transport, mut client) = Wire::Pipes.scripted();
    let serving = tokio::spawn(serve(Keeper, transport));
    client.initialize(json!({})).await;
    let mut session = Value::Null;
    for _ in 0..5 {
        session = large(&mut client, "session/new", "").await["result"]["sessionId"].take();
        assert!(session.is_string());
    }
    for method in ["session/new", "session/load"] {
        let refused = large(&mut client, method, "another").await;
        assert_eq!(
            refused["error"]["message"],
            "session memory limit reached (64 MiB for all open sessions); close a session first",
            "{method}"
        );
    }
    // Small sessions still fit, and open ones work.
    client.new_session().await;
    let turn = client.prompt(session.as_str().expect("an id"), "go").await;
    assert_eq!(client.next_message().await["id"], turn);

    for method in ["session/load", "session/new"] {
        let closed = client.request("session/close", json!({"sessionId": session})).await;
        assert_eq!(closed["result"], json!({}), "{method}");
        let made = large(&mut client, method, "another").await;
        assert!(made["error"].is_null(), "{method}");
        session = json!("another");
    }
    client.close().await;
    serving.await.expect("no panic").expect("served");
}

async fn a_session_that_is_loaded_again_frees_the_old_one() {
    let (transport, mut client) = Wire::Pipes.scripted();
    let serving = tokio::spawn(serve(Keeper, transport));
    client.initialize(json!({})).await;
    for number in 0..10 {
        let loaded = large(&mut client, "session/load", "the same").await;
        assert!(loaded["error"].is_null(), "{number}: {}", loaded["error"]);
    }
    client.close().await;
    serving.await.expect("no panic").expect("served");
}
