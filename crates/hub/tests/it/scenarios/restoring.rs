//! An agent that is started again comes back as its clients see it.

mod lost_sessions;
mod models;

use std::time::Duration;

use duologue_hub::{OwnerInput, OwnerSettings, SessionOwner};
use duologue_schema::SessionUpdate;
use serde_json::{Value, json};

use super::{Fixture, able, key};

fn modes(current: &str) -> Value {
    json!({"currentModeId": current, "availableModes": [
        {"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}, {"id": "code", "name": "Code"},
    ]})
}

fn select(id: &str, category: &str, current: &str, values: &[&str]) -> Value {
    let options: Vec<Value> = values.iter().map(|value| json!({"value": value, "name": value})).collect();
    json!({
        "id": id, "name": id, "category": category, "type": "select", "currentValue": current, "options": options,
    })
}

fn options(model: &str, tools: bool) -> Value {
    json!([
        select("model", "model", model, &["small", "large"]),
        {"id": "tools", "name": "Tools", "type": "boolean", "currentValue": tools},
    ])
}

/// A session whose agent is in the mode `ask` with a small model. Its process has ended.
fn begun(options: &Value) -> Fixture {
    opened(&json!({"sessionId": "s", "modes": modes("ask"), "configOptions": options}))
}

/// A session that began with this response. Its process has ended.
fn opened(result: &Value) -> Fixture {
    let frame = json!({"jsonrpc": "2.0", "id": "hub:session/new", "result": result});
    let record = json!({"at": 0, "from": "agent", "frame": frame}).to_string().into_bytes();
    let owner = SessionOwner::restore("s".into(), OwnerSettings::default(), [&*record]).unwrap();
    Fixture::of(owner, vec![record])
}

/// The same with a process that has restored it.
fn running(options: &Value) -> Fixture {
    let mut it = begun(options);
    it.attach("a", able());
    it.prompt("a", 1);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": options}}));
    it.ends_turn();
    it.agent.clear();
    it
}

fn request(id: u64, method: &str, mut params: Value) -> Value {
    params["sessionId"] = json!("s");
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn cancel() -> Value {
    json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}})
}

fn update(update: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

impl Fixture {
    /// A client chooses, and the agent answers.
    fn chooses(&mut self, client: &str, id: u64, method: &str, params: Value, result: &Value) {
        self.client(client, &request(id, method, params));
        let call = self.agent.last().unwrap()["id"].clone();
        self.agent(&json!({"jsonrpc": "2.0", "id": call, "result": result}));
    }

    /// Returns the method of the last message to the agent.
    fn last_request(&self) -> String {
        self.agent.last().and_then(|line| line["method"].as_str()).unwrap_or_default().to_owned()
    }

    /// Returns the method and the value of the last request that restores the session.
    fn set(&self) -> (String, Value) {
        let request = self.restoring.last().unwrap();
        let params = &request["params"];
        let value = if params["modeId"].is_null() {
            json!({params["configId"].as_str().unwrap_or("?"): params["value"]})
        } else {
            params["modeId"].clone()
        };
        (request["method"].as_str().unwrap().to_owned(), value)
    }

    fn answer_to(&self, client: &str, id: u64) -> Value {
        let frames = self.frames(client, able());
        let in_log = frames.into_iter().find(|frame| frame["id"] == id && frame["method"].is_null());
        let reply = self.replies.iter().find(|(to, reply)| to == client && reply["id"] == id);
        in_log.or_else(|| reply.map(|(_, reply)| reply.clone())).unwrap_or_default()
    }

    /// The updates that a client has received, by their kinds.
    fn updates(&self, client: &str, kind: &str) -> Vec<Value> {
        let updates = self.frames(client, able()).into_iter().map(|frame| frame["params"]["update"].clone());
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }
}

#[test]
fn a_cancellation_without_a_turn_does_not_reach_the_agent() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.attach("b", able());
    it.client("a", &cancel());
    it.prompt("a", 1);
    it.ends_turn();
    it.client("a", &cancel());
    it.client("b", &cancel());
    assert!(it.agent.iter().all(|line| line["method"] == "session/prompt"), "{:?}", it.agent);
    assert_eq!(it.acknowledged, [1, 2, 3, 4]);
    it.prompt("a", 2);
    it.client("b", &cancel());
    assert_eq!(it.last_to_agent()["method"], "session/cancel", "any client ends the turn");
}

