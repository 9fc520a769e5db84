//! The requests and responses that the document of the REST interface prints, member by member.
//!
//! A response is that of the document with the members that `docs/src/documents.md` lists as added. Nothing else may be in it.

use duologue_schema::envelope::TaskState;
use duologue_store::{StoreChange, TaskFailure, TaskUpdate};
use serde_json::{Value, json};

use crate::receiver::{Receiver, accept};
use crate::remote_agents::{ended_task, until};
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, BOB, Call, REMOTE, RestWorld, claim_task, events};

const CHAPTER: &str = include_str!("../../../../../docs/src/documents.md");

/// A request, the members of the response that the document has, and those that are added. `<time>`, `<id>` and `<text>` are
/// a time in milliseconds, a minted id and any text.
struct Exchange {
    request: Call,
    status: u16,
    documented: Value,
    added: Value,
}

impl Exchange {
    fn new(request: Call, status: u16, documented: Value, added: Value) -> Self {
        Exchange { request, status, documented, added }
    }

    /// Sends the request and compares the whole response, which is returned.
    async fn check(self, world: &RestWorld) -> Value {
        let response = world.send(&self.request).await;
        assert_eq!(response.status, self.status, "{response:?}");
        compare(&response.json(), self.documented, self.added);
        response.json()
    }
}

/// Compares a value with the members of the document and the added ones.
#[track_caller]
fn compare(found: &Value, documented: Value, added: Value) {
    let (_, list) = CHAPTER.split_once("### Members that are added").expect("the list of added members");
    let (list, _) = list.split_once("\n#").expect("the end of the list");
    let mut expected = documented;
    add(&mut expected, added, list);
    assert!(fits(found, &expected), "\n   found {found}\nexpected {expected}");
}

