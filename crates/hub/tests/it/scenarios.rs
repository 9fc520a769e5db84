//! Single rules of an owner.

mod children;
mod optional_updates;
mod plans;
mod restoring;

use std::time::Duration;

use duologue_hub::{
    Abilities, ClientKey, ClientView, OwnerAction, OwnerInput, OwnerSettings, SessionOwner, project,
};
use duologue_schema::{ClientCapabilities, SessionId, SessionUpdate};
use duologue_transcript::Transcript;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// An owner whose log is written and synced at once, unless a test stops it.
pub(crate) struct Fixture {
    pub(crate) owner: SessionOwner,
    pub(crate) now: Duration,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) is_writing: bool,
    pub(crate) agent: Vec<Value>,
    replies: Vec<(String, Value)>,
    acknowledged: Vec<u64>,
    starts: Vec<bool>,
    starters: Vec<Option<String>>,
    /// The requests that restore the session.
    pub(crate) restoring: Vec<Value>,
    /// The conversation that the next process may send again.
    pub(crate) conversation: Vec<SessionUpdate>,
    pub(crate) ends: usize,
    pub(crate) routed: Vec<Value>,
    number: u64,
}

pub(crate) fn key(client: &str) -> ClientKey {
    ClientKey::new(client)
}

/// A client that can do everything.
pub(crate) fn able() -> Abilities {
    let capabilities: ClientCapabilities = serde_json::from_value(json!({
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true,
        "elicitation": {"form": {}, "url": {}},
    }))
    .unwrap();
    Abilities::of(&capabilities)
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Fixture::with(OwnerSettings::default())
    }

    pub(crate) fn with(settings: OwnerSettings) -> Self {
        Fixture::of(SessionOwner::new("s".into(), settings, 0), Vec::new())
    }

    pub(crate) fn of(owner: SessionOwner, log: Vec<Vec<u8>>) -> Self {
        Fixture {
            owner,
            now: Duration::ZERO,
            log,
            is_writing: true,
            agent: Vec::new(),
            replies: Vec::new(),
            acknowledged: Vec::new(),
            starts: Vec::new(),
            starters: Vec::new(),
            restoring: Vec::new(),
            conversation: Vec::new(),
            ends: 0,
            routed: Vec::new(),
            number: 0,
        }
    }

    pub(crate) fn restarted(&self) -> Self {
        let lines = self.log.iter().map(Vec::as_slice);
        let owner = SessionOwner::restore("s".into(), OwnerSettings::default(), lines).unwrap();
        Fixture::of(owner, self.log.clone())
    }

    pub(crate) fn input(&mut self, input: OwnerInput<'_>) {
        let actions = self.owner.handle(self.now, input);
        self.execute(actions);
        if self.is_writing {
            let written = self.owner.handle(self.now, OwnerInput::Synced(self.log.len() as u64));
            self.execute(written);
        }
    }

    fn execute(&mut self, actions: Vec<OwnerAction>) {
        for action in actions {
            match action {
                OwnerAction::Append(line) => self.log.push(line),
                OwnerAction::ToAgent(line) => {
                    let line: Value = serde_json::from_slice(&line).unwrap();
                    let is_of_owner = line["id"].as_str().is_some_and(|id| id.starts_with("hub:"));
                    if is_of_owner { &mut self.restoring } else { &mut self.agent }.push(line);
                }
                OwnerAction::Reply { client, line } => {
                    let line = serde_json::from_slice(&line).unwrap();
                    self.replies.push((client.as_str().to_owned(), line));
                }
                OwnerAction::Acknowledge { number, .. } => self.acknowledged.push(number),
                OwnerAction::StartAgent { fresh, client } => {
                    self.starts.push(fresh);
                    self.starters.push(client.map(|client| client.as_str().to_owned()));
                }
                OwnerAction::EndAgent => self.ends += 1,
                OwnerAction::Route(line) => self.routed.push(serde_json::from_slice(&line).unwrap()),
                _ => {}
            }
        }
    }

    pub(crate) fn attach(&mut self, client: &str, abilities: Abilities) {
        self.input(OwnerInput::Attached { client: &key(client), abilities });
    }

    /// The process that was started has answered `initialize`.
    pub(crate) fn ready(&mut self, capabilities: &Value) {
        let introduction = json!({"protocolVersion": 1, "agentCapabilities": capabilities});
        let introduction = serde_json::from_value(introduction).unwrap();
        let params = json!({"cwd": "/", "mcpServers": []});
        let conversation = std::mem::take(&mut self.conversation);
        self.input(OwnerInput::AgentReady { introduction: &introduction, params, conversation });
    }

    /// The agent answers the last request that restores the session.
    pub(crate) fn answers_owner(&mut self, outcome: &Value) {
        let mut answer = json!({"jsonrpc": "2.0", "id": self.restoring.last().unwrap()["id"]});
        answer.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
        self.agent(&answer);
    }

    /// The process that was started restores the session.
    pub(crate) fn restores(&mut self) {
        self.ready(&json!({"sessionCapabilities": {"resume": {}}}));
        self.answers_owner(&json!({"result": {}}));
    }

    /// The process restores the session, if one was started.
    pub(crate) fn restores_if_started(&mut self) {
        if !self.starts.is_empty() {
            self.restores();
        }
    }

    /// The process that was started does not know the session.
    fn loses(&mut self) {
        self.ready(&json!({"sessionCapabilities": {"resume": {}}}));
        self.answers_owner(&json!({"error": {"code": -32002, "message": "unknown session"}}));
    }

    pub(crate) fn client(&mut self, client: &str, message: &Value) {
        self.number += 1;
        let line = message.to_string();
        self.input(OwnerInput::FromClient {
            client: &key(client),
            number: self.number,
            line: line.as_bytes(),
        });
    }

    pub(crate) fn prompt(&mut self, client: &str, id: u64) {
        self.prompt_with(client, id, &json!({}));
    }

    pub(crate) fn prompt_with(&mut self, client: &str, id: u64, meta: &Value) {
        let prompt = json!([{"type": "text", "text": "hello"}]);
        let params = json!({"sessionId": "s", "prompt": prompt, "_meta": {"duologue": meta}});
        self.client(
            client,
            &json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}),
        );
    }

    pub(crate) fn agent(&mut self, message: &Value) {
        self.input(OwnerInput::FromAgent(message.to_string().as_bytes()));
    }

    fn asks(&mut self, id: u64) {
        let options = json!([{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]);
        let params = json!({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": options});
        let method = "session/request_permission";
        self.agent(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    fn update(&mut self, session: &str, update: Value) {
        let params = json!({"sessionId": session, "update": update});
        self.agent(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    pub(crate) fn requests(&mut self, id: u64, method: &str, params: &Value) {
        self.agent(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    pub(crate) fn ends_turn(&mut self) {
        let call = self.agent.iter().rfind(|line| line["method"] == "session/prompt").unwrap()["id"].clone();
        self.agent(&json!({"jsonrpc": "2.0", "id": call, "result": {"stopReason": "end_turn"}}));
    }

    /// Returns all frames that a client can read.
    pub(crate) fn frames(&self, client: &str, abilities: Abilities) -> Vec<Value> {
        let (client, session) = (key(client), SessionId::from("s"));
        let view = ClientView { client: &client, session: &session, abilities };
        let line = |position: u64| self.log.get(position as usize - 1).cloned();
        let mut frames = Vec::new();
        for position in 1..=self.owner.visible() {
            project(&view, position, &line(position).unwrap(), line, &mut frames).unwrap();
        }
        frames.iter().map(|frame| serde_json::from_slice(frame).unwrap()).collect()
    }

    pub(crate) fn last_to_agent(&self) -> &Value {
        self.agent.last().unwrap()
    }
}

#[test]
fn the_log_precedes_the_agent_and_a_sync_precedes_the_acknowledgement() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.is_writing = false;
    it.prompt("a", 7);
    assert!(it.agent.is_empty() && it.acknowledged.is_empty());
    it.input(OwnerInput::Written(1));
    assert_eq!(it.last_to_agent()["method"], "session/prompt");
    assert!(it.acknowledged.is_empty());
    it.input(OwnerInput::Synced(1));
    assert_eq!(it.acknowledged, [1]);
    // The end of a turn is visible after a sync.
    it.ends_turn();
    it.input(OwnerInput::Written(2));
    assert_eq!(it.frames("a", able()), [] as [Value; 0]);
    it.input(OwnerInput::Synced(2));
    let expected = json!({"jsonrpc": "2.0", "id": 7, "result": {"stopReason": "end_turn"}});
    assert_eq!(it.frames("a", able()), [expected]);
    assert_eq!(it.owner.unwritten_bytes(), 0);
}

#[test]
fn another_client_sees_the_prompt_and_the_end_of_its_turn_and_not_its_response() {
    for is_lost in [false, true] {
        let mut it = Fixture::new();
        it.attach("a", able());
        it.attach("b", able());
        it.prompt("a", 1);
        match is_lost {
            false => it.ends_turn(),
            true => it.input(OwnerInput::AgentEnded("it was killed")),
        }
        let frames = it.frames("b", able());
        let turn = |running: bool| json!({"sessionId": "s", "running": running});
        assert_eq!((&frames[0]["method"], &frames[0]["params"]), (&json!("_session/turn"), &turn(true)));
        let text =
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hello"}});
        assert_eq!(frames[1]["params"]["update"], text);
        assert_eq!((&frames[2]["method"], &frames[2]["params"]), (&json!("_session/turn"), &turn(false)));
        assert_eq!(frames.len(), 3, "{frames:?}");
        let own = it.frames("a", able());
        assert_eq!((&own[0]["id"], &own[1]["method"]), (&json!(1), &json!("_session/turn")));
        assert_eq!(own.len(), 2, "{own:?}");
    }
}

#[test]
fn a_second_prompt_is_refused_while_one_runs() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.prompt("a", 2);
    let (client, reply) = it.replies.pop().unwrap();
    assert_eq!(
        (client.as_str(), &reply["id"], &reply["error"]["data"]["code"]),
        ("a", &json!(2), &json!("busy"))
    );
    assert_eq!(it.acknowledged, [1, 2]);
    it.ends_turn();
    it.prompt("a", 3);
    assert!(it.replies.is_empty() && it.owner.has_turn());
}

#[test]
fn a_repeated_operation_runs_once_and_has_one_outcome() {
    let mut it = Fixture::new();
    let operation = json!({"operation": "o"});
    it.attach("a", able());
    it.prompt_with("a", 1, &operation);
    it.attach("b", able());
    it.prompt_with("b", 9, &operation);
    assert_eq!(it.agent.len(), 1);
    it.ends_turn();
    for (client, id) in [("a", 1), ("b", 9)] {
        let frames = it.frames(client, able());
        assert_eq!(frames.iter().filter(|frame| frame["id"] == id).count(), 1, "{frames:?}");
    }
    // After a restart too.
    let mut it = it.restarted();
    it.attach("c", able());
    it.prompt_with("c", 5, &operation);
    let expected = json!({"jsonrpc": "2.0", "id": 5, "result": {"stopReason": "end_turn"}});
    assert_eq!(it.replies, [("c".to_owned(), expected)]);
    assert!(it.agent.is_empty() && it.starts.is_empty());
}

#[test]
fn the_first_valid_answer_wins() {
    let mut it = Fixture::new();
    for client in ["a", "b", "c"] {
        it.attach(client, able());
    }
    it.prompt("a", 1);
    it.asks(50);
    let id = it.frames("b", able()).pop().unwrap()["id"].clone();
    let answer = |option: &str| {
        let outcome = json!({"outcome": "selected", "optionId": option});
        json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})
    };
    it.client("a", &answer("unknown"));
    assert_eq!(it.agent.len(), 1, "the option does not exist");
    it.client("b", &answer("yes"));
    it.client("c", &answer("yes"));
    assert_eq!(it.agent.len(), 2);
    let sent = it.last_to_agent();
    assert_eq!((&sent["id"], &sent["result"]["outcome"]["optionId"]), (&json!(50), &json!("yes")));
    for (client, is_withdrawn) in [("a", true), ("b", false), ("c", true)] {
        let last = it.frames(client, able()).pop().unwrap();
        assert_eq!(last["method"] == "$/cancel_request", is_withdrawn, "{client}: {last}");
        assert!(!is_withdrawn || last["params"]["requestId"] == id, "{last}");
    }
}

#[test]
fn a_question_is_cancelled_after_a_day_without_a_client() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.now += 30 * HOUR;
    it.input(OwnerInput::Time);
    assert_eq!((it.agent.len(), it.owner.deadline()), (1, None), "a client is there");
    it.input(OwnerInput::Absent(&key("a")));
    it.now += 20 * HOUR;
    it.input(OwnerInput::Returned(&key("a")));
    it.input(OwnerInput::Absent(&key("a")));
    assert_eq!(it.owner.deadline(), Some(it.now + 24 * HOUR));
    it.now += 24 * HOUR;
    it.input(OwnerInput::Time);
    assert_eq!(it.last_to_agent()["result"]["outcome"]["outcome"], "cancelled");
    assert_eq!(it.owner.deadline(), None);
}

#[test]
fn a_client_that_attaches_later_is_shown_the_open_question() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.input(OwnerInput::Left(&key("a")));
    let before = it.frames("b", able()).len();
    it.attach("b", able());
    let frames = it.frames("b", able());
    assert_eq!(frames.len(), before + 1);
    assert_eq!(frames[before]["id"], it.frames("a", able())[0]["id"]);
}

#[test]
fn a_form_that_nobody_can_show_is_declined() {
    let mut it = Fixture::new();
    it.attach("a", Abilities::default());
    it.prompt("a", 1);
    let schema = json!({"type": "object", "properties": {}});
    let form = json!({"sessionId": "s", "mode": "form", "message": "m", "requestedSchema": schema});
    it.requests(50, "elicitation/create", &form);
    assert_eq!(it.last_to_agent()["result"]["action"], "decline");
    it.attach("b", able());
    it.requests(51, "elicitation/create", &form);
    assert_eq!(it.agent.len(), 2, "b can show it");
    it.input(OwnerInput::Left(&key("b")));
    assert_eq!(
        (&it.last_to_agent()["id"], &it.last_to_agent()["result"]["action"]),
        (&json!(51), &json!("decline"))
    );
}

#[test]
fn files_are_requested_from_the_host_alone() {
    let mut it = Fixture::new();
    let read = json!({"sessionId": "s", "path": "/a"});
    it.attach("b", Abilities::default());
    it.prompt("b", 1);
    it.requests(51, "fs/read_text_file", &read);
    assert_eq!(it.last_to_agent()["error"]["code"], -32601, "no client has files");
    it.attach("c", able());
    it.requests(52, "fs/read_text_file", &read);
    let is_request = |frame: &Value| frame["method"] == "fs/read_text_file";
    assert!(!it.frames("b", able()).iter().any(is_request));
    let request = it.frames("c", able()).into_iter().find(is_request).unwrap();
    let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": "text"}});
    it.client("b", &response);
    assert_ne!(it.last_to_agent()["id"], 52, "the request was not for this client");
    it.client("c", &response);
    assert_eq!(it.last_to_agent()["result"]["content"], "text");
    it.requests(53, "fs/read_text_file", &read);
    it.input(OwnerInput::Left(&key("c")));
    assert_eq!(it.last_to_agent()["error"]["data"]["code"], "client_lost");
    it.input(OwnerInput::Left(&key("b")));
    it.requests(54, "fs/read_text_file", &read);
    assert_eq!(it.last_to_agent()["error"]["data"]["code"], "client_lost", "no client is left");
}

/// The server was started with other settings after the request.
#[test]
fn a_recorded_request_for_files_is_not_sent_without_files() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.requests(50, "fs/read_text_file", &json!({"sessionId": "s", "path": "/a"}));
    it.requests(51, "_x/y", &json!({"sessionId": "s"}));
    let methods = |abilities| -> Vec<_> {
        it.frames("a", abilities).iter().map(|frame| frame["method"].clone()).collect()
    };
    assert_eq!(methods(able()), ["fs/read_text_file", "_x/y"]);
    // A client counts the frames of the session, so another one is in the place of the request.
    assert_eq!(methods(able().without_files()), ["$/cancel_request", "_x/y"]);
    assert_eq!(it.frames("a", able().without_files())[0]["params"]["sessionId"], "s");
    // The same client is back without them.
    it.attach("a", able().without_files());
    assert_eq!(
        (&it.last_to_agent()["id"], &it.last_to_agent()["error"]["code"]),
        (&json!(50), &json!(-32601))
    );
}

#[test]
fn a_message_of_the_transport_is_not_one_of_the_agent() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    let ack = json!({"jsonrpc": "2.0", "method": "stream/ack", "params": {"received": 1_000_000}});
    let before = it.log.len();
    it.agent(&ack);
    assert_eq!(it.log.len(), before);
    it.agent(&json!({"jsonrpc": "2.0", "method": "streams", "params": {}}));
    assert_eq!(it.frames("a", able()).len(), 1, "only a method of the transport is dropped");
    // A log of an earlier version can have it.
    let view = ClientView { client: &key("a"), session: &"s".into(), abilities: able() };
    let record = format!(r#"{{"at":1,"from":"agent","frame":{ack}}}"#);
    let mut frames = Vec::new();
    project(&view, 9, record.as_bytes(), |_| None, &mut frames).unwrap();
    assert!(frames.is_empty());
}

#[test]
fn a_cancel_reaches_the_agent_and_its_questions() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.client("a", &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}));
    assert_eq!(it.agent[1]["method"], "session/cancel");
    assert_eq!(it.agent[2]["result"]["outcome"]["outcome"], "cancelled");
    // The request of a client is cancelled by the hub's id.
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}});
    it.client("b", &cancel);
    it.client("a", &cancel);
    assert_eq!(it.agent.len(), 4);
    assert_eq!(it.last_to_agent()["params"]["requestId"], it.agent[0]["id"]);
}

