//! Plans with ids, for clients that show them and for others.

use duologue_hub::Abilities;
use serde_json::{Value, json};

use super::{Fixture, able};

/// A client that shows plans by their ids.
fn with_plans() -> Abilities {
    let mut abilities = able();
    abilities.plans = true;
    abilities
}

fn update(update: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

#[test]
fn a_client_without_ids_of_plans_gets_the_last_list_of_steps() {
    let step = json!({"content": "Test", "priority": "high", "status": "pending"});
    let updates = [
        json!({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "a", "entries": [step]}}),
        json!({"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "b", "content": "# B"}}),
        json!({"sessionUpdate": "plan_removed", "planId": "a"}),
        json!({"sessionUpdate": "plan", "entries": []}),
    ];
    let mut it = Fixture::new();
    it.attach("a", able());
    it.prompt("a", 1);
    for each in &updates {
        it.agent(&update(each));
    }
    let seen = |abilities| -> Vec<Value> {
        let frames = it.frames("a", abilities).into_iter();
        let updates = frames.map(|frame| frame["params"]["update"].clone());
        updates
            .filter(|update| update["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("plan")))
            .collect()
    };
    assert_eq!(seen(with_plans()), updates);
    let empty = json!({"sessionUpdate": "plan", "entries": []});
    assert_eq!(seen(able()), [json!({"sessionUpdate": "plan", "entries": [step]}), empty.clone(), empty]);
}