/// Adds members that the list names.
#[track_caller]
fn add(to: &mut Value, added: Value, list: &str) {
    match (to, added) {
        (Value::Object(to), Value::Object(added)) => {
            for (name, value) in added {
                match to.get_mut(&name) {
                    Some(to) => add(to, value, list),
                    None => {
                        assert!(list.contains(&format!("`{name}`")), "`{name}` is not in the list");
                        to.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(to), Value::Array(added)) => {
            to.iter_mut().zip(added).for_each(|(to, added)| add(to, added, list));
        }
        (to, added) => panic!("{added} is no part of {to}"),
    }
}

fn fits(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            found.len() == expected.len()
                && expected
                    .iter()
                    .all(|(name, value)| found.get(name).is_some_and(|found| fits(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, value)| fits(found, value))
        }
        (found, Value::String(kind)) if kind.starts_with('<') => match kind.as_str() {
            "<time>" => found.as_u64().is_some_and(|time| time > 1_600_000_000_000),
            "<id>" => found.as_str().is_some_and(|id| id.len() == 36),
            _ => found.as_str().is_some_and(|text| !text.is_empty()),
        },
        (found, expected) => found == expected,
    }
}

fn get(path: &str) -> Call {
    Call::new("GET", path).key(ALICE)
}

fn post(path: &str, body: &Value) -> Call {
    Call::new("POST", path).key(ALICE).json(body)
}

#[tokio::test]
async fn agents_and_capabilities_are_as_documented() {
    let world = RestWorld::start("").await;
    let metadata = json!({
        "version": "2.1", "provider": "Example", "supportedMimeTypes": ["text/plain"], "maxConcurrentTasks": 3,
        "averageResponseTime": 250.5, "pricing": {"model": "per_minute", "rate": 0.5, "currency": "EUR"},
    });
    let capabilities =
        json!(["translate", {"name": "sum", "description": "Sums up.", "schema": {"type": "object"}}]);
    let endpoint = "https://remote.example/acp";
    let entry =
        json!({"endpoint": endpoint, "capabilities": capabilities, "tags": ["fast"], "metadata": metadata});
    let agent = json!({
        "agentId": "remote", "endpoint": endpoint, "capabilities": capabilities, "status": "online", "metadata": metadata,
    });
    let added = json!({"domains": [], "tags": ["fast"], "lastSeen": "<time>"});
    let page = json!({"agents": [agent], "pagination": {"offset": 0, "limit": 5, "total": 1}});
    let listed = json!({"agents": [added]});
    let register = Call::new("PUT", "/registry/agents/remote").key(REMOTE).json(&entry);
    let beat =
        Call::new("POST", "/registry/agents/remote/heartbeat").key(REMOTE).json(json!({"status": "online"}));
    let search = "capability=translate&status=online&provider=Example&tag=fast&offset=0&limit=5";
    let card = json!({"capabilities": capabilities, "metadata": metadata});
    for exchange in [
        Exchange::new(register, 201, agent.clone(), added.clone()),
        Exchange::new(beat, 200, agent.clone(), added.clone()),
        Exchange::new(get(&format!("/agents?{search}")), 200, page.clone(), listed.clone()),
        Exchange::new(get("/registry/agents?tag=fast&capability=translate&limit=5"), 200, page, listed),
        Exchange::new(get("/agents/remote"), 200, agent, added),
        Exchange::new(get("/agents/remote/capabilities"), 200, card, json!({"agentId": "remote"})),
    ] {
        exchange.check(&world).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_as_documented() {
    let world = RestWorld::with_remote(&writer()).await;
    let path = "/agents/remote/messages";
    let content =
        json!({"type": "query", "content": "hello", "mimeType": "text/plain", "metadata": {"k": 1}});
    let sent = |id: &str, mode: &str| {
        json!({
            "from": "alice", "messageId": id, "correlationId": "c1", "message": content, "mode": mode,
            "metadata": {"trace": "t"},
        })
    };
    let agent = json!({"agentId": "remote"});
    let received = json!({"messageId": "m1", "status": "received"});
    Exchange::new(post(path, &sent("m1", "async")), 202, received, agent.clone()).check(&world).await;
    let entry = |id: &str, status: &str| json!({"messageId": id, "from": "alice", "timestamp": "<time>", "message": content, "status": status});
    let more = |attempts: u32| {
        json!({
            "sender": "alice", "priority": "medium", "attempts": attempts, "correlationId": "c1",
            "metadata": {"trace": "t"},
        })
    };
    let inbox =
        json!({"messages": [entry("m1", "received")], "pagination": {"offset": 0, "limit": 5, "total": 1}});
    Exchange::new(get(&format!("{path}?offset=0&limit=5")), 200, inbox, json!({"messages": [more(0)]}))
        .check(&world)
        .await;

    let claim = || Call::new("POST", &format!("{path}/claim?max=1&wait=0")).key(REMOTE);
    let mut leased = more(1);
    leased["lease"] = json!("<text>");
    let claimed = json!({"messages": [entry("m1", "processing")]});
    let claimed =
        Exchange::new(claim(), 200, claimed, json!({"messages": [leased.clone()]})).check(&world).await;
    let response = json!({"type": "response", "content": {"text": "hi"}, "mimeType": "application/json"});
    let ack = json!({"lease": claimed["messages"][0]["lease"], "response": response});
    let ack = Call::new("POST", &format!("{path}/m1/ack")).key(REMOTE).json(&ack);
    let completed = json!({"messageId": "m1", "status": "completed"});
    Exchange::new(ack, 200, completed, json!({})).check(&world).await;
    let answered = json!({"messageId": "m1", "status": "completed", "response": response});
    Exchange::new(post(path, &sent("m1", "async")), 200, answered, agent.clone()).check(&world).await;
    let mut message = entry("m1", "completed");
    message["response"] = response;
    Exchange::new(get(&format!("{path}/m1")), 200, message, more(1)).check(&world).await;

    // Nobody answers in time, and then the agent gives up.
    let waiting = post(path, &sent("m2", "sync")).header("prefer", "wait=0");
    let processing = json!({"messageId": "m2", "status": "processing"});
    Exchange::new(waiting, 202, processing, agent.clone()).check(&world).await;
    let claimed = json!({"messages": [entry("m2", "processing")]});
    let claimed = Exchange::new(claim(), 200, claimed, json!({"messages": [leased]})).check(&world).await;
    let nack = json!({"lease": claimed["messages"][0]["lease"], "requeue": false, "error": "no_time: too much to do"});
    let nack = Call::new("POST", &format!("{path}/m2/nack")).key(REMOTE).json(&nack);
    Exchange::new(nack, 200, json!({"messageId": "m2", "status": "error"}), json!({})).check(&world).await;
    let failed = json!({"messageId": "m2", "status": "error", "error": {"code": "no_time", "message": "too much to do"}});
    let added = json!({"agentId": "remote", "error": {"retryable": false}});
    Exchange::new(post(path, &sent("m2", "sync")), 200, failed, added).check(&world).await;

    let mut message = sent("m3", "sync");
    message["metadata"] = json!({});
    let response = json!({"type": "response", "content": "<text>", "mimeType": "text/plain"});
    let answered = json!({"messageId": "m3", "status": "completed", "response": response});
    let added = json!({"agentId": "writer"});
    Exchange::new(post("/agents/writer/messages", &message), 200, answered, added).check(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_callbacks_and_streams_are_as_documented() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::with_remote(&format!("loopback_callbacks = true\n{}", writer())).await;
    let path = "/agents/writer/tasks";
    let new = |id: &str, prompt: &str| {
        json!({
            "from": "alice", "taskId": id, "task": {"type": "write", "parameters": {"prompt": prompt}},
            "callback": receiver.url(&format!("/done/{id}")), "streaming": true,
            "streamEndpoint": receiver.url(&format!("/chunks/{id}")), "priority": "high", "timeout": 600_000,
            "metadata": {"k": 1},
        })
    };
    let accepted = json!({"taskId": "t1", "status": "accepted"});
    Exchange::new(post(path, &new("t1", "plan")), 202, accepted, json!({"agentId": "writer"}))
        .check(&world)
        .await;
    ended_task(&world, ALICE, &format!("{path}/t1")).await;
    // The agent reports no progress, and has no plan.
    let task = |id: &str, status: &str, more: Value| {
        let mut task = json!({"taskId": id, "status": status});
        for members in [json!({"createdAt": "<time>", "updatedAt": "<time>"}), more] {
            task.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        }
        task
    };
    let added = |agent: &str, priority: &str, state: &str| {
        json!({
            "agentId": agent, "from": "alice", "owner": "alice", "type": "write", "state": state, "priority": priority,
        })
    };
    let of_writer = |state: &str| {
        let mut added = added("writer", "high", state);
        added["sessionId"] = json!("<id>");
        added
    };
    let result = json!({"text": "<text>", "stopReason": "end_turn"});
    let done = task("t1", "completed", json!({"progress": 100, "result": result, "completedAt": "<time>"}));
    let ended = Exchange::new(get(&format!("{path}/t1")), 200, done.clone(), of_writer("completed"))
        .check(&world)
        .await;
    let page = json!({"tasks": [done], "pagination": {"offset": 0, "limit": 5, "total": 1}});
    let listed = json!({"tasks": [of_writer("completed")]});
    Exchange::new(get(&format!("{path}?offset=0&limit=5")), 200, page, listed).check(&world).await;
    let stream = world.open(&get(&format!("{path}/t1/events"))).await.end().await;
    assert_eq!(events(&stream).last().map(|(name, _, task)| (name.as_str(), task)), Some(("end", &ended)));

    // One that asks, and is cancelled.
    let accepted = json!({"taskId": "t2", "status": "accepted", "estimatedCompletion": "<time>"});
    Exchange::new(post(path, &new("t2", "permission")), 202, accepted, json!({"agentId": "writer"}))
        .check(&world)
        .await;
    let asked = until(async || {
        let task = world.get(ALICE, &format!("{path}/t2")).await.expect(200);
        Some(task).filter(|task| task["awaiting"] == true)
    })
    .await;
    let mut asks = of_writer("input_required");
    asks["awaiting"] = json!(true);
    compare(&asked, task("t2", "processing", json!({})), asks);
    let input = world.get(ALICE, &format!("{path}/t2/input")).await.expect(200);
    let question = json!({"questionId": "<id>", "question": input["questions"][0]["question"], "state": "open", "createdAt": "<time>"});
    compare(&input, json!({"taskId": "t2", "questions": [question], "total": 1}), json!({}));
    let cancel = Call::new("POST", &format!("{path}/t2/cancel")).key(ALICE);
    let mut cancelling = of_writer("cancelling");
    cancelling["cancelling"] = json!(true);
    Exchange::new(cancel, 202, task("t2", "processing", json!({})), cancelling).check(&world).await;
    ended_task(&world, ALICE, &format!("{path}/t2")).await;
    let cancelled = task("t2", "cancelled", json!({"completedAt": "<time>"}));
    Exchange::new(get(&format!("{path}/t2")), 200, cancelled, of_writer("cancelled")).check(&world).await;

    // One that its agent refuses.
    let path = "/agents/remote/tasks";
    let accepted = json!({"taskId": "t3", "status": "accepted"});
    let mut refused = new("t3", "plan");
    refused["priority"] = json!("low");
    let create = || post(path, &refused);
    Exchange::new(create(), 202, accepted, json!({"agentId": "remote"})).check(&world).await;
    let pending = task("t3", "pending", json!({}));
    let added = |state: &str| added("remote", "low", state);
    Exchange::new(get(&format!("{path}/t3")), 200, pending, added("submitted")).check(&world).await;
    let (claimed, lease) = claim_task(&world, "remote").await;
    let mut update = TaskUpdate::new(claimed.key, claimed.version).lease(lease).state(TaskState::Rejected);
    update.error = Some(TaskFailure::new("no_time", "too much to do", true));
    world.apply(StoreChange::UpdateTask(update)).await;
    let error = json!({"code": "no_time", "message": "too much to do", "retryable": true});
    let rejected = json!({"taskId": "t3", "status": "rejected", "error": error});
    Exchange::new(create(), 200, rejected, json!({"agentId": "remote"})).check(&world).await;
    let failed = task("t3", "failed", json!({"error": error, "completedAt": "<time>"}));
    Exchange::new(get(&format!("{path}/t3")), 200, failed, added("rejected")).check(&world).await;

    let body = |path: &str| {
        let post = receiver.received().into_iter().find(|post| post.path == path)?;
        serde_json::from_slice::<Value>(&post.body).ok()
    };
    for (id, end) in [
        ("t1", json!({"taskId": "t1", "status": "completed", "result": result})),
        // It has neither.
        ("t2", json!({"taskId": "t2", "status": "cancelled"})),
        ("t3", json!({"taskId": "t3", "status": "failed", "error": error})),
    ] {
        let path = format!("/done/{id}");
        compare(&until(async || body(&path)).await, end, json!({"agentId": "<text>"}));
    }
    let chunk = until(async || body("/chunks/t1")).await;
    let whole = json!({"chunk": "<text>", "position": 0, "complete": chunk["complete"].as_bool().unwrap()});
    compare(&chunk, whole, json!({}));
    world.stop().await;
}

#[tokio::test]
async fn refusals_are_as_documented() {
    let world = RestWorld::with_remote("").await;
    let messages = "/agents/remote/messages";
    let message = |id: &str, from: &str| json!({"from": from, "messageId": id, "message": {"type": "query", "content": "a"}});
    world.send(&post(messages, &message("m1", "alice"))).await.expect(202);
    let offline = Call::new("POST", "/registry/agents/remote/heartbeat").key(REMOTE);
    world.send(&offline.json(json!({"status": "offline"}))).await.expect(200);
    let mut sync = message("m2", "alice");
    sync["mode"] = json!("sync");
    for (call, status, code, retryable) in [
        (post(messages, &json!({"message": {}})), 400, "invalid_parameter", false),
        (Call::new("GET", "/agents"), 401, "unauthenticated", false),
        (post(messages, &message("m2", "bob")), 403, "not_authorized", false),
        (get("/agents/absent"), 404, "not_found", false),
        (get("/agents/remote/tasks/absent"), 404, "not_found", false),
        (Call::new("GET", &format!("{messages}/m1")).key(BOB), 404, "not_found", false),
        (
            post(messages, &json!({"messageId": "m1", "message": {"type": "inform", "content": "a"}})),
            409,
            "conflict",
            false,
        ),
        (get("/agents").header("x-acp-version", "2.0"), 400, "unsupported_version", false),
        (post(messages, &sync), 503, "unreachable", true),
    ] {
        let refusal = json!({"code": code, "message": "<text>", "retryable": retryable});
        Exchange::new(call, status, refusal, json!({})).check(&world).await;
    }
    world.stop().await;
}
