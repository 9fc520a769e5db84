//! Sessions and their requests: what changes a session keeps its order, what comes before a session is
//! known is kept within bounds, and what a side does not do it refuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_agent::schema::{
    AgentCapabilities, SessionId, SessionMode, SessionModeState, SetSessionModeRequest,
};
use duologue_agent::{Agent, Context, Prompt, Session, SessionSetup, StopReason, Turn};
use duologue_client::Client;
use duologue_schema::{METHODS, MethodSide};
use serde_json::{Value, json};

use duologue_test_support::{Wire, client_of, message_chunk, over_every_wire, runs};

over_every_wire!(
    the_id_that_an_agent_makes_is_in_all_later_requests,
    changes_of_a_session_are_applied_in_order,
    a_client_refuses_at_once_what_it_does_not_offer,
    updates_of_unknown_sessions_are_bounded_by_their_number,
    updates_of_unknown_sessions_are_bounded_by_their_bytes,
    buffered_updates_of_one_session_are_not_given_to_another,
);

/// Keeps the ids of its sessions, which the SDK makes.
#[derive(Clone, Default)]
struct Ids(Arc<Mutex<Vec<(&'static str, SessionId)>>>);

impl Ids {
    fn add(&self, event: &'static str, id: &SessionId) {
        self.0.lock().expect("no panic").push((event, id.clone()));
    }
}

impl Agent for Ids {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::new().load_session(true)
    }

    async fn new_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        self.add("new", session.id());
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> duologue_agent::Result<SessionSetup> {
        self.add("load", session.id());
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        self.add("prompt", turn.id());
        Ok(StopReason::EndTurn)
    }
}

/// Two sessions with ids that nobody chose, on one connection, and on a second one with another process's agent.
async fn the_id_that_an_agent_makes_is_in_all_later_requests(wire: Wire) {
    let connect = async |agent: &Ids| {
        let (ours, theirs) = wire.pair();
        tokio::spawn(duologue_agent::serve(agent.clone(), theirs));
        Client::new(()).connect(ours).await.expect("a connection")
    };
    let (first, second) = (Ids::default(), Ids::default());
    let connection = connect(&first).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let session = connection.new_session("/tmp").await.expect("a session");
        session.prompt("hi").await.expect("a turn").finish().await.expect("an end");
        ids.push(session.id().clone());
    }
    connection.close().await;
    assert_ne!(ids[0], ids[1]);
    let seen = std::mem::take(&mut *first.0.lock().expect("no panic"));
    let expected = ids.iter().flat_map(|id| ["new", "prompt"].map(|event| (event, id.clone())));
    assert_eq!(seen, expected.collect::<Vec<_>>());

    let connection = connect(&second).await;
    for id in &ids {
        let session =
            connection.load_session(id.clone(), "/tmp").expect("sent").outcome().await.expect("a session");
        session.prompt("hi").await.expect("a turn").finish().await.expect("an end");
    }
    let seen = std::mem::take(&mut *second.0.lock().expect("no panic"));
    let expected = ids.iter().flat_map(|id| ["load", "prompt"].map(|event| (event, id.clone())));
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

/// Takes its time for some modes, and tells in which order it did what.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<String>>>);

impl Slow {
    fn did(&self, what: impl Into<String>) {
        self.0.lock().expect("no panic").push(what.into());
    }
}

impl Agent for Slow {
    async fn new_session(&self, _: &Context, _: &Session) -> duologue_agent::Result<SessionSetup> {
        let modes = ["slow", "quick"].map(|mode| SessionMode::new(mode, mode)).to_vec();
        Ok(SessionSetup::new().modes(SessionModeState::new("quick", modes)))
    }

    async fn set_mode(
        &self,
        _: &Context,
        _: &Session,
        request: SetSessionModeRequest,
    ) -> duologue_agent::Result<()> {
        let mode = request.mode_id.to_string();
        self.did(format!("begins {mode}"));
        if mode == "slow" {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        self.did(format!("ends {mode}"));
        Ok(())
    }

    async fn prompt(&self, _: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        self.did(prompt.text());
        Ok(StopReason::EndTurn)
    }
}

/// In one write, so that all of them have arrived before the first one is done.
async fn changes_of_a_session_are_applied_in_order(wire: Wire) {
    let (transport, mut client) = wire.scripted();
    let slow = Slow::default();
    tokio::spawn(duologue_agent::serve(slow.clone(), transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    for _ in 0..50 {
        let mode = |id: &str, mode: &str| {
            let params = json!({"sessionId": session, "modeId": mode});
            format!(
                "{}\n",
                json!({"jsonrpc": "2.0", "id": id, "method": "session/set_mode", "params": params})
            )
        };
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "asked"}]});
        let prompt = json!({"jsonrpc": "2.0", "id": "prompt", "method": "session/prompt", "params": params});
        let write = mode("a", "slow") + &mode("b", "quick") + &format!("{prompt}\n");
        client.write(write).await;
        for id in ["a", "b", "prompt"] {
            let answer = client.next_message().await;
            assert!(answer["id"] == id && answer["error"].is_null(), "{answer}");
        }
        let did = std::mem::take(&mut *slow.0.lock().expect("no panic"));
        assert_eq!(did, ["begins slow", "ends slow", "begins quick", "ends quick", "asked"]);
    }
}

