//! Messages in any order: an agent of version 2 answers each request once and sends nothing of a turn outside of it, and a
//! client of version 2 ends each turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duologue_agent::schema::{PermissionOption, PermissionOptionKind, SessionUpdate};
use duologue_agent::{Agent, Prompt, Result, Server, StopReason, Turn};
use duologue_client::Client;
use duologue_testkit::ScriptedPeer;
use serde_json::{Value, json};

use crate::input::Input;

/// Time for what both sides still have to send. The clock is paused, so it costs nothing.
const SETTLED: Duration = Duration::from_secs(60);
/// The messages of one case.
const STEPS: usize = 40;

/// Steps, a few bytes each.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    match input.below(2) {
        0 => runtime.block_on(drive_agent(input)),
        _ => runtime.block_on(drive_client(input)),
    }
}

/// Runs one step for each character of the prompt.
struct Lettered;

impl Agent for Lettered {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        for letter in prompt.text().chars() {
            match letter {
                'a' => turn.message().push("of the turn").await?,
                'b' => turn.update(SessionUpdate::agent_thought("of the turn").with_message_id("t")).await?,
                'c' => turn.message().with_id("m").clear().await?,
                'd' => drop(turn.tool_call("Read").start().await?),
                'e' => turn.tool_call("Sleep").id("c").cancellable().start().await?.cancelled().await,
                'f' => {
                    let call = turn.tool_call("Delete").id("p").start().await?;
                    let allow = PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce);
                    call.request_permission(vec![allow]).await?;
                    call.complete().await?;
                }
                'g' => {
                    let session = turn.session().clone();
                    let work = session.begin_work();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        let update = SessionUpdate::agent_message("of the turn").with_message_id("w");
                        // It fails if the connection has ended.
                        let _ = session.update(update).await;
                        work.finish(StopReason::EndTurn);
                    });
                }
                'h' => turn.cancelled().await,
                'i' => tokio::time::sleep(Duration::from_millis(10)).await,
                'j' => return Err(duologue_agent::Error::other("no model")),
                _ => return Ok(StopReason::MaxTokens),
            }
        }
        Ok(StopReason::EndTurn)
    }
}

async fn drive_agent(mut input: Input<'_>) {
    let (transport, peer) = ScriptedPeer::in_memory();
    tokio::spawn(Server::new(Lettered).protocol_v2().serve(transport));
    let mut client = FuzzedClient {
        peer,
        open: BTreeMap::new(),
        questions: Vec::new(),
        sessions: Vec::new(),
        running: BTreeSet::new(),
        closed: BTreeSet::new(),
    };
    let info = json!({"name": "fuzz", "version": "1"});
    client.send("initialize", json!({"protocolVersion": 2, "info": info, "capabilities": {}})).await;
    client.send("session/new", json!({"cwd": "/"})).await;
    client.read().await;
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        client.step(&mut input).await;
    }
    // A cancellation ends all waits.
    for session in client.sessions.clone() {
        client.peer.notify("session/cancel", json!({"sessionId": session})).await;
    }
    tokio::time::sleep(SETTLED).await;
    client.read().await;
    assert!(client.open.is_empty(), "without a response: {:?}", client.open);
    assert!(client.running.is_empty(), "not idle: {:?}", client.running);
}

/// The client of the agent.
struct FuzzedClient {
    peer: ScriptedPeer,
    /// The methods of the requests without a response, and their params.
    open: BTreeMap<u64, (&'static str, Value)>,
    /// The requests to the user without a response.
    questions: Vec<Value>,
    sessions: Vec<String>,
    /// The sessions whose last state was not `idle`.
    running: BTreeSet<String>,
    /// The sessions of which nothing may follow.
    closed: BTreeSet<String>,
}

impl FuzzedClient {
    async fn send(&mut self, method: &'static str, params: Value) {
        let id = self.peer.send_request(method, params.clone()).await;
        self.open.insert(id, (method, params));
    }

    async fn step(&mut self, input: &mut Input<'_>) {
        let kind = input.below(16);
        let which = input.below(4);
        let session = self.sessions.get(which % self.sessions.len().max(1)).map_or("none", String::as_str);
        let with_call = |call: &str| json!({"sessionId": session, "toolCallId": call});
        let params = json!({"sessionId": session});
        match kind {
            0..=4 => {
                let text: String =
                    (0..=input.below(5)).map(|_| char::from(b'a' + input.below(12) as u8)).collect();
                let prompt = json!([{"type": "text", "text": text}]);
                self.send("session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
            }
            5 | 6 => self.peer.notify("session/cancel", params).await,
            7 => {
                let params = with_call(["c", "p"][which % 2]);
                self.send("tool_call/cancel", params).await;
            }
            8 => self.answer(which).await,
            9 => self.send("session/new", json!({"cwd": "/"})).await,
            10 => self.send("session/close", params).await,
            11 => self.send("session/resume", json!({"sessionId": session, "cwd": "/"})).await,
            12 => {
                if let Some(id) = self.open.keys().next_back() {
                    self.peer.notify("$/cancel_request", json!({"requestId": id})).await;
                }
            }
            13 => tokio::time::sleep(Duration::from_millis(400)).await,
            _ => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.read().await;
            }
        }
    }

