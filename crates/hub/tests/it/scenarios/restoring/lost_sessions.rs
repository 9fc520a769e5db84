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

#[test]
fn only_an_unknown_session_is_a_lost_conversation() {
    for capabilities in [json!({"sessionCapabilities": {"resume": {}}}), json!({"loadSession": true})] {
        for error in [
            json!({"code": -32000, "message": "login required", "data": {"authMethods": []}}),
            json!({"code": -32603, "message": "backend unreachable", "data": {"details": "No previous sessions"}}),
            json!({"code": -32603, "message": "backend unreachable", "data": "No previous sessions"}),
            json!({"code": -32601, "message": "unknown method"}),
        ] {
            let mut it = Fixture::new().restarted();
            it.attach("a", able());
            it.prompt("a", 1);
            it.ready(&capabilities);
            it.answers_owner(&json!({"error": error}));
            let answer = it.answer_to("a", 1)["error"].clone();
            assert_eq!(answer["code"], error["code"]);
            let text = answer["message"].as_str().unwrap();
            assert!(text.contains(error["message"].as_str().unwrap()), "{text}");
            assert!(text.contains("send the prompt again"), "{text}");
            // A login helps, and everything else may be a conversation that is lost.
            assert_eq!(text.contains("No previous sessions"), error["code"] == -32603, "{text}");
            let is_login = error["code"] == -32000;
            assert_eq!(text.contains("`_meta.duologue.fresh`"), !is_login, "{text}");
            let data = json!({"code": "restore_failed", "retryable": true, "agent": error["data"]});
            assert_eq!(answer["data"], if is_login { error["data"].clone() } else { data });
            assert_eq!(it.ends, 1, "the next prompt tries it again");
            it.prompt("a", 2);
            it.restores();
            assert_eq!(it.agent.len(), 1);
        }
    }
    let mut it = Fixture::new().restarted();
    it.attach("a", able());
    it.prompt("a", 1);
    it.ready(&json!({"sessionCapabilities": {"resume": {}}, "loadSession": true}));
    it.answers_owner(&json!({"error": {"code": -32601, "message": "unknown method"}}));
    assert_eq!(it.set().0, "session/load", "an agent that announces what it does not do");
}

#[test]
fn the_error_of_a_lost_conversation_names_the_way_out() {
    // The message of the agent has a limit, and the way out stands behind it.
    for (message, shown) in [
        (None, "cannot load or resume".to_owned()),
        (Some("unknown session".to_owned()), "unknown session".to_owned()),
        (Some("x".repeat(5000)), "x".repeat(300)),
    ] {
        let mut it = Fixture::new().restarted();
        it.attach("a", able());
        it.prompt("a", 1);
        it.ready(&json!({"loadSession": message.is_some()}));
        if let Some(message) = message {
            it.answers_owner(&json!({"error": {"code": -32002, "message": message}}));
        }
        let error = &it.answer_to("a", 1)["error"];
        assert_eq!(error["data"], json!({"code": "context_lost", "retryable": false}));
        let text = error["message"].as_str().unwrap();
        assert!(text.contains(&shown), "{text}");
        assert!(text.contains("`_meta.duologue.fresh`") && text.contains("`duologue run --fresh`"), "{text}");
    }
}