#[test]
fn the_agent_can_withdraw_its_requests() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.requests(51, "fs/read_text_file", &json!({"sessionId": "s", "path": "/a"}));
    for id in [50, 51] {
        let params = json!({"requestId": id});
        it.agent(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}));
        assert_eq!(
            (&it.last_to_agent()["id"], &it.last_to_agent()["error"]["code"]),
            (&json!(id), &json!(-32800))
        );
    }
    let frames = it.frames("a", able());
    assert_eq!(frames.iter().filter(|frame| frame["method"] == "$/cancel_request").count(), 2);
}

#[test]
fn an_ended_process_interrupts_what_was_open_and_is_started_for_the_next_prompt() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.input(OwnerInput::AgentEnded("the agent crashed"));
    let frames = it.frames("a", able());
    let error = &frames.iter().find(|frame| frame["id"] == 1).unwrap()["error"];
    assert_eq!(
        (&error["data"]["code"], &error["message"]),
        (&json!("interrupted"), &json!("the agent crashed"))
    );
    assert_eq!(frames.last().unwrap()["method"], "$/cancel_request");
    it.prompt("a", 2);
    assert_eq!((it.starts.as_slice(), it.agent.len()), (&[false][..], 1), "the prompt waits for the process");
    it.restores();
    assert_eq!(it.agent.len(), 2);
}

