//! An agent that has lost a session.

use duologue_hub::{OwnerInput, OwnerSettings};
use serde_json::{Value, json};

use super::super::{Fixture, able};
use super::{modes, options, running};

/// A prompt runs, and the agent answers it with an error of this code and data.
fn refuses(it: &mut Fixture, id: u64, code: i64, data: &Value) {
    it.prompt("a", id);
    let call = it.last_to_agent()["id"].clone();
    let error = json!({"code": code, "message": "not found", "data": data});
    it.agent(&json!({"jsonrpc": "2.0", "id": call, "error": error}));
}

#[test]
fn a_session_that_a_running_agent_has_lost_is_restored() {
    for data in [Value::Null, json!({"sessionId": "s"})] {
        let mut it = running(&options("small", true));
        it.chooses("a", 10, "session/set_mode", json!({"modeId": "plan"}), &json!({}));
        refuses(&mut it, 2, -32002, &data);
        assert_eq!((it.ends, it.owner.has_turn()), (1, false));
        let error = &it.answer_to("a", 2)["error"];
        assert_eq!(error["data"], json!({"code": "interrupted", "retryable": true}), "{error}");
        assert!(error["message"].as_str().unwrap().contains("send the prompt again"), "{error}");
        // The next prompt restores the session, with its mode.
        it.prompt("a", 3);
        it.ready(&json!({"loadSession": true}));
        let result = json!({"modes": modes("ask"), "configOptions": options("small", true)});
        it.answers_owner(&json!({"result": result}));
        assert_eq!(it.set(), ("session/set_mode".into(), json!("plan")));
        it.answers_owner(&json!({"result": {}}));
        it.ends_turn();
        assert_eq!(it.answer_to("a", 3)["result"]["stopReason"], "end_turn");
        assert_eq!((it.ends, it.starts.len()), (1, 2));
    }
}

#[test]
fn an_agent_that_has_lost_a_restored_session_answers_for_itself() {
    let mut it = running(&options("small", true));
    for id in [2, 4] {
        refuses(&mut it, id, -32002, &Value::Null);
        it.prompt("a", id + 1);
        it.ready(&json!({"loadSession": true}));
        it.answers_owner(
            &json!({"result": {"modes": modes("ask"), "configOptions": options("small", true)}}),
        );
        let call = it.last_to_agent()["id"].clone();
        let error = json!({"code": -32002, "message": "lost"});
        it.agent(&json!({"jsonrpc": "2.0", "id": call, "error": error}));
        assert_eq!(it.answer_to("a", id + 1)["error"], error);
    }
    assert_eq!((it.ends, it.starts.len()), (2, 3), "one restart for each answer");
}

#[test]
fn only_a_lost_session_that_can_be_restored_ends_the_process() {
    let cannot_load = || {
        let mut it = running(&options("small", true));
        it.input(OwnerInput::AgentEnded("killed"));
        it.prompt_with("a", 20, &json!({"fresh": true}));
        it.ready(&json!({}));
        let options = options("small", true);
        it.answers_owner(
            &json!({"result": {"sessionId": "n", "modes": modes("ask"), "configOptions": options}}),
        );
        it.ends_turn();
        it
    };
    let is_shared = || {
        let mut settings = OwnerSettings::default();
        settings.is_process_shared = true;
        let mut it = Fixture::new();
        it.owner = duologue_hub::SessionOwner::restore("s".into(), settings, []).unwrap();
        it.attach("a", able());
        it.prompt("a", 20);
        it.restores();
        it.ends_turn();
        it
    };
    let lost = json!({"sessionId": "s"});
    for (name, mut it, code, data) in [
        ("an agent that cannot load", cannot_load(), -32002, lost.clone()),
        ("a process of several sessions", is_shared(), -32002, lost.clone()),
        ("another session", running(&options("small", true)), -32002, json!({"sessionId": "t"})),
        ("a file", running(&options("small", true)), -32002, json!({"uri": "file:///f"})),
        ("another error", running(&options("small", true)), -32603, lost),
    ] {
        refuses(&mut it, 30, code, &data);
        let answer = it.answer_to("a", 30);
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(code), &data), "{name}");
        assert_eq!(it.ends, 0, "{name}");
    }
}
