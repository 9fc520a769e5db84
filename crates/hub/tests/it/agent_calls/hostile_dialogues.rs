//! An agent that lies in the messages of dialogues, or opens too many.

use serde_json::json;

use super::routed_dialogues::{agents, begin, dialogue_task, rule, until_open};
use super::run;
use crate::rest::world::{ADMIN, ALICE, RestWorld};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_lies_disturbs_no_dialogue_of_others() {
    let ids = ["buyer", "seller", "details"];
    let agents = agents(&ids, "").replace("id = \"details\"", "id = \"details\"\nmax_tasks = 9");
    let world = RestWorld::start(&format!("limits.open_calls = 3\n{agents}{}", rule(&ids))).await;
    let task = begin(&world, "buyer", "hold agent://details d1").await;
    until_open(&world, "details", "d1").await;

    let message = |from: &str, to: &str| {
        let message = json!({
            "message_id": "m9", "session_id": "d1", "sender_id": from, "recipient_id": to, "message_type": "inform",
            "timestamp": "2026-01-01T00:00:00Z", "interaction_step": 2, "content": {},
        });
        format!("raw {message}")
    };
    for (from, to, expected) in [
        ("agent://buyer", "agent://details", "the address of this agent is \"agent://seller\""),
        ("agent://details", "agent://buyer", "the address of this agent is \"agent://seller\""),
        // The dialogue belongs to others.
        ("agent://seller", "agent://details", "the id \"d1\" is that of another dialogue or task"),
        // Another dialogue of that name, which its recipient refuses: the message is not signed.
        ("agent://seller", "agent://buyer", "UNAUTHORIZED"),
    ] {
        let text = run(&world, ALICE, "seller", &message(from, to)).await;
        assert!(text.contains(expected), "{from} {to}: {text}");
    }
    assert_eq!(dialogue_task(&world, "buyer", "d1").await["error"]["code"], "agent_failed");
    let text = run(&world, ALICE, "seller", "huge d2").await;
    assert!(text.contains("`message` of a dialogue has"), "{text}");
    world.get(ADMIN, "/agents/buyer/tasks/d2").await.refused(404, "not_found");
    let text = run(&world, ALICE, "seller", "flood d3").await;
    assert!(text.starts_with("3 ") && text.contains("`limits.open_calls`"), "{text}");
    // They end with the session of their agent.
    for number in 0..3 {
        let ended = dialogue_task(&world, "details", &format!("d3-{number}")).await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
    }

    for path in ["/agents/details/tasks/d1", &task] {
        assert_eq!(world.get(ADMIN, path).await.expect(200)["status"], "processing", "{path}");
    }
    world.stop().await;
}