/// The agent answers a cancelled prompt again, and sends text behind the answer.
#[test]
fn what_a_cancelled_turn_leaves_ends_no_other_turn() {
    let mut it = Fixture::new();
    it.attach("a", able());
    let chunk = |text: &str| {
        update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
    };
    let ends = |it: &mut Fixture, call: &Value, reason: &str| {
        it.agent(&json!({"jsonrpc": "2.0", "id": call, "result": {"stopReason": reason}}));
    };
    it.prompt("a", 30);
    let first = it.last_to_agent()["id"].clone();
    it.client("a", &cancel());
    ends(&mut it, &first, "cancelled");
    it.agent(&chunk("late"));
    ends(&mut it, &first, "end_turn");
    it.prompt("a", 31);
    ends(&mut it, &first, "end_turn");
    it.agent(&chunk("next"));
    assert_eq!(it.answer_to("a", 31), Value::Null);
    it.ends_turn();
    let frames = it.frames("a", able());
    let answers = frames.iter().filter(|frame| frame["method"].is_null());
    let answers: Vec<_> = answers.map(|frame| (&frame["id"], &frame["result"]["stopReason"])).collect();
    assert_eq!(answers, [(&json!(30), &json!("cancelled")), (&json!(31), &json!("end_turn"))]);
    let texts: Vec<Value> = it.updates("a", "agent_message_chunk");
    let texts: Vec<_> = texts.iter().map(|update| &update["content"]["text"]).collect();
    assert_eq!(texts, ["late", "next"]);
}

#[test]
fn a_prompt_that_waits_for_the_process_is_cancelled_at_once() {
    for is_ready in [false, true] {
        let mut it = Fixture::new().restarted();
        it.attach("a", able());
        it.prompt("a", 1);
        if is_ready {
            it.ready(&json!({"loadSession": true}));
        }
        it.client("a", &cancel());
        assert_eq!(it.answer_to("a", 1)["result"]["stopReason"], "cancelled");
        assert!(!it.owner.has_turn());
        if !is_ready {
            it.ready(&json!({"loadSession": true}));
        }
        it.answers_owner(&json!({"result": {}}));
        assert!(it.agent.is_empty(), "{:?}", it.agent);
        it.prompt("a", 2);
        assert_eq!((it.starts.len(), it.agent.len()), (1, 1), "the process runs");
    }
}

#[test]
fn an_agent_that_ignores_a_cancellation_is_ended() {
    let settings = OwnerSettings::default();
    for is_repeated in [false, true] {
        let mut it = Fixture::new();
        it.attach("a", able());
        it.prompt("a", 1);
        it.client("a", &cancel());
        assert_eq!(it.owner.deadline(), Some(it.now + settings.cancel_grace));
        it.now += settings.second_cancel - Duration::from_millis(1);
        it.client("a", &cancel());
        assert_eq!((it.ends, it.owner.has_turn()), (0, true));
        if is_repeated {
            it.now += Duration::from_millis(1);
            it.client("a", &cancel());
        } else {
            it.now += settings.cancel_grace;
            it.input(OwnerInput::Time);
        }
        assert_eq!((it.ends, it.owner.has_turn()), (1, false));
        assert_eq!(it.answer_to("a", 1)["result"]["stopReason"], "cancelled");
        it.prompt("a", 2);
        it.restores();
        assert_eq!((it.starts.len(), &it.last_to_agent()["method"]), (1, &json!("session/prompt")));
        assert_eq!(it.owner.deadline(), None);
    }
}

