//! Child sessions of a client whose agent is scripted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use duologue_client::schema::{
    CHILD_SESSIONS, ClientCapabilities, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, StateUpdate, SubagentCapabilities,
};
use duologue_client::{Client, Connection, Error, Host, HostContext, HostResult, Session};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, client_of, in_time};

/// Lists the sessions that it learns of.
#[derive(Clone, Default)]
struct Learns(Arc<Mutex<Vec<String>>>);

impl Learns {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }

    fn add(&self, event: String) {
        self.0.lock().expect("no panic").push(event);
    }
}

impl Host for Learns {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new().subagents(SubagentCapabilities::new())
    }

    fn session_started(&self, _: &HostContext, session: &SessionId, folders: &[PathBuf]) {
        self.add(format!("{session} {folders:?}"));
    }

    fn session_ended(&self, _: &HostContext, session: &SessionId) {
        self.add(format!("{session} ended"));
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.add(format!("{} asks", request.session_id));
        Ok(RequestPermissionOutcome::Cancelled.into())
    }
}

async fn connect(client: Client<Learns>) -> (Connection, Session, ScriptedPeer) {
    let capabilities = json!({"sessionCapabilities": {"close": {}}});
    let (connection, mut agent) = client_of(Wire::Memory, client, capabilities).await;
    let (session, ()) = tokio::join!(connection.new_session("/work"), agent.accept_session("s"));
    (connection, session.expect("a session"), agent)
}

async fn announce(agent: &mut ScriptedPeer, parent: &str, mut child: Value) {
    child["sessionUpdate"] = json!("subagent_update");
    agent.notify("session/update", json!({"sessionId": parent, "update": child})).await;
}

fn id(id: &str) -> SessionId {
    SessionId::from(id)
}

