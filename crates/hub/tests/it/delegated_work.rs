//! Tasks and messages of an agent that gets them as envelopes. The agent is the mock.

use duologue_schema::dialogue::MessageType;
use duologue_schema::envelope::EnvelopeKind;
use duologue_store::OutboxQuery;
use serde_json::{Value, json};

use crate::remote_agents::{ended_task, until_true};
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, RestWorld};

const TASKS: &str = "/agents/writer/tasks";

async fn world() -> RestWorld {
    RestWorld::start(&format!("{}\nenvelopes = true\n", writer())).await
}

/// Runs a task to its end.
async fn run(world: &RestWorld, id: &str, parameters: Value) -> Value {
    let task = json!({"taskId": id, "task": {"type": "build", "parameters": parameters}});
    world.post(ALICE, TASKS, &task).await.expect(202);
    ended_task(world, ALICE, &format!("{TASKS}/{id}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_a_delegation() {
    let world = world().await;
    let ended = run(&world, "t1", json!({"prompt": "paint it", "colour": "blue"})).await;
    let data = json!({"steps": 3, "urgent": false, "context": {"colour": "blue"}});
    let result = json!({"text": "Done: paint it", "status": "completed", "data": data});
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &result));
    let log = world.log_of("writer", ended["sessionId"].as_str().unwrap());
    assert!(log.contains("_session/delegate") && !log.contains("session/prompt"), "{log}");
    // The id of the task is that of the delegation.
    assert!(log.contains(r#""id":"t1""#), "{log}");

    for (id, prompt, state, code) in [
        ("t2", "partial", "completed", None),
        ("t3", "fail", "failed", Some("internal")),
        ("t4", "refuse", "rejected", Some("not_authorized")),
        ("t5", "unreachable", "failed", Some("unreachable")),
    ] {
        let ended = run(&world, id, json!({ "prompt": prompt })).await;
        let found = (ended["state"].as_str().unwrap(), ended["error"]["code"].as_str());
        assert_eq!(found, (state, code), "{ended}");
        if prompt == "partial" {
            assert_eq!(ended["result"]["status"], "partial", "{ended}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delegation_is_cancelled_and_streams() {
    let world = world().await;
    let task = json!({"taskId": "t1", "task": {"type": "build", "parameters": {"prompt": "slow"}}});
    world.post(ALICE, TASKS, &task).await.expect(202);
    until_true(async || !world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200)["sessionId"].is_null())
        .await;
    world.post_empty(ALICE, &format!("{TASKS}/t1/cancel")).await.expect(202);
    assert_eq!(ended_task(&world, ALICE, &format!("{TASKS}/t1")).await["status"], "cancelled");

    let task = json!({
        "taskId": "t2", "task": {"type": "build", "parameters": {"prompt": "stream"}},
        "streamEndpoint": "https://example.com/chunks",
    });
    world.post(ALICE, TASKS, &task).await.expect(202);
    ended_task(&world, ALICE, &format!("{TASKS}/t2")).await;
    let store = world.gateway.store().clone();
    let posts = tokio::task::spawn_blocking(move || store.deliveries(&OutboxQuery::default()));
    let posts = posts.await.unwrap().unwrap().items;
    let chunks = posts.iter().map(|post| post.body.parse::<Value>().unwrap()["chunk"].clone());
    let text: String = chunks.map(|chunk| chunk.as_str().unwrap().to_owned()).collect();
    assert_eq!(text, "The kitchen is painted now.");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_and_notifications_are_envelopes() {
    let world = world().await;
    let send = async |message: Value| {
        let message = json!({"mode": "sync", "message": message});
        world.post(ALICE, "/agents/writer/messages", &message).await.expect(200)
    };
    let metadata = json!({"domain": "family.calendar"});
    let answer = send(json!({"type": "query", "content": "who is free?", "metadata": metadata})).await;
    assert_eq!(answer["status"], "completed", "{answer}");
    let response = &answer["response"];
    assert_eq!(response["content"], "You asked about family.calendar: who is free?");
    assert_eq!(response["metadata"]["data"]["domain"], "family.calendar", "{answer}");
    let answer = send(json!({"type": "query", "content": "?", "metadata": {"domain": "weather"}})).await;
    assert_eq!(answer["status"], "error", "{answer}");
    assert!(answer.to_string().contains("unknown_domain"), "{answer}");

    let answer =
        send(json!({"type": "notify", "content": {"n": 1}, "metadata": {"topic": "work.build"}})).await;
    assert_eq!((&answer["status"], &answer["response"]), (&json!("completed"), &Value::Null), "{answer}");
    // Other types are prompts.
    let answer = send(json!({"type": "request", "content": "hello"})).await;
    assert!(!answer["response"]["content"].as_str().unwrap().is_empty(), "{answer}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_a_work_order() {
    let world = world().await;
    let order: Value =
        serde_json::from_str(include_str!("../../../../examples/work_order/input.json")).unwrap();
    let invoke = async |id: &str, parameters: Value| {
        let task = json!({"taskId": id, "task": {"type": "invoke", "parameters": parameters}});
        world.post(ALICE, TASKS, &task).await.expect(202);
        ended_task(&world, ALICE, &format!("{TASKS}/{id}")).await
    };
    let ended = invoke("t1", order.clone()).await;
    let data = &ended["result"]["data"];
    assert_eq!((&ended["status"], &data["success"]), (&json!("completed"), &json!(true)), "{ended}");
    assert_eq!(ended["result"]["text"], data["summary"]);
    let log = world.log_of("writer", ended["sessionId"].as_str().unwrap());
    assert!(log.contains("_session/work") && !log.contains("session/prompt"), "{log}");
    let ended = invoke("t2", json!({"prompt": "no order"})).await;
    assert_eq!(ended["error"]["code"], "invalid_parameter", "{ended}");
    world.stop().await;
}

/// Each kind of an envelope is taken by an agent with envelopes, or refused with the way that there is for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_envelope_is_taken_or_refused_with_a_reason() {
    let world = RestWorld::with_remote(&format!("{}\nenvelopes = true\n", writer())).await;
    let kinds = [
        ("discover", Some("GET /agents/{agentId}/capabilities")),
        ("capabilities", Some("GET /agents/{agentId}/capabilities")),
        ("query", None),
        ("response", Some("it answers an envelope")),
        ("delegate", Some("POST /agents/{agentId}/tasks")),
        ("ack", Some("it answers an envelope")),
        ("result", Some("it answers an envelope")),
        ("error", Some("it answers an envelope")),
        ("cancel", Some("POST /agents/{agentId}/tasks/{taskId}/cancel")),
        ("notify", None),
        ("ping", Some("GET /agents/{agentId}`")),
        ("pong", Some("GET /agents/{agentId}`")),
    ];
    for kind in EnvelopeKind::ALL {
        assert!(kinds.iter().any(|(known, _)| *known == kind.as_str()), "{kind:?} is not in the table");
    }
    let post = async |agent: &str, kind: &str, content: Value| {
        let message = json!({"message": {"type": kind, "content": content}});
        world.post(ALICE, &format!("/agents/{agent}/messages"), &message).await
    };
    for (kind, refused) in kinds {
        let sent = post("writer", kind, json!("hello")).await;
        match refused {
            None => _ = sent.expect(202),
            Some(remedy) => {
                let why = sent.refused(400, "invalid_parameter");
                assert!(why.contains(&format!("{kind:?}")) && why.contains(remedy), "{why}");
            }
        }
        // An agent that takes its messages over REST gets each type as it is.
        post("remote", kind, json!("hello")).await.expect(202);
    }
    // The messages of a dialogue are prompts, and so is a type that nobody knows.
    let names = ["request", "response", "inform", "confirm", "propose", "accept", "reject", "clarify"];
    for name in names.into_iter().chain(["query", "update", "error", "termination", "shout"]) {
        assert_eq!(matches!(MessageType::from(name), MessageType::Unknown(_)), name == "shout");
        let content = json!({"session_id": format!("d-{name}"), "sender_id": "agent://alice"});
        for agent in ["writer", "remote"] {
            post(agent, name, content.clone()).await.expect(202);
        }
    }
    world.stop().await;
}
