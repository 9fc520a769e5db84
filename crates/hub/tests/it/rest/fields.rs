//! Members of messages and tasks that no other test of the interface sets.

use duologue_schema::envelope::TaskState;
use duologue_store::{StoreChange, TaskFailure, TaskUpdate};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::receiver::{Receiver, accept};
use crate::remote_agents::until_true;
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, BOB, Call, REMOTE, RestWorld, claim_task, events};

const MESSAGES: &str = "/agents/remote/messages";
const TASKS: &str = "/agents/remote/tasks";

/// Claims all messages, and returns their ids in the order in which they should be answered.
async fn claimed(world: &RestWorld) -> Vec<String> {
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?max=100")).await.expect(200);
    let messages = claimed["messages"].as_array().unwrap().iter();
    messages.map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn urgent_messages_are_taken_first_and_groups_in_order() {
    let world = RestWorld::with_remote("").await;
    for (id, more) in [
        ("low", json!({"priority": "low"})),
        ("medium", json!({})),
        ("high", json!({"priority": "high"})),
        ("critical", json!({"priority": "critical"})),
    ] {
        let mut message = json!({"messageId": id, "message": {"type": "notify", "content": "a"}});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.post(ALICE, MESSAGES, &message).await.expect(202);
    }
    assert_eq!(claimed(&world).await, ["critical", "high", "medium", "low"]);

    // One message of a dialogue is out at a time, in order of arrival.
    for (id, priority) in [("first", "low"), ("second", "critical")] {
        let content = json!({"type": "inform", "content": {"session_id": "s1"}});
        let message = json!({"messageId": id, "priority": priority, "message": content});
        world.post(ALICE, MESSAGES, &message).await.expect(202);
    }
    assert_eq!(claimed(&world).await, ["first"]);
    let first = world.get(ALICE, &format!("{MESSAGES}/first")).await.expect(200);
    assert_eq!((&first["group"], &first["priority"]), (&json!("s1"), &json!("low")));
    world.stop().await;
}

#[tokio::test]
async fn the_group_of_one_principal_holds_up_no_other() {
    let world = RestWorld::with_remote("").await;
    for (key, id) in [(ALICE, "a1"), (BOB, "b1"), (ALICE, "a2")] {
        let message = json!({"messageId": id, "group": "g", "message": {"type": "notify", "content": "a"}});
        world.post(key, MESSAGES, &message).await.expect(202);
    }
    assert_eq!(claimed(&world).await, ["a1", "b1"]);
    // The groups of conversations are those of the server.
    for (member, message) in [
        ("group", json!({"group": "correlation:0a", "message": {"type": "notify", "content": "a"}})),
        (
            "message.content.session_id",
            json!({"message": {"type": "inform", "content": {"session_id": "correlation:0a"}}}),
        ),
    ] {
        let why = world.post(ALICE, MESSAGES, &message).await.refused(400, "invalid_parameter");
        assert!(why.starts_with(member), "{why}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_message_keeps_its_members_and_expires() {
    let world = RestWorld::with_remote("").await;
    let message = json!({
        "messageId": "m1", "correlationId": "c1", "metadata": {"trace": "t"},
        "message": {"type": "query", "content": {"a": [1]}, "mimeType": "application/json", "metadata": {"k": 1}},
    });
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    let late = json!({"messageId": "m2", "ttl": 0, "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, MESSAGES, &late).await.expect(202);
    let found = world.get(ALICE, &format!("{MESSAGES}?correlationId=c1")).await.expect(200);
    assert_eq!(found["pagination"]["total"], 1);
    for member in ["messageId", "correlationId", "metadata", "message"] {
        assert_eq!(found["messages"][0][member], message[member], "{member}");
    }
    assert_eq!(claimed(&world).await, ["m1"]);
    let expired = in_time(async {
        loop {
            let message = world.get(ALICE, &format!("{MESSAGES}/m2")).await.expect(200);
            if message["status"] == "error" {
                return message;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    assert_eq!(expired.await["error"]["code"], "expired");
    world.stop().await;
}

#[tokio::test]
async fn a_rejected_task_is_reported_as_failed_with_its_error() {
    let world = RestWorld::with_remote("").await;
    let task = json!({"taskId": "t1", "priority": "critical", "task": {"type": "write"}});
    world.post(ALICE, TASKS, &task).await.expect(202);
    world.post(ALICE, TASKS, json!({"taskId": "t2", "task": {"type": "write"}})).await.expect(202);
    let (claimed, lease) = claim_task(&world, "remote").await;
    assert_eq!((claimed.key.task.as_str(), claimed.priority), ("t1", 9));
    let mut update = TaskUpdate::new(claimed.key, claimed.version).lease(lease).state(TaskState::Rejected);
    update.error = Some(TaskFailure::new("overloaded", "no place", true));
    world.apply(StoreChange::UpdateTask(update)).await;
    let error = json!({"code": "overloaded", "message": "no place", "retryable": true});
    let ended = world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200);
    let states = (&ended["status"], &ended["state"], &ended["error"]);
    assert_eq!(states, (&json!("failed"), &json!("rejected"), &error));
    // A repeated creation has the decision of the agent.
    let again = world.post(ALICE, TASKS, &task).await.expect(200);
    assert_eq!((&again["status"], &again["error"]), (&json!("rejected"), &error));
    world.stop().await;
}

#[tokio::test]
async fn a_full_inbox_refuses_messages() {
    let world = RestWorld::start_with("", |settings| settings.store.inbox_entries = 2).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
    let message = json!({"message": {"type": "notify", "content": "a"}});
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    let why = world.post(ALICE, MESSAGES, &message).await.refused(429, "overloaded");
    assert!(why.contains("half of the places that others leave, has 1 entries"), "{why}");
    world.post(BOB, MESSAGES, &message).await.expect(202);
    let why = world.post(BOB, MESSAGES, &message).await.refused(429, "overloaded");
    assert!(why.contains("inbox_entries"), "{why}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_posts_its_output_and_its_end() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::start(&format!("loopback_callbacks = true\n{}", writer())).await;
    let tasks = "/agents/writer/tasks";
    let task = |id: &str, streaming: bool| {
        json!({
            "taskId": id, "task": {"type": "write", "parameters": {"prompt": "thoughts"}}, "streaming": streaming,
            "callback": receiver.url("/done"), "streamEndpoint": receiver.url("/chunks"),
        })
    };
    for (id, streaming) in [("t1", false), ("t2", true)] {
        world.post(ALICE, tasks, task(id, streaming)).await.expect(202);
        let call = Call::new("GET", &format!("{tasks}/{id}/events")).key(ALICE);
        assert_eq!(events(&world.open(&call).await.end().await).last().unwrap().0, "end");
    }
    let bodies = |path: &str| -> Vec<Value> {
        let received = receiver.received().into_iter().filter(|post| post.path == path);
        received.map(|post| serde_json::from_slice(&post.body).unwrap()).collect()
    };
    until_true(async || {
        bodies("/done").len() == 2 && bodies("/chunks").last().is_some_and(|last| last["complete"] == true)
    })
    .await;
    let ended = world.get(ALICE, &format!("{tasks}/t2")).await.expect(200);
    let done = bodies("/done").into_iter().find(|done| done["taskId"] == "t2");
    let expected =
        json!({"taskId": "t2", "agentId": "writer", "status": "completed", "result": ended["result"]});
    assert_eq!(done, Some(expected));
    // Those of the second task alone: the first one did not want them.
    let chunks = bodies("/chunks");
    let positions: Vec<_> = chunks.iter().map(|chunk| chunk["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (0..chunks.len() as u64).collect::<Vec<_>>());
    let text: String = chunks.iter().map(|chunk| chunk["chunk"].as_str().unwrap()).collect();
    assert!(text.contains("\n\n"), "an empty line is between messages: {text}");
    assert_eq!(ended["result"]["text"], text);
    world.stop().await;
}

/// Two agents in a row: the first one makes a picture, and the program behind its callback sends it to the second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_passes_from_a_task_to_another_agent() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::with_remote(&format!("loopback_callbacks = true\n{}", writer())).await;
    let task = json!({
        "taskId": "t1", "task": {"type": "paint", "parameters": {"prompt": "content"}},
        "callback": receiver.url("/done"),
    });
    world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);
    until_true(async || !receiver.received().is_empty()).await;
    let done: Value = serde_json::from_slice(&receiver.received()[0].body).unwrap();
    let attachments = done["result"]["attachments"].as_array().expect("attachments");
    let kinds: Vec<_> = attachments.iter().map(|one| one["mime_type"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["image/png", "audio/wav"]), "{done}");
    assert!(done["result"].get("truncated").is_none(), "{done}");
    let picture = &attachments[0]["data"];
    // The answer to a message has it too.
    let query = json!({"mode": "sync", "message": {"type": "query", "content": "content"}});
    let answered = world.post(ALICE, "/agents/writer/messages", query).await.expect(200);
    assert_eq!(answered["response"]["attachments"], done["result"]["attachments"], "{answered}");
    let message = json!({"messageId": "m1", "message": {
        "type": "query", "content": picture, "mimeType": "image/png", "metadata": {"task": "t1"},
    }});
    world.post(ALICE, MESSAGES, message).await.expect(202);
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    let message = &claimed["messages"][0]["message"];
    assert_eq!((&message["content"], &message["mimeType"]), (picture, &json!("image/png")));
    world.stop().await;
}