/// An agent that does not end the turn of a closed session is answered for.
#[test]
fn the_turn_of_a_closed_session_is_cancelled() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    let end = it.owner.end();
    it.input(OwnerInput::Closing);
    assert!(it.agent.iter().any(|line| line["method"] == "session/cancel"), "{:?}", it.agent);
    assert_eq!(it.last_to_agent()["result"]["outcome"]["outcome"], "cancelled");
    assert!(it.owner.has_turn() && it.owner.end() > end);
    it.input(OwnerInput::Closed("the session was closed"));
    let frames = it.frames("a", able());
    let answer = frames.iter().find(|frame| frame["id"] == 1).unwrap();
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    let mut again = it.restarted();
    again.input(OwnerInput::Time);
    assert_eq!(again.owner.end(), it.owner.end(), "nothing is open after a restart");
    // Without a turn there is nothing to cancel.
    again.input(OwnerInput::Closing);
    again.input(OwnerInput::Closed("the session was closed"));
    assert_eq!(again.owner.end(), it.owner.end());
}

#[test]
fn an_agent_that_ends_again_and_again_is_not_started_until_later() {
    let mut settings = OwnerSettings::default();
    (settings.restarts, settings.restart_period) = (2, HOUR);
    let mut it = Fixture::with(settings);
    it.attach("a", able());
    it.input(OwnerInput::AgentEnded("the agent crashed"));
    it.prompt("a", 1);
    it.restores();
    it.input(OwnerInput::AgentEnded("the agent crashed"));
    it.prompt("a", 2);
    // It could not be started.
    it.input(OwnerInput::AgentEnded("the agent does not answer"));
    assert_eq!(it.starts.len(), 2);
    it.prompt("a", 3);
    assert_eq!((it.starts.len(), it.replies.len()), (2, 1), "the prompt is refused");
    let error = &it.replies.last().unwrap().1["error"];
    assert_eq!(error["data"], json!({"code": "restart_limit", "retryable": true}));
    assert!(error["message"].as_str().unwrap().contains("`restarts`"));
    it.now += HOUR;
    it.prompt("a", 4);
    assert_eq!((it.starts.len(), it.replies.len()), (3, 1), "the ends are forgotten after the period");
}