/// With a session and without one, known and unknown: an answer at once, and never none.
async fn a_client_refuses_at_once_what_it_does_not_offer(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), script.accept_session("s"));
    let _session = session.expect("a session");
    let mut refused = 0;
    for row in METHODS.iter().copied().flatten().filter(|row| row.side == MethodSide::Client) {
        if row.result.is_none() {
            continue;
        }
        for named in [json!("s"), json!("nobody's"), Value::Null] {
            let mut params = json!({
                "sessionId": named, "path": "/f", "content": "c", "terminalId": "t", "command": "true",
                "toolCall": {"toolCallId": "t"}, "options": [], "mode": "form", "message": "?",
                "requestedSchema": {"type": "object", "properties": {}},
            });
            if named.is_null() {
                params.as_object_mut().expect("an object").remove("sessionId");
            }
            let answer = script.request(row.method, params).await;
            // A permission request that cannot be shown gets the outcome `cancelled`.
            if row.method == "session/request_permission" && named == "s" {
                assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled", "{answer}");
                continue;
            }
            let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{}: {answer}", row.method));
            assert!([-32601, -32602, -32002].contains(&code), "{}: {answer}", row.method);
            refused += 1;
        }
    }
    assert!(refused >= 3 * 8 - 1, "only {refused} were refused");
}

/// The newest are kept, whatever their session.
async fn updates_of_unknown_sessions_are_bounded_by_their_number(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
        let request = script.expect("session/new").await;
        for number in 0..300 {
            script.send_chunk("s", &number.to_string()).await;
        }
        script.respond(&request, json!({"sessionId": "s"})).await;
    });
    let mut updates = session.expect("a session").updates();
    for number in 300 - 256..300 {
        let update = updates.next().await.expect("an update").expect("no error");
        assert_eq!(update.to_string(), number.to_string());
    }
    assert_eq!(agent.dropped_updates(), 300 - 256);
}

async fn updates_of_unknown_sessions_are_bounded_by_their_bytes(wire: Wire) {
    const EACH: usize = 100 * 1024;
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    let fit = 1024 * 1024 / (EACH + message_chunk("s", "00").len());
    let (session, ()) = tokio::join!(agent.new_session("/tmp"), async {
        let request = script.expect("session/new").await;
        for number in 0..30 {
            script.send_chunk("s", &format!("{number:02}{}", "x".repeat(EACH))).await;
        }
        script.respond(&request, json!({"sessionId": "s"})).await;
    });
    let mut updates = session.expect("a session").updates();
    for number in 30 - fit..30 {
        let update = updates.next().await.expect("an update").expect("no error");
        assert!(update.to_string().starts_with(&format!("{number:02}x")), "not number {number}");
    }
    assert_eq!(agent.dropped_updates(), 30 - fit as u64);
}

/// Two sessions are being made at once, and both agents' words come before either is known.
async fn buffered_updates_of_one_session_are_not_given_to_another(wire: Wire) {
    let (agent, mut script) = client_of(wire, Client::new(()), json!({})).await;
    for _ in 0..20 {
        let (left, right, ()) = tokio::join!(agent.new_session("/tmp"), agent.new_session("/tmp"), async {
            let requests = [script.expect("session/new").await, script.expect("session/new").await];
            for number in 0..20 {
                script.send_chunk(["left", "right"][number % 2], &number.to_string()).await;
            }
            // In the other order.
            script.respond(&requests[1], json!({"sessionId": "right"})).await;
            script.respond(&requests[0], json!({"sessionId": "left"})).await;
        });
        for (session, first) in [(left, 0), (right, 1)] {
            let mut updates = session.expect("a session").updates();
            for number in (first..20).step_by(2) {
                let update = updates.next().await.expect("an update").expect("no error");
                assert_eq!(update.to_string(), number.to_string());
            }
        }
    }
    assert_eq!(agent.dropped_updates(), 0);
}

/// Before any session, and while one is being made that never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_for_nobody_leave_nothing_behind() {
    let (agent, mut script) = client_of(Wire::Pipes, Client::new(()), json!({})).await;
    let mut opening = Box::pin(agent.new_session("/tmp"));
    let floods = runs(4).max(4);
    let flood: String =
        (0..1000).map(|number| message_chunk(&format!("nobody {number}"), &"x".repeat(900))).collect();
    script.write(&flood).await;
    script.probe().await;
    for round in 1..floods {
        if round == floods / 2 {
            // Polled once: the question is out, and stays without an answer.
            assert!(futures::poll!(&mut opening).is_pending());
            script.expect("session/new").await;
        }
        script.write(&flood).await;
    }
    script.probe().await;
    // A few are kept for the session that is being made.
    assert!(agent.dropped_updates() >= floods * 1000 - 256);
}