/// Chosen by a client with and without an answer that says so, and reported by the agent.
#[test]
fn modes_and_options_are_set_again() {
    for restarts_hub in [false, true] {
        let mut it = running(&options("small", true));
        it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
        let large = json!({"configOptions": options("large", true)});
        it.chooses(
            "a",
            11,
            "session/set_config_option",
            json!({"configId": "model", "value": "large"}),
            &large,
        );
        // An agent that names no options.
        let off = json!({"configId": "tools", "type": "boolean", "value": false});
        it.chooses("a", 12, "session/set_config_option", off, &Value::Null);
        if restarts_hub {
            it = it.restarted();
            it.attach("a", able());
        } else {
            it.input(OwnerInput::AgentEnded("killed"));
        }
        it.prompt("a", 2);
        it.ready(&json!({"sessionCapabilities": {"resume": {}}, "loadSession": true}));
        assert_eq!(it.set().0, "session/resume");
        // Reports while it restores are compared.
        it.agent(&update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"})));
        it.answers_owner(
            &json!({"result": {"modes": modes("code"), "configOptions": options("small", true)}}),
        );
        assert_eq!(it.set(), ("session/set_mode".into(), json!("plan")));
        it.answers_owner(&json!({"result": {}}));
        assert_eq!(it.set(), ("session/set_config_option".into(), json!({"model": "large"})));
        it.answers_owner(&json!({"result": large}));
        assert_eq!(it.set(), ("session/set_config_option".into(), json!({"tools": false})));
        assert!(it.agent.iter().all(|line| line["method"] != "session/prompt"), "the prompt waits");
        let before = it.owner.end();
        it.answers_owner(&json!({"result": {"configOptions": options("large", false)}}));
        assert_eq!(it.last_to_agent()["method"], "session/prompt");
        assert_eq!(it.owner.end(), before, "nothing is different for the clients");
    }
}

#[test]
fn an_agent_that_answers_with_null_has_restored_the_session() {
    for capabilities in [json!({"sessionCapabilities": {"resume": {}}}), json!({"loadSession": true})] {
        let mut it = running(&options("small", true));
        it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
        it.input(OwnerInput::AgentEnded("killed"));
        it.prompt("a", 2);
        it.ready(&capabilities);
        it.answers_owner(&json!({"result": null}));
        // It has named no value, so each is set.
        while it.owner.deadline().is_some() {
            it.answers_owner(&json!({"result": null}));
        }
        assert!(it.restoring.iter().any(|set| set["params"]["modeId"] == "plan"), "{:?}", it.restoring);
        it.ends_turn();
        assert_eq!(it.answer_to("a", 2)["result"]["stopReason"], "end_turn", "{capabilities}");
        assert_eq!(it.ends, 0, "{capabilities}");
    }
}

#[test]
fn what_the_agent_reported_last_is_set_again() {
    let mut it = running(&options("small", true));
    it.chooses("a", 10, "session/set_mode", json!({"modeId": "code"}), &json!({}));
    it.agent(&update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})));
    it.agent(&update(
        &json!({"sessionUpdate": "config_option_update", "configOptions": options("large", true)}),
    ));
    // A choice that the agent refused changes nothing.
    it.client("a", &request(11, "session/set_mode", json!({"modeId": "code"})));
    let call = it.last_to_agent()["id"].clone();
    it.agent(&json!({"jsonrpc": "2.0", "id": call, "error": {"code": -32602, "message": "no"}}));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    // An answer that names nothing counts as different.
    it.answers_owner(&json!({"result": {}}));
    assert_eq!(it.set(), ("session/set_mode".into(), json!("plan")));
    it.answers_owner(&json!({"result": {}}));
    assert_eq!(it.set().1, json!({"model": "large"}));
}

/// The mode and the option that stands for it are one value.
#[test]
fn an_option_of_the_mode_is_not_set_back() {
    let both = |mode: &str| json!([select("mode", "mode", mode, &["ask", "plan", "code"])]);
    let mut it = running(&both("ask"));
    it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": both("ask")}}));
    assert_eq!(it.set(), ("session/set_mode".into(), json!("plan")));
    it.answers_owner(&json!({"result": {}}));
    assert_eq!((it.restoring.len(), &it.last_to_agent()["method"]), (3, &json!("session/prompt")));
    // And the other way.
    it.ends_turn();
    let chosen = json!({"configId": "mode", "value": "code"});
    it.chooses("a", 11, "session/set_config_option", chosen, &json!({"configOptions": both("code")}));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 3);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": both("ask")}}));
    assert_eq!(it.set(), ("session/set_mode".into(), json!("code")));
}