#[test]
fn a_restart_interrupts_the_running_turn() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    let mut it = it.restarted();
    it.input(OwnerInput::Time);
    let frames = it.frames("a", able());
    let error = &frames[0]["error"];
    assert_eq!((&error["data"]["code"], &error["data"]["retryable"]), (&json!("interrupted"), &json!(true)));
    assert_eq!((&frames[1]["method"], frames.len()), (&json!("_session/turn"), 2));
    assert!(!it.owner.has_turn());
    // Nothing is interrupted twice.
    let again = it.restarted();
    assert_eq!(again.owner.end(), it.owner.end());
}

#[test]
fn a_lost_context_needs_consent() {
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt("a", 1);
    it.loses();
    let frames = it.frames("a", able());
    assert_eq!(frames[0]["error"]["data"]["code"], "context_lost");
    it.prompt_with("a", 2, &json!({"fresh": true}));
    assert_eq!(it.starts, [false, true]);
    it.loses();
    it.answers_owner(&json!({"result": {"sessionId": "new"}}));
    assert_eq!(it.agent.len(), 1);
    assert!(it.log.iter().any(|line| line.ends_with(br#""hub":{"event":"agent_session","id":"new"}}"#)));
}

#[test]
fn a_turn_without_clients_ends_at_its_limit() {
    let mut settings = OwnerSettings::default();
    settings.unattended_turn = Some(HOUR);
    let mut it = Fixture::with(settings);
    it.attach("a", able());
    it.prompt("a", 1);
    it.now += 2 * HOUR;
    it.input(OwnerInput::Absent(&key("a")));
    assert_eq!(it.owner.deadline(), Some(it.now + HOUR));
    it.now += HOUR;
    it.input(OwnerInput::Time);
    assert_eq!(it.last_to_agent()["method"], "session/cancel");
}

#[test]
fn limits_name_their_settings() {
    let mut settings = OwnerSettings::default();
    (settings.client_requests, settings.agent_requests) = (1, 1);
    let mut it = Fixture::with(settings);
    it.attach("a", able());
    it.prompt("a", 1);
    let mode = json!({"sessionId": "s", "modeId": "m"});
    it.client("a", &json!({"jsonrpc": "2.0", "id": 2, "method": "session/set_mode", "params": mode}));
    let message = it.replies[0].1["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("1 requests") && message.contains("client_requests"), "{message}");
    it.asks(50);
    it.asks(51);
    let message = it.last_to_agent()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("1 requests") && message.contains("agent_requests"), "{message}");
}

#[test]
fn a_client_that_is_not_attached_has_no_session() {
    let mut it = Fixture::new();
    it.prompt("stranger", 1);
    assert_eq!(it.replies[0].1["error"]["code"], -32002);
    assert!(it.agent.is_empty() && it.log.is_empty());
}

#[test]
fn the_log_is_a_transcript() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.asks(50);
    it.ends_turn();
    let mut file = br#"{"format":"acp-transcript","version":1,"recorder":"test","protocolVersion":1,"started":"2026-11-23T00:00:00Z"}"#.to_vec();
    for line in &it.log {
        file.push(b'\n');
        file.extend_from_slice(line);
    }
    file.push(b'\n');
    let transcript = Transcript::read(file.as_slice()).unwrap();
    let methods: Vec<_> =
        transcript.entries().iter().map(|entry| entry.method().unwrap_or("response").to_owned()).collect();
    assert_eq!(methods, ["session/prompt", "session/request_permission", "session/prompt"]);
    let line = br#"{"at":1,"hub":{"event":"opened","life":2}}"#;
    file.extend_from_slice(line);
    file.push(b'\n');
    let script = Transcript::read(file.as_slice()).unwrap().render();
    assert!(script.contains(r#"hub {"event":"opened","life":2}"#), "{script}");
}

#[test]
fn what_waits_for_a_starting_agent_is_limited() {
    let mut settings = OwnerSettings::default();
    settings.client_requests = 10;
    let owner = SessionOwner::restore("s".into(), settings, []).unwrap();
    let mut fixture = Fixture::of(owner, Vec::new());
    fixture.attach("a", able());
    fixture.prompt("a", 1);
    assert_eq!(fixture.starts, [false]);
    for _ in 0..1000 {
        fixture.client("a", &json!({"jsonrpc": "2.0", "method": "_x", "params": {"sessionId": "s"}}));
        fixture.client(
            "a",
            &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}),
        );
    }
    // Notifications up to the limit. The prompt was cancelled before the agent received it.
    assert_eq!(fixture.owner.waiting_for_agent(), 10);
    fixture.restores();
    assert_eq!(fixture.agent.len(), 10);
    assert!(fixture.agent.iter().all(|line| line["method"] == "_x"), "{:?}", fixture.agent);
    assert_eq!(fixture.owner.waiting_for_agent(), 0);
}

#[test]
fn a_log_failure_answers_what_clients_cannot_see() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.is_writing = false;
    it.ends_turn();
    let written = OwnerInput::Written(it.log.len() as u64);
    it.input(written);
    assert!(it.frames("a", able()).is_empty(), "the end of a turn is visible before it is synced");
    let actions = it.owner.fail("the disk is full");
    it.execute(actions);
    let (client, answer) = &it.replies[0];
    assert_eq!((client.as_str(), &answer["id"]), ("a", &json!(1)));
    assert_eq!(answer["error"]["data"]["code"], "log_failed");
    assert_eq!(it.replies.len(), 1);

    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    it.ends_turn();
    assert_eq!(it.owner.fail("the disk is full"), [], "this response is in the log");
}

/// The outcome of the first prompt is in the log, and a power cut could still replace it.
#[test]
fn a_log_failure_answers_a_repeated_operation() {
    let mut it = Fixture::new();
    let operation = json!({"operation": "o"});
    it.attach("a", able());
    it.prompt_with("a", 1, &operation);
    it.is_writing = false;
    it.ends_turn();
    it.input(OwnerInput::Written(it.log.len() as u64));
    it.prompt_with("a", 2, &operation);
    assert_eq!(it.replies, []);
    let actions = it.owner.fail("the disk is full");
    it.execute(actions);
    let answered: Vec<_> =
        it.replies.iter().map(|(_, answer)| (&answer["id"], &answer["error"]["data"]["code"])).collect();
    let code = json!("log_failed");
    assert_eq!(answered, [(&json!(1), &code), (&json!(2), &code)]);
}

#[test]
fn repetitions_of_a_prompt_are_limited_and_answered_once() {
    let mut settings = OwnerSettings::default();
    settings.client_requests = 2;
    let mut it = Fixture::with(settings);
    it.attach("a", able());
    let operation = json!({"operation": "o"});
    for id in [1, 1, 2, 2, 3] {
        it.prompt_with("a", id, &operation);
    }
    assert_eq!(it.acknowledged, [1, 2, 3, 4, 5]);
    let (_, refusal) = &it.replies[0];
    assert_eq!(refusal["id"], 3);
    assert!(refusal["error"]["message"].as_str().unwrap().contains("`client_requests`"));
    it.ends_turn();
    let frames = it.frames("a", able());
    let answered: Vec<_> = frames.iter().filter_map(|frame| frame["id"].as_u64()).collect();
    assert_eq!((answered, it.replies.len()), (vec![1, 2], 1));
}

#[test]
fn an_outcome_is_repeated_when_it_survives_a_power_cut() {
    let mut it = Fixture::new();
    let operation = json!({"operation": "o"});
    it.attach("a", able());
    it.prompt_with("a", 1, &operation);
    it.is_writing = false;
    it.ends_turn();
    let end = it.log.len() as u64;
    it.input(OwnerInput::Written(end));
    it.prompt_with("a", 2, &operation);
    assert_eq!(it.replies, []);
    it.input(OwnerInput::Synced(end));
    let (_, answer) = &it.replies[0];
    assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(2), &json!("end_turn")));
}