    async fn answer(&mut self, which: usize) {
        let Some(question) = self.questions.pop() else { return };
        let result = match which {
            0 => json!({"outcome": {"outcome": "selected", "optionId": "allow"}}),
            1 => json!({"outcome": {"outcome": "cancelled"}}),
            _ => json!("no outcome"),
        };
        self.peer.respond(&question, result).await;
        if which == 3 {
            // Once too often.
            self.peer.respond(&question, json!({})).await;
        }
    }

    /// Reads what the agent has sent until it waits.
    async fn read(&mut self) {
        while let Ok(line) = tokio::time::timeout(Duration::from_millis(1), self.peer.next_line()).await {
            let line = line.expect("the agent does not close the connection");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            match (message["method"].as_str(), message["id"].as_u64()) {
                (None, Some(id)) => self.answered(id, &message),
                (None, None) => panic!("without an id: {message}"),
                (Some("session/update"), _) => self.updated(&message["params"]),
                (Some("session/request_permission"), _) => {
                    let session = message["params"]["sessionId"].as_str().expect("a session");
                    assert!(!self.closed.contains(session), "after the close: {message}");
                    self.questions.push(message);
                }
                // It withdraws a question.
                (Some(method), _) => assert_eq!(method, "$/cancel_request"),
            }
        }
    }

    fn answered(&mut self, id: u64, message: &Value) {
        let (method, params) =
            self.open.remove(&id).unwrap_or_else(|| panic!("a second response: {message}"));
        match (method, message["result"]["sessionId"].as_str()) {
            ("session/new", Some(session)) => self.sessions.push(session.to_owned()),
            ("session/close", _) if message["error"].is_null() => {
                let session = params["sessionId"].as_str().expect("a session");
                self.running.remove(session);
                self.closed.insert(session.to_owned());
            }
            _ => {}
        }
    }

    fn updated(&mut self, params: &Value) {
        let session = params["sessionId"].as_str().expect("a session").to_owned();
        assert!(!self.closed.contains(&session), "after the close: {params}");
        match params["update"]["sessionUpdate"].as_str() {
            Some("state_update") if params["update"]["state"] == "idle" => {
                self.running.remove(&session);
            }
            Some("state_update") => {
                self.running.insert(session);
            }
            Some("agent_message_chunk" | "agent_message" | "agent_thought_chunk" | "tool_call_update") => {
                assert!(self.running.contains(&session), "outside of a turn: {params}");
            }
            _ => {}
        }
    }
}

async fn drive_client(mut input: Input<'_>) {
    let (transport, mut agent) = ScriptedPeer::in_memory();
    let client = Client::new(()).protocol_v2();
    let turns = tokio::spawn(async move {
        let connection = client.connect(transport).await.expect("a connection");
        let session = connection.new_session("/").await.expect("a session");
        for _ in 0..2 {
            let Ok(turn) = session.prompt("hi").await else { continue };
            // Its end is an error if the agent was gone.
            let _ = turn.finish().await;
        }
        // The agent may go on writing.
        connection.closed().await;
    });
    let initialized = json!({"protocolVersion": 2, "info": {"name": "fuzz", "version": "1"}, "capabilities": {"session": {}}});
    let request = agent.expect("initialize").await;
    agent.respond(&request, initialized).await;
    let request = agent.expect("session/new").await;
    agent.respond(&request, json!({"sessionId": "s"})).await;
    let mut prompt = agent.next_message().await;
    for number in 0..STEPS as u64 {
        if input.is_empty() {
            break;
        }
        let id = ["u", "v"][input.below(2)];
        let text = ["hi", "h", "i", "x"][input.below(4)];
        let text = json!({"type": "text", "text": text});
        let update = match input.below(12) {
            0 => {
                agent.respond(&prompt, json!({"messageId": id})).await;
                continue;
            }
            1 => json!({"sessionUpdate": "user_message", "messageId": id, "content": [text]}),
            2 => json!({"sessionUpdate": "user_message_chunk", "messageId": id, "content": text}),
            3 => json!({"sessionUpdate": "state_update", "state": "running"}),
            4 => json!({"sessionUpdate": "state_update", "state": "requires_action"}),
            5 => json!({"sessionUpdate": "state_update", "state": "idle"}),
            6 => json!({"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}),
            7 => json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": text}),
            8 => json!({"sessionUpdate": "agent_message", "messageId": id, "content": null}),
            9 => {
                let subject = json!({"type": "tool_call", "toolCall": {"toolCallId": id}});
                let options = json!([{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]);
                let params = json!({"sessionId": "s", "title": "?", "subject": subject, "options": options});
                agent.send(json!({"jsonrpc": "2.0", "id": number, "method": "session/request_permission", "params": params})).await;
                continue;
            }
            _ => {
                let line = tokio::time::timeout(Duration::from_millis(1), agent.next_line()).await;
                let message = line.ok().flatten().and_then(|line| serde_json::from_str::<Value>(&line).ok());
                if let Some(message) = message.filter(|message| message["method"] == "session/prompt") {
                    prompt = message;
                }
                continue;
            }
        };
        agent.notify("session/update", json!({"sessionId": "s", "update": update})).await;
    }
    agent.close().await;
    tokio::time::timeout(SETTLED, turns).await.expect("a turn does not end").expect("no panic");
}