#[test]
fn a_mode_that_is_refused_blocks_prompts_until_a_client_chooses() {
    let refusal = json!({"error": {"code": -32602, "message": "no such mode"}});
    let guard = json!([select("approval", "_permission", "ask", &["ask", "never"])]);
    let no_guard = json!([select("approval", "_permission", "never", &["ask", "never"])]);
    for is_mode in [true, false] {
        let mut it = running(&guard);
        if is_mode {
            it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
        }
        for id in [2, 3] {
            it.input(OwnerInput::AgentEnded("killed"));
            it.prompt("a", id);
            it.ready(&json!({"loadSession": true}));
            let options = if is_mode { &guard } else { &no_guard };
            it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": options}}));
            it.answers_owner(&refusal);
            let error = &it.answer_to("a", id)["error"];
            let (name, wanted, actual) =
                if is_mode { ("mode", "plan", "ask") } else { ("approval", "ask", "never") };
            let available = if is_mode { json!(["ask", "plan", "code"]) } else { json!(["ask", "never"]) };
            let data = json!({
                "code": "state_lost", "retryable": false, "name": name, "wanted": wanted, "actual": actual,
                "available": available,
            });
            assert_eq!(error["data"], data, "{error}");
            assert!(it.agent.iter().all(|line| line["method"] != "session/prompt"));
            it.agent.clear();
        }
        it.prompt("a", 4);
        assert_eq!(it.answer_to("a", 4)["error"]["data"]["code"], "state_lost");
        if is_mode {
            it.chooses("a", 11, "session/set_mode", json!({"modeId": "code"}), &json!({}));
        } else {
            let chosen = json!({"configId": "approval", "value": "never"});
            it.chooses("a", 11, "session/set_config_option", chosen, &json!({"configOptions": no_guard}));
        }
        it.prompt("a", 5);
        assert_eq!(it.last_to_agent()["method"], "session/prompt");
    }
}

/// An agent may accept a value and have another one, and one value can change another.
#[test]
fn a_guard_that_is_not_confirmed_is_lost() {
    let guarded = |approval: &str, model: &str| {
        json!([
            select("model", "model", model, &["small", "large"]),
            select("approval", "permission", approval, &["ask", "never"]),
        ])
    };
    // The agent accepts the guard, and lists it in another value.
    let mut it = running(&guarded("ask", "large"));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": guarded("never", "small")}}));
    assert_eq!(it.set().1, json!({"approval": "ask"}), "guards come before other options");
    it.answers_owner(&json!({"result": {"configOptions": guarded("never", "small")}}));
    it.answers_owner(&json!({"result": {"configOptions": guarded("never", "large")}}));
    assert_eq!(it.answer_to("a", 2)["error"]["data"]["name"], "approval");
    // Another choice lists the guard. No client has chosen it, so the next process is compared with `ask`.
    let chosen = json!({"configId": "model", "value": "small"});
    it.chooses(
        "a",
        3,
        "session/set_config_option",
        chosen,
        &json!({"configOptions": guarded("never", "small")}),
    );
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 4);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": guarded("never", "small")}}));
    assert_eq!(it.set().1, json!({"approval": "ask"}));

    // The mode that an option has changed is set a second time, and then it is lost.
    let mut it = running(&options("large", true));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("code"), "configOptions": options("small", true)}}));
    it.answers_owner(&json!({"result": {}}));
    it.agent(&update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"})));
    it.answers_owner(&json!({"result": {"configOptions": options("large", true)}}));
    assert_eq!(it.set(), ("session/set_mode".into(), json!("ask")));
    it.agent(&update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"})));
    it.answers_owner(&json!({"error": {"code": -32602, "message": "no"}}));
    assert_eq!(it.answer_to("a", 2)["error"]["data"]["actual"], "code");

    // More options than are set again.
    let many = |value: &str| -> Value {
        let plain = (0..40).map(|it| select(&format!("o{it}"), "model", value, &["small", "large"]));
        let guard = select(
            "approval",
            "permission",
            if value == "large" { "ask" } else { "never" },
            &["ask", "never"],
        );
        plain.chain([guard]).collect()
    };
    let mut it = running(&many("large"));
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {"modes": modes("ask")}}));
    assert_eq!(it.set().1, json!({"approval": "ask"}));
    let mut sets = 1;
    while it.last_request() != "session/prompt" {
        it.answers_owner(&json!({"result": {}}));
        sets += 1;
    }
    assert_eq!(sets, 33);
}

#[test]
fn a_viewer_decides_no_folders_and_consent_joins_a_start() {
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.client("a", &request(1, "session/set_mode", json!({"modeId": "plan"})));
    it.prompt_with("a", 2, &json!({"fresh": true}));
    it.loses();
    assert_eq!(it.set().0, "session/new", "the prompt gives the conversation up");
    assert_eq!((it.starters.as_slice(), it.starts.as_slice()), (&[None][..], &[false][..]));
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt("a", 1);
    assert_eq!(it.starters, [Some("a".to_owned())]);
}