#[test]
fn an_operation_without_its_context_may_begin_again() {
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt_with("a", 1, &json!({"operation": "o"}));
    it.loses();
    it.prompt_with("a", 2, &json!({"operation": "o", "fresh": true}));
    assert_eq!((it.starts.as_slice(), it.replies.len()), ([false, true].as_slice(), 0));
}

#[test]
fn the_records_that_end_a_full_session_fit_into_the_reserve() {
    let client = uuid::Uuid::nil().to_string();
    let mut it = Fixture::new();
    it.attach(&client, able());
    let id = |number: usize, bytes: usize| format!("{number:0>bytes$}");
    let limit = OwnerSettings::default().request_id_bytes - 2;
    let request = |id: String| json!({"jsonrpc": "2.0", "id": id, "method": "session/set_mode", "params": {"sessionId": "s"}});
    it.client(&client, &request(id(0, limit + 1)));
    let (_, refused) = it.replies.pop().expect("a longer id is refused");
    assert!(refused["error"]["message"].to_string().contains("OwnerSettings::request_id_bytes"), "{refused}");
    let file = json!({"sessionId": "s", "path": "/f"});
    for number in 0..OwnerSettings::default().client_requests {
        it.client(&client, &request(id(number, limit)));
        it.requests(number as u64, "fs/read_text_file", &file);
    }
    let before = it.log.len();
    // A longer reason is cut, also one that JSON makes longer.
    it.input(OwnerInput::AgentEnded(&"\"".repeat(10_000)));
    let ends: usize = it.log[before..].iter().map(|line| line.len() + 1).sum();
    assert!(it.log.len() - before >= 512);
    assert!(ends as u64 <= duologue_store::LogSettings::RESERVE_BYTES, "{ends} bytes");
}
