//! Messages: sending, waiting, taking, acknowledging, and dead letters.

use std::time::Duration;

use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::rest::world::{ADMIN, ALICE, BOB, Call, REMOTE, RestWorld};

const MESSAGES: &str = "/agents/remote/messages";

fn query(id: &str, content: &str) -> Value {
    json!({"from": "alice", "messageId": id, "message": {"type": "query", "content": content}})
}

#[tokio::test]
async fn a_message_waits_until_its_agent_takes_it() {
    let world = RestWorld::with_remote("").await;
    let sent = world.post(ALICE, MESSAGES, query("m1", "hello")).await.expect(202);
    assert_eq!(sent, json!({"messageId": "m1", "agentId": "remote", "status": "received"}));
    // The same message again is not another one, and another content is not the same message.
    world.post(ALICE, MESSAGES, query("m1", "hello")).await.expect(200);
    world.post(ALICE, MESSAGES, query("m1", "bye")).await.refused(409, "conflict");
    let minted =
        world.post(BOB, MESSAGES, json!({"message": {"type": "notify", "content": "a"}})).await.expect(202);
    assert_eq!(minted["messageId"].as_str().unwrap().len(), 36);

    let inbox = world.get(ALICE, MESSAGES).await.expect(200);
    assert_eq!(inbox["pagination"], json!({"offset": 0, "limit": 100, "total": 1}));
    let listed = &inbox["messages"][0];
    assert_eq!(listed["message"], json!({"type": "query", "content": "hello"}));
    assert_eq!((&listed["from"], &listed["status"]), (&json!("alice"), &json!("received")));
    assert_eq!(world.get(REMOTE, MESSAGES).await.expect(200)["pagination"]["total"], 2);
    assert_eq!(
        world.get(ALICE, &format!("{MESSAGES}?sender=bob")).await.expect(200)["pagination"]["total"],
        0
    );

    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?max=2")).await.expect(200);
    assert_eq!(claimed["messages"].as_array().unwrap().len(), 2);
    let lease = claimed["messages"][0]["lease"].as_str().unwrap();
    let answer = json!({"lease": lease, "response": {"type": "response", "content": {"text": "hi"}}});
    let ended = world.post(REMOTE, &format!("{MESSAGES}/m1/ack"), &answer).await.expect(200);
    assert_eq!(ended, json!({"messageId": "m1", "status": "completed"}));
    world.post(REMOTE, &format!("{MESSAGES}/m1/ack"), &answer).await.refused(409, "conflict");
    let message = world.get(ALICE, &format!("{MESSAGES}/m1")).await.expect(200);
    assert_eq!((&message["status"], &message["response"]), (&json!("completed"), &answer["response"]));
    // The message of another is as absent.
    let foreign = world.get(BOB, &format!("{MESSAGES}/m1")).await;
    foreign.refused(404, "not_found");
    assert_eq!(foreign.text, world.get(BOB, &format!("{MESSAGES}/absent")).await.text);
    for key in [ALICE, BOB] {
        world.post_empty(key, &format!("{MESSAGES}/claim")).await.refused(404, "not_found");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_sync_message_has_the_answer() {
    let world = RestWorld::with_remote("").await;
    let mut message = query("m1", "hello");
    message["mode"] = json!("sync");
    let call = Call::new("POST", MESSAGES).key(ALICE).json(&message);
    let answering = async {
        let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?wait=20")).await.expect(200);
        let lease = claimed["messages"][0]["lease"].as_str().unwrap();
        let answer = json!({"lease": lease, "response": {"type": "response", "content": "hi"}});
        world.post(REMOTE, &format!("{MESSAGES}/m1/ack"), &answer).await.expect(200);
    };
    let (response, ()) = in_time(async { tokio::join!(world.send(&call), answering) }).await;
    let response = response.expect(200);
    assert_eq!((&response["status"], &response["response"]["content"]), (&json!("completed"), &json!("hi")));

    // Nobody answers in time.
    message["messageId"] = json!("m2");
    let call =
        Call::new("POST", MESSAGES).key(ALICE).json(&message).header("prefer", "respond-async, wait=0");
    let response = world.send(&call).await.expect(202);
    assert_eq!(response, json!({"messageId": "m2", "agentId": "remote", "status": "processing"}));

    world.post(REMOTE, "/registry/agents/remote/heartbeat", json!({"status": "offline"})).await.expect(200);
    message["messageId"] = json!("m3");
    let refused = world.post(ALICE, MESSAGES, &message).await;
    refused.refused(503, "unreachable");
    assert_eq!(refused.json()["retryable"], true);
    world.stop().await;
}

#[tokio::test]
async fn a_body_of_any_type_is_the_content() {
    let world = RestWorld::with_remote("").await;
    let text = Call::new("POST", &format!("{MESSAGES}?messageId=m1&type=inform")).key(ALICE);
    world.send(&text.raw("text/plain; charset=utf-8", "héllo")).await.expect(202);
    let image = Call::new("POST", &format!("{MESSAGES}?messageId=m2")).key(ALICE);
    world.send(&image.raw("image/png", [0xff, 0x00, 0x01])).await.expect(202);
    let message = world.get(ALICE, &format!("{MESSAGES}/m1")).await.expect(200);
    let content = json!({"type": "inform", "content": "héllo", "mimeType": "text/plain; charset=utf-8"});
    assert_eq!((&message["message"], &message["from"]), (&content, &json!("alice")));
    let message = world.get(ALICE, &format!("{MESSAGES}/m2")).await.expect(200);
    assert_eq!(message["message"], json!({"type": "query", "content": "/wAB", "mimeType": "image/png"}));

    let call = || Call::new("POST", MESSAGES).key(ALICE);
    let form = world.send(&call().raw("application/x-www-form-urlencoded", r#"{"message": 1}"#)).await;
    form.refused(415, "unsupported_media_type");
    world.send(&call()).await.refused(415, "unsupported_media_type");
    world.send(&call().raw("text", "a")).await.refused(415, "unsupported_media_type");
    world.stop().await;
}

#[tokio::test]
async fn a_sender_is_the_caller() {
    let world = RestWorld::with_remote("").await;
    let from = |from: &str| json!({"from": from, "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, MESSAGES, from("bob")).await.refused(403, "not_authorized");
    world.post(ALICE, MESSAGES, from("remote")).await.refused(403, "not_authorized");
    world.post(ADMIN, MESSAGES, from("anyone")).await.expect(202);
    // To an agent that it cannot find, a sender has no name to be refused for.
    world.post(REMOTE, "/agents/absent/messages", from("bob")).await.refused(404, "not_found");
    for body in [
        json!({"from": "", "message": {"type": "a", "content": "a"}}),
        json!({"message": {"type": "a", "content": "a"}, "messageId": "a\nb"}),
        // The path of this message would be that of a claim.
        json!({"message": {"type": "a", "content": "a"}, "messageId": "claim"}),
        json!({"message": {"type": "a", "content": "a"}, "messageId": "a".repeat(129)}),
        json!({"message": {"type": "a", "content": "a"}, "mode": "later"}),
        json!({"message": {"content": "a"}}),
        json!({"message": {"type": "a", "content": "a"}, "ttl": -1}),
        json!([]),
    ] {
        world.post(ALICE, MESSAGES, &body).await.refused(400, "invalid_parameter");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_dialogue_message_is_of_its_sender() {
    let ada = "[[principals]]\nid = \"team/ada\"\nkey_sha256 = \"15b5f344504549a217d5e34c7ae9b0af03c413536b0d0c0fc48822ac8922d3c8\"\nroles = [\"user\"]";
    let world = RestWorld::with_remote(ada).await;
    let of = |sender: &str| {
        let content = json!({"session_id": "d1", "message_type": "inform", "sender_id": sender});
        json!({"message": {"type": "inform", "content": content}})
    };
    for own in ["alice", "agent://alice", "agent://alice/sales"] {
        world.post(ALICE, MESSAGES, of(own)).await.expect(202);
    }
    for own in ["agent://team/ada", "agent://team/ada/sales"] {
        world.post("ada-key", MESSAGES, of(own)).await.expect(202);
    }
    world.post("ada-key", MESSAGES, of("agent://team")).await.refused(403, "not_authorized");
    for other in
        ["bob", "agent://remote", "agent://bob/alice", "agent://alice.example", "agent://", "AGENT://alice"]
    {
        let why = world.post(ALICE, MESSAGES, of(other)).await.refused(403, "not_authorized");
        assert!(why.contains("message.content.sender_id") && why.contains("use `agent://alice`"), "{why}");
        world.post(ADMIN, MESSAGES, of(other)).await.expect(202);
        // The type of a message is that of its sender.
        let mut notify = of(other);
        notify["message"]["type"] = json!("notify");
        world.post(ALICE, MESSAGES, notify).await.refused(403, "not_authorized");
    }
    // Readers differ about the one that counts.
    for twice in [
        r#"{"session_id": "d", "sender_id": "agent://alice", "sender_id": "agent://remote"}"#,
        r#"{"session_id": "d", "sender_id": "agent://remote", "sender_id": "agent://alice"}"#,
        r#"{"session_id": "d", "sender_id": "agent://remote", "session_id": 5}"#,
        r#"{"session_id": "d", "sender_id": 5}"#,
    ] {
        let message = format!(r#"{{"message": {{"type": "inform", "content": {twice}}}}}"#);
        let why = world.post(ALICE, MESSAGES, message.as_str()).await.refused(400, "invalid_parameter");
        assert!(why.starts_with("message.content"), "{why}");
    }
    // A content without a dialogue has members of its own.
    let other = json!({"message": {"type": "query", "content": {"sender_id": "bob"}}});
    world.post(ALICE, MESSAGES, other).await.expect(202);
    world.post(ALICE, "/agents/nowhere/messages", of("agent://bob")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn a_lease_ends_its_own_message_alone() {
    let world = RestWorld::with_remote("").await;
    for key in [ALICE, BOB] {
        world
            .post(key, MESSAGES, json!({"messageId": "m1", "message": {"type": "notify", "content": "a"}}))
            .await
            .expect(202);
    }
    world.post(ALICE, MESSAGES, query("m2", "hello")).await.expect(202);
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?max=3")).await.expect(200);
    let leases: Vec<_> =
        claimed["messages"].as_array().unwrap().iter().map(|message| message["lease"].clone()).collect();
    for (lease, id, other) in [(&leases[0], "m1", "m2"), (&leases[1], "m1", "m2"), (&leases[2], "m2", "m1")] {
        let lease = json!({"lease": lease});
        for verb in ["ack", "nack"] {
            world.post(REMOTE, &format!("{MESSAGES}/{other}/{verb}"), &lease).await.refused(409, "conflict");
        }
        world.post(REMOTE, &format!("{MESSAGES}/absent/ack"), &lease).await.refused(404, "not_found");
        world.post(REMOTE, &format!("{MESSAGES}/{id}/ack"), &lease).await.expect(200);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_failed_message_is_a_dead_letter() {
    let world = RestWorld::with_remote("").await;
    let letters = "/agents/remote/dead-letters";
    world.post(ALICE, MESSAGES, query("m1", "hello")).await.expect(202);
    let fail = async |body: Value, status: &str| {
        let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
        let mut body = body;
        body["lease"] = claimed["messages"][0]["lease"].clone();
        let ended = world.post(REMOTE, &format!("{MESSAGES}/m1/nack"), &body).await.expect(200);
        assert_eq!(ended["status"], status);
    };
    fail(json!({"error": "busy"}), "received").await;
    fail(json!({"error": "too_hard: no idea", "requeue": false}), "error").await;
    let message = world.get(ALICE, &format!("{MESSAGES}/m1")).await.expect(200);
    let error = json!({"code": "too_hard", "message": "no idea", "retryable": false});
    assert_eq!((&message["status"], &message["error"]), (&json!("error"), &error));

    assert_eq!(world.get(ALICE, letters).await.expect(200)["messages"][0]["messageId"], "m1");
    assert_eq!(world.get(BOB, letters).await.expect(200)["pagination"]["total"], 0);
    world.post_empty(BOB, &format!("{letters}/m1/resend")).await.refused(404, "not_found");
    world.post_empty(ALICE, &format!("{letters}/m1/resend")).await.expect(204);
    world.post_empty(ALICE, &format!("{letters}/m1/resend")).await.refused(409, "conflict");
    fail(json!({"requeue": false}), "error").await;
    world.delete(ALICE, &format!("{letters}/m1")).await.expect(204);
    world.get(ALICE, &format!("{MESSAGES}/m1")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn a_request_with_a_key_runs_once() {
    let world = RestWorld::with_remote("").await;
    let call = |key: &str, content: &str, idempotency: &str| {
        let body = json!({"message": {"type": "notify", "content": content}});
        Call::new("POST", MESSAGES).key(key).json(body).header("idempotency-key", idempotency)
    };
    let first = world.send(&call(ALICE, "a", "k1")).await;
    let again = world.send(&call(ALICE, "a", "k1")).await;
    assert_eq!((first.expect(202), &first.text), (again.expect(202), &again.text));
    world.send(&call(ALICE, "b", "k1")).await.refused(422, "key_reused");
    world.send(&call(BOB, "b", "k1")).await.expect(202);
    world.send(&call(ALICE, "a", "k2")).await.expect(202);
    for odd in [&*"k".repeat(129), "", "k 1", "k\t1"] {
        world.send(&call(ALICE, "a", odd)).await.refused(400, "invalid_parameter");
    }
    assert_eq!(world.get(ALICE, MESSAGES).await.expect(200)["pagination"]["total"], 2);

    // An acknowledgement whose response was lost.
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    let message = &claimed["messages"][0];
    let path = format!("{MESSAGES}/{}/ack", message["messageId"].as_str().unwrap());
    let body = json!({"lease": message["lease"]});
    let ack = Call::new("POST", &path).key(REMOTE).json(body).header("idempotency-key", "ack");
    assert_eq!(world.send(&ack).await.expect(200), world.send(&ack).await.expect(200));
    world.stop().await;
}

#[tokio::test]
async fn a_repeated_request_has_the_reply_that_the_first_one_has_had() {
    let world = RestWorld::with_remote("").await;
    let keyed = |key: &str, path: &str, body: &Value| {
        Call::new("POST", path).key(key).json(body).header("idempotency-key", "k1")
    };
    // The same message was sent without the key before.
    let message = query("m1", "hello");
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    let sent = keyed(ALICE, MESSAGES, &message);
    let first = world.send(&sent).await.expect(200);
    let task = json!({"taskId": "t1", "task": {"type": "write"}});
    world.post(ALICE, "/agents/remote/tasks", &task).await.expect(202);
    let created = keyed(ALICE, "/agents/remote/tasks", &task);
    assert_eq!(world.send(&created).await.expect(200), world.send(&created).await.expect(200));

    // The last attempt makes a dead letter.
    let claim = format!("{MESSAGES}/claim");
    for left in (0..5).rev() {
        let claimed = world.post_empty(REMOTE, &claim).await.expect(200);
        let body = json!({"lease": claimed["messages"][0]["lease"]});
        let nack = Call::new("POST", &format!("{MESSAGES}/m1/nack")).key(REMOTE).json(&body);
        let nack = nack.header("idempotency-key", &format!("n{left}"));
        let ended = world.send(&nack).await.expect(200);
        assert_eq!(ended["status"], if left == 0 { "error" } else { "received" });
        assert_eq!(world.send(&nack).await.expect(200), ended);
        if left == 0 {
            world.delete(ALICE, "/agents/remote/dead-letters/m1").await.expect(204);
            assert_eq!(world.send(&nack).await.expect(200), ended, "the message is gone");
        }
    }
    assert_eq!(world.send(&sent).await.expect(200), first);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_needs_no_agent_that_is_free_or_there() {
    let world = RestWorld::start("").await;
    let card = json!({"domains": ["travel"], "metadata": {"maxConcurrentTasks": 1}});
    world.put(REMOTE, "/registry/agents/remote", card).await.expect(201);
    let keyed = |path: &str, body: &Value| {
        Call::new("POST", path).key(ALICE).json(body).header("idempotency-key", path)
    };
    let mut question = query("m1", "hello");
    question["mode"] = json!("sync");
    let question = keyed(MESSAGES, &question);
    let answering = async {
        let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?wait=20")).await.expect(200);
        let lease = &claimed["messages"][0]["lease"];
        let answer = json!({"lease": lease, "response": {"type": "response", "content": "hi"}});
        world.post(REMOTE, &format!("{MESSAGES}/m1/ack"), &answer).await.expect(200);
    };
    let (answered, ()) = in_time(async { tokio::join!(world.send(&question), answering) }).await;
    assert_eq!(answered.expect(200)["response"]["content"], "hi");

    let travel = "/agents/agent%3A%2F%2F*%3Fdomain%3Dtravel";
    let task = json!({"task": {"type": "write", "parameters": {"prompt": "plan"}}});
    let notice = json!({"message": {"type": "notify", "content": "a"}});
    // The first task takes the only place of the agent.
    let calls = [
        keyed(&format!("{travel}/tasks"), &task),
        keyed("/agents/remote/tasks", &task),
        keyed(&format!("{travel}/messages"), &notice),
        keyed(&format!("{MESSAGES}?priority=low"), &notice),
    ];
    let mut first = Vec::new();
    for call in &calls {
        let response = world.send(call).await;
        response.expect(202);
        assert_eq!(world.send(call).await.text, response.text, "the agent is busy");
        first.push(response.text);
    }
    world.delete(REMOTE, "/registry/agents/remote").await.expect(204);
    world.gateway.drain(Duration::ZERO).await;
    for (call, first) in calls.iter().zip(&first) {
        assert_eq!(world.send(call).await.text, *first, "the agent is gone, and the server drains");
    }
    assert_eq!(world.send(&question).await.text, answered.text);
    world.stop().await;
}

#[tokio::test]
async fn a_nack_delays_no_message_for_longer_than_work_may_take() {
    let world = RestWorld::with_remote("[limits]\ntask_seconds = 1").await;
    world.post(ALICE, MESSAGES, query("m1", "hello")).await.expect(202);
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    let nack = json!({"lease": claimed["messages"][0]["lease"], "delay": 9_007_199_254_740_991_u64});
    world.post(REMOTE, &format!("{MESSAGES}/m1/nack"), &nack).await.expect(200);
    let again = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?wait=20")).await.expect(200);
    assert_eq!(again["messages"][0]["messageId"], "m1");
    world.stop().await;
}

#[tokio::test]
async fn a_key_is_in_use_while_its_first_request_runs() {
    let world = RestWorld::with_remote("").await;
    let mut message = query("m1", "hello");
    message["mode"] = json!("sync");
    let call = |key: &str, message: &Value| {
        Call::new("POST", MESSAGES).key(key).json(message).header("idempotency-key", "k1")
    };
    let mut other = message.clone();
    other["messageId"] = json!("m2");
    let during = async {
        let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim?wait=20")).await.expect(200);
        for message in [&message, &other] {
            let refused = world.send(&call(ALICE, message)).await;
            refused.refused(409, "key_in_use");
            assert_eq!(refused.json()["retryable"], true);
        }
        // The keys of another user are others.
        let mut own = other.clone();
        (own["mode"], own["from"]) = (json!("async"), json!("bob"));
        world.send(&call(BOB, &own)).await.expect(202);
        let answer = json!({"lease": claimed["messages"][0]["lease"], "response": {"type": "response", "content": "hi"}});
        world.post(REMOTE, &format!("{MESSAGES}/m1/ack"), &answer).await.expect(200);
    };
    let first = call(ALICE, &message);
    let (response, ()) = in_time(async { tokio::join!(world.send(&first), during) }).await;
    assert_eq!(response.expect(200)["status"], "completed");
    let again = world.send(&first).await.expect(200);
    assert_eq!((&again["messageId"], &again["response"]["content"]), (&json!("m1"), &json!("hi")));
    world.send(&call(ALICE, &other)).await.refused(422, "key_reused");
    world.stop().await;
}