#[test]
fn clients_learn_what_the_agent_did_not_take_back() {
    let mut it = running(&options("large", true));
    it.attach("b", able());
    it.input(OwnerInput::AgentEnded("killed"));
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    let commands = json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "n", "description": "d"}]});
    it.agent(&update(&commands));
    it.answers_owner(&json!({"result": {"modes": modes("ask"), "configOptions": options("small", true)}}));
    it.answers_owner(&json!({"error": {"code": -32602, "message": "the model is gone"}}));
    assert_eq!(it.last_to_agent()["method"], "session/prompt");
    for client in ["a", "b"] {
        let told = it.updates(client, "config_option_update");
        assert_eq!(told.last().unwrap()["configOptions"][0]["currentValue"], "small");
        assert_eq!(it.updates(client, "available_commands_update"), std::slice::from_ref(&commands));
    }
}

#[test]
fn other_clients_learn_what_one_of_them_chose() {
    let mut it = running(&options("small", true));
    it.attach("b", able());
    it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
    let chosen = json!({"configId": "model", "value": "large"});
    it.chooses(
        "a",
        11,
        "session/set_config_option",
        chosen,
        &json!({"configOptions": options("large", true)}),
    );
    assert_eq!(it.updates("b", "current_mode_update")[0]["currentModeId"], "plan");
    assert_eq!(it.updates("b", "config_option_update")[0]["configOptions"], options("large", true));
    assert!(it.updates("a", "current_mode_update").is_empty());
}

#[test]
fn a_question_of_an_agent_that_restores_the_session_is_answered() {
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt("a", 1);
    it.ready(&json!({"loadSession": true}));
    let schema = json!({"type": "object", "properties": {}});
    let form = json!({"mode": "form", "message": "Trust this folder?", "requestedSchema": schema});
    it.agent(&request(50, "elicitation/create", form));
    it.now += OwnerSettings::default().restore;
    it.input(OwnerInput::Time);
    assert_eq!(it.ends, 0, "a user may take any time");
    let asked = it.frames("a", able()).pop().unwrap();
    it.client(
        "a",
        &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}}),
    );
    assert_eq!((it.agent.len(), &it.last_to_agent()["id"]), (1, &json!(50)));
    // A request that nobody can answer has an error, also while the session is restored.
    it.agent(&request(51, "x/unknown", json!({})));
    assert_eq!(it.last_to_agent()["error"]["code"], -32601);
    it.answers_owner(&json!({"result": {}}));
    assert_eq!(it.last_to_agent()["method"], "session/prompt");
}

#[test]
fn an_agent_that_does_not_restore_the_session_is_ended() {
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt("a", 1);
    it.ready(&json!({"loadSession": true}));
    it.now += OwnerSettings::default().restore;
    it.input(OwnerInput::Time);
    assert_eq!(it.ends, 1);
    let error = &it.answer_to("a", 1)["error"];
    assert!(error["message"].as_str().unwrap().contains("`OwnerSettings::restore`"), "{error}");
}

