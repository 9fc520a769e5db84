//! The model of a session, for agents of earlier drafts of the protocol.

use duologue_hub::OwnerInput;
use serde_json::{Value, json};

use super::super::{Fixture, able};
use super::{opened, select};

fn models(current: &str) -> Value {
    json!({"currentModelId": current, "availableModels": [
        {"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"},
    ]})
}

fn option(current: &str) -> Value {
    json!([select("engine", "model", current, &["small", "large"])])
}

/// A session whose agent has a small model, and perhaps an option that stands for it.
fn running(has_option: bool) -> Fixture {
    let mut result = json!({"sessionId": "s", "models": models("small")});
    if has_option {
        result["configOptions"] = option("small");
    }
    let mut it = opened(&result);
    it.attach("a", able());
    it.prompt("a", 1);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": result}));
    it.ends_turn();
    it
}

fn chooses_model(it: &mut Fixture, id: u64, model: &str) {
    it.chooses("a", id, "session/set_model", json!({"modelId": model}), &json!({}));
}

/// A prompt needs a new process, which answers the load.
fn loads(it: &mut Fixture, id: u64, result: &Value) {
    it.prompt("a", id);
    it.ready(&json!({"loadSession": true}));
    it.answers_owner(&json!({"result": result}));
}

/// Returns the method and the params of the last request that restores the session.
fn set(it: &Fixture) -> (&str, Value) {
    let request = it.restoring.last().unwrap();
    (request["method"].as_str().unwrap(), request["params"].clone())
}

#[test]
fn a_model_is_set_again() {
    let wanted = ("session/set_model", json!({"sessionId": "s", "modelId": "large"}));
    for restarts_hub in [false, true] {
        // An agent that names its models again, and one that does not.
        for result in [json!({"models": models("small")}), json!({})] {
            let mut it = running(false);
            chooses_model(&mut it, 10, "large");
            if restarts_hub {
                it = it.restarted();
                it.attach("a", able());
            } else {
                it.input(OwnerInput::AgentEnded("killed"));
            }
            loads(&mut it, 2, &result);
            assert_eq!(set(&it), wanted);
            it.answers_owner(&json!({"result": {}}));
            assert_eq!(it.last_request(), "session/prompt");
        }
    }
    // The agent has it already.
    let mut it = running(false);
    it.input(OwnerInput::AgentEnded("killed"));
    loads(&mut it, 2, &json!({"models": models("small")}));
    assert_eq!(it.last_request(), "session/prompt");
}

#[test]
fn a_model_that_is_refused_blocks_prompts_until_a_client_chooses() {
    let mut it = running(false);
    chooses_model(&mut it, 10, "large");
    it.input(OwnerInput::AgentEnded("killed"));
    loads(&mut it, 2, &json!({"models": models("small")}));
    it.answers_owner(&json!({"error": {"code": -32602, "message": "the model is gone"}}));
    let data = json!({
        "code": "state_lost", "retryable": false, "name": "model", "wanted": "large", "actual": "small",
        "available": ["small", "large"],
    });
    assert_eq!(it.answer_to("a", 2)["error"]["data"], data);
    it.prompt("a", 3);
    assert_eq!(it.answer_to("a", 3)["error"]["data"], data);
    chooses_model(&mut it, 11, "small");
    it.prompt("a", 4);
    assert_eq!(it.last_request(), "session/prompt");
    // An agent without the method that names no model has one alone.
    it.ends_turn();
    it.input(OwnerInput::AgentEnded("killed"));
    loads(&mut it, 5, &json!({}));
    it.answers_owner(&json!({"error": {"code": -32601, "message": "unknown method"}}));
    assert_eq!(it.last_request(), "session/prompt");
}

#[test]
fn a_model_and_the_option_that_stands_for_it_are_one_value() {
    let mut it = running(true);
    it.attach("b", able());
    chooses_model(&mut it, 10, "large");
    assert_eq!(it.updates("b", "config_option_update")[0]["configOptions"], option("large"));
    it.input(OwnerInput::AgentEnded("killed"));
    let result = json!({"models": models("small"), "configOptions": option("small")});
    loads(&mut it, 2, &result);
    assert_eq!(set(&it).0, "session/set_model");
    it.answers_owner(&json!({"result": {}}));
    assert_eq!(it.last_request(), "session/prompt", "the option is not set back");
    // Set as an option, by an agent that does not know the method.
    it.ends_turn();
    it.input(OwnerInput::AgentEnded("killed"));
    loads(&mut it, 3, &result);
    it.answers_owner(&json!({"error": {"code": -32601, "message": "unknown method"}}));
    assert_eq!(it.set(), ("session/set_config_option".into(), json!({"engine": "large"})));
    it.answers_owner(&json!({"result": {"configOptions": option("large")}}));
    assert_eq!(it.last_request(), "session/prompt");
    // Neither of them.
    it.ends_turn();
    it.input(OwnerInput::AgentEnded("killed"));
    loads(&mut it, 4, &result);
    let refusal = json!({"error": {"code": -32602, "message": "the model is gone"}});
    it.answers_owner(&refusal);
    it.answers_owner(&refusal);
    assert_eq!(it.answer_to("a", 4)["error"]["data"]["wanted"], "large");
    assert_eq!(it.updates("b", "config_option_update").len(), 1, "clients see the model that they wanted");
    let chosen = json!({"configId": "engine", "value": "small"});
    it.chooses("a", 12, "session/set_config_option", chosen, &json!({"configOptions": option("small")}));
    it.prompt("a", 5);
    assert_eq!(it.last_request(), "session/prompt");
}