#[tokio::test(start_paused = true)]
async fn a_child_has_its_own_conversation_and_updates() {
    in_time(async {
        let host = Learns::default();
        let (_connection, session, mut agent) = connect(Client::new(host.clone()).keep_conversations()).await;
        let child =
            json!({"sessionId": "c", "title": "Review", "cwd": "/etc", "state": {"state": "running"}});
        announce(&mut agent, "s", child).await;
        agent.send_chunk("c", "of the child").await;
        agent.send_chunk("s", "of the parent").await;
        announce(&mut agent, "c", json!({"sessionId": "d", "title": "Deeper"})).await;
        agent.send_chunk("d", "deep").await;
        agent.probe().await;
        let child = session.child(&id("c")).expect("a child");
        let info = child.info().expect("info");
        assert_eq!((info.title.as_deref(), info.parent), (Some("Review"), None));
        assert_eq!(info.state, Some(StateUpdate::running()));
        assert_eq!(child.conversation().expect("kept").agent_text(), "of the child");
        assert_eq!(session.conversation().expect("kept").agent_text(), "of the parent");
        assert_eq!(
            child.updates().next().await.expect("an update").expect("no error").to_string(),
            "of the child"
        );
        let deeper = session.child(&id("d")).expect("a child of the child");
        assert_eq!(deeper.info().expect("info").parent, Some(id("c")));
        assert_eq!(deeper.conversation().expect("kept").agent_text(), "deep");
        let mut children: Vec<_> = session.children().into_iter().map(|child| child.id).collect();
        children.sort();
        assert_eq!(children, [id("c"), id("d")]);
        // The folder that the agent names grants nothing.
        assert_eq!(host.take(), ["s [\"/work\"]", "c [\"/work\"]", "d [\"/work\"]"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_may_ask_the_user_and_be_cancelled() {
    in_time(async {
        let host = Learns::default();
        let (_connection, session, mut agent) = connect(Client::new(host.clone())).await;
        let ask = json!({"sessionId": "c", "toolCall": {"toolCallId": "t"}, "options": []});
        let response = agent.request("session/request_permission", ask.clone()).await;
        assert_eq!(response["error"]["code"], -32002, "not announced yet");
        announce(&mut agent, "s", json!({"sessionId": "c"})).await;
        let response = agent.request("session/request_permission", ask).await;
        assert_eq!(response["result"]["outcome"]["outcome"], "cancelled");
        let child = session.child(&id("c")).expect("a child");
        let error = child.cancel().expect_err("not offered");
        assert!(matches!(error, Error::NotSupported { .. }), "{error}");
        announce(&mut agent, "s", json!({"sessionId": "c", "capabilities": {"cancel": {}}})).await;
        agent.probe().await;
        child.cancel().expect("offered");
        assert_eq!(agent.expect("session/cancel").await["params"], json!({"sessionId": "c"}));
        assert!(host.take().contains(&"c asks".to_owned()));
    })
    .await;
}

/// As for any session that is cancelled, the client answers the open requests of the child.
#[tokio::test(start_paused = true)]
async fn a_cancelled_child_has_no_open_questions() {
    in_time(async {
        let client = Client::new(Learns::default())
            .on(async |_, _: RequestPermissionRequest| std::future::pending().await);
        let (_connection, session, mut agent) = connect(client).await;
        announce(&mut agent, "s", json!({"sessionId": "c", "capabilities": {"cancel": {}}})).await;
        let ask =
            |session: &str| json!({"sessionId": session, "toolCall": {"toolCallId": "t"}, "options": []});
        let of_child = agent.send_request("session/request_permission", ask("c")).await;
        agent.send_request("session/request_permission", ask("s")).await;
        agent.probe().await;
        session.child(&id("c")).expect("a child").cancel().expect("offered");
        agent.expect("session/cancel").await;
        let response = agent.next_message().await;
        assert_eq!(
            (&response["id"], &response["result"]["outcome"]["outcome"]),
            (&json!(of_child), &json!("cancelled"))
        );
        agent.probe().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_cannot_take_the_id_of_another_session() {
    in_time(async {
        let (connection, session, mut agent) = connect(Client::new(Learns::default())).await;
        let (other, ()) = tokio::join!(connection.new_session("/other"), agent.accept_session("o"));
        let other = other.expect("a session");
        announce(&mut agent, "s", json!({"sessionId": "o"})).await;
        announce(&mut agent, "s", json!({"sessionId": "s"})).await;
        announce(&mut agent, "s", json!({"sessionId": "x".repeat(100_000)})).await;
        announce(&mut agent, "o", json!({"sessionId": "c"})).await;
        announce(&mut agent, "s", json!({"sessionId": "c"})).await;
        agent.send_chunk("o", "mine").await;
        agent.probe().await;
        assert!(session.children().is_empty() && session.child(&id("c")).is_none());
        assert!(other.child(&id("c")).is_some());
        assert_eq!(connection.dropped_updates(), 4);
        let mut updates = other.updates();
        updates.next().await.expect("the child").expect("no error");
        assert_eq!(updates.next().await.expect("an update").expect("no error").to_string(), "mine");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn children_are_limited_and_end_with_their_session() {
    in_time(async {
        let host = Learns::default();
        let (connection, session, mut agent) = connect(Client::new(host.clone())).await;
        for number in 0..=CHILD_SESSIONS {
            announce(&mut agent, "s", json!({"sessionId": format!("c{number}")})).await;
        }
        agent.probe().await;
        let dropped = connection.dropped_updates();
        // The first one is no longer known.
        agent.send_chunk("c0", "lost").await;
        agent.probe().await;
        assert_eq!(connection.dropped_updates(), dropped + 1);
        assert_eq!(session.children().len(), CHILD_SESSIONS);
        assert!(session.child(&id("c0")).is_none());
        assert!(host.take().contains(&"c0 ended".to_owned()));
        let child = session.child(&id("c1")).expect("a child");
        let close = async {
            let request = agent.expect("session/close").await;
            agent.respond(&request, json!({})).await;
        };
        let (closed, ()) = tokio::join!(async { session.close().await }, close);
        closed.expect("closed");
        agent.send_chunk("c1", "lost").await;
        agent.probe().await;
        assert_eq!(connection.dropped_updates(), dropped + 2);
        assert!(session.child(&id("c1")).is_none());
        assert_eq!(host.take().len(), CHILD_SESSIONS + 1);
        drop(child);
    })
    .await;
}

/// Some agents announce children before they respond to `session/new`.
#[tokio::test(start_paused = true)]
async fn a_child_may_precede_the_response_that_names_its_parent() {
    in_time(async {
        let client = Client::new(Learns::default()).keep_conversations();
        let (connection, mut agent) = client_of(Wire::Memory, client, json!({})).await;
        let script = async {
            let request = agent.expect("session/new").await;
            announce(&mut agent, "s", json!({"sessionId": "c"})).await;
            agent.send_chunk("c", "early").await;
            agent.send_chunk("unknown", "lost").await;
            agent.respond(&request, json!({"sessionId": "s"})).await;
            agent.probe().await;
        };
        let (session, ()) = tokio::join!(connection.new_session("/"), script);
        let child = session.expect("a session").child(&id("c")).expect("a child");
        assert_eq!(child.conversation().expect("kept").agent_text(), "early");
        assert_eq!(connection.dropped_updates(), 1);
    })
    .await;
}