#[test]
fn the_late_replay_of_an_agent_is_dropped() {
    let text = |kind: &str, text: &str| {
        update(&json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}))
    };
    let of = |value: Value| -> SessionUpdate { serde_json::from_value(value).unwrap() };
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    let conversation = vec![
        of(json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "say one"}})),
        of(
            json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": "one two"}}),
        ),
        of(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "completed"})),
        of(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "three"}})),
    ];
    it.conversation.clone_from(&conversation);
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    // A part of it comes before the answer, as it should.
    it.agent(&text("user_message_chunk", "say"));
    it.answers_owner(&json!({"result": {}}));
    let before = it.owner.end();
    it.agent(&text("user_message_chunk", " one"));
    it.agent(&text("agent_message_chunk", "one"));
    it.agent(&update(&json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": " two"}})));
    it.agent(&update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"})));
    it.agent(&update(
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}),
    ));
    it.agent(&text("agent_message_chunk", "thr"));
    assert_eq!(it.owner.end(), before, "clients have all of it");
    it.agent(&text("agent_message_chunk", "new"));
    it.agent(&text("agent_message_chunk", "ee"));
    // It equals a message that is no longer the next one.
    it.agent(&text("agent_message_chunk", "one two"));
    let texts = it.updates("a", "agent_message_chunk");
    let texts: Vec<_> = texts.iter().map(|update| update["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["new", "ee", "one two"]);
    // The text of a new turn that equals an old one is kept.
    it.ends_turn();
    it.prompt("a", 3);
    it.agent(&text("agent_message_chunk", "three"));
    assert_eq!(it.updates("a", "agent_message_chunk").len(), 4);

    // An agent that replays nothing: no text of the turn is dropped, whatever it equals.
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.conversation.clone_from(&conversation);
    it.prompt("a", 2);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": {}}));
    it.agent(&text("agent_message_chunk", "three"));
    assert_eq!(it.updates("a", "agent_message_chunk").len(), 1);

    // A process that counts from one again. Its turn has the ids of the turn before the crash.
    let chunk = |id: &str, text: &str| {
        update(
            &json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": {"type": "text", "text": text}}),
        )
    };
    let call =
        |title: &str| update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": title}));
    for (number, lines) in
        [vec![chunk("m", "one"), chunk("m", " is done")], vec![call("t"), call("u")]].iter().enumerate()
    {
        let mut it = Fixture::new().restarted();
        it.attach("a", able());
        it.conversation = vec![conversation[0].clone(), conversation[number + 1].clone()];
        it.prompt("a", 2);
        it.ready(&json!({"loadSession": true}));
        it.agent(&text("user_message_chunk", "say one"));
        it.answers_owner(&json!({"result": {}}));
        let before = it.frames("a", able()).len();
        lines.iter().for_each(|line| it.agent(line));
        it.ends_turn();
        assert_eq!(it.frames("a", able())[before..before + lines.len()], lines[..]);
    }

    // The text of the turn begins like the message that was not finished before.
    for pieces in [&["on", "ce"][..], &["one", " two"], &["one", " two", "!"], &["one"]] {
        let mut it = Fixture::new().restarted();
        it.attach("a", able());
        it.conversation = conversation[..2].to_vec();
        it.prompt("a", 2);
        it.ready(&json!({"loadSession": true}));
        it.agent(&text("user_message_chunk", "say one"));
        it.answers_owner(&json!({"result": {}}));
        for piece in pieces {
            it.agent(&text("agent_message_chunk", piece));
        }
        it.ends_turn();
        let texts = it.updates("a", "agent_message_chunk");
        let texts: Vec<_> = texts.iter().map(|update| update["content"]["text"].as_str().unwrap()).collect();
        assert_eq!(texts, pieces);
    }
}

/// The requests of the agent go to the client whose prompt runs, else to the creator, else to any that can do it.
#[test]
fn files_are_those_of_a_client_that_can() {
    let read = |id: u64| request(id, "fs/read_text_file", json!({"path": "/f"}));
    let asked = |it: &Fixture, client: &str| {
        let frames = it.frames(client, able());
        frames.iter().filter(|frame| frame["method"] == "fs/read_text_file").count()
    };
    let mut it = Fixture::new();
    it.attach("a", able());
    it.attach("b", able());
    it.agent(&read(50));
    assert_eq!((asked(&it, "a"), asked(&it, "b")), (1, 0), "the creator");
    it.prompt("b", 1);
    it.agent(&read(51));
    assert_eq!((asked(&it, "a"), asked(&it, "b")), (1, 1), "the client that prompts");
    it.attach("c", able().without_files());
    it.ends_turn();
    it.prompt("c", 2);
    it.agent(&read(52));
    assert_eq!((asked(&it, "a"), asked(&it, "b")), (2, 1), "the one that prompts has no files");
    it.input(OwnerInput::Left(&key("c")));
    it.input(OwnerInput::Left(&key("a")));
    it.agent(&read(53));
    assert_eq!(asked(&it, "b"), 2, "any that is left");
}

#[test]
fn a_terminal_is_on_the_client_that_created_it() {
    let mut it = Fixture::new();
    it.attach("a", able());
    it.attach("b", able());
    it.prompt("b", 1);
    it.agent(&request(50, "terminal/create", json!({"command": "make"})));
    let id = it.frames("b", able()).pop().unwrap()["id"].clone();
    it.client("b", &json!({"jsonrpc": "2.0", "id": id, "result": {"terminalId": "t"}}));
    it.ends_turn();
    it.prompt("a", 2);
    it.agent(&request(51, "terminal/output", json!({"terminalId": "t"})));
    assert_eq!(it.frames("b", able()).pop().unwrap()["method"], "terminal/output");
    it.input(OwnerInput::Left(&key("b")));
    it.agent(&request(52, "terminal/output", json!({"terminalId": "t"})));
    assert_eq!(it.last_to_agent()["error"]["data"]["code"], "client_lost");
}
