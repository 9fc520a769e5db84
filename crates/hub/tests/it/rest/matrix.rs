//! Every operation of the description with every caller that it has to refuse.
//!
//! The tests read the routes from the description, so a new route has to refuse the same callers, or to be listed here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::faulty_store::{Faults, FaultyStore};
use crate::rest::description::described;
use crate::rest::hosted::writer;
use crate::rest::world::{
    ADMIN, ALICE, BOB, Call, EXPIRED, REMOTE, RestResponse, RestWorld, STRANGER, events,
};

/// A text in everything of alice.
const SECRET: &str = "zebra";

/// The operations that need no key.
const OPEN: [&str; 2] = ["get_health", "get_ready"];
/// The operations that every principal may use, and that show one without rules nothing.
const LISTS: [&str; 3] = ["list_agents", "list_registry", "list_sessions"];
/// The operations with an agent that every user of the agent may use. They show a user nothing of another one.
const OF_USERS: [&str; 8] = [
    "get_agent",
    "get_capabilities",
    "list_dead_letters",
    "list_messages",
    "send_message",
    "list_tasks",
    "create_task",
    "get_openapi",
];
/// The parameters of paths that name something of one principal.
const OF_OWNERS: [&str; 4] = ["{messageId}", "{taskId}", "{sessionId}", "{principalId}"];

/// Returns a body of the form that a route expects, so that nothing but the check of access can refuse it.
fn body_of(path: &str) -> Value {
    match path {
        path if path.ends_with("/messages") => json!({"message": {"type": "query", "content": "hello"}}),
        path if path.ends_with("/tasks") => json!({"task": {"type": "write"}}),
        path if path.ends_with("/ack") || path.ends_with("/nack") => json!({"lease": "m1-0000000000000001"}),
        path if path.ends_with("/input") => json!({"answer": 1}),
        _ => json!({}),
    }
}

/// An operation of the description.
struct Operation {
    method: String,
    path: String,
    id: String,
    description: Value,
}

impl Operation {
    fn all() -> Vec<Operation> {
        let described = described().into_iter().map(|(method, path, description)| {
            let id = description["operationId"].as_str().expect("an id").to_owned();
            Operation { method, path, id, description }
        });
        described.collect()
    }

    fn is(&self, ids: &[&str]) -> bool {
        ids.contains(&&*self.id)
    }

    /// Creates a request for something that is there, or for something that is not.
    fn call(&self, key: Option<&str>, session: &str, exists: bool, query: &str) -> Call {
        let mut path = self.path.clone();
        for (parameter, there, absent) in [
            ("{agentId}", "remote", "absent"),
            ("{messageId}", "zebra-message", "absent-message"),
            ("{taskId}", "zebra-task", "absent-task"),
            ("{sessionId}", session, "absent-session"),
            ("{principalId}", "alice", "absent-principal"),
        ] {
            path = path.replace(parameter, if exists { there } else { absent });
        }
        assert!(!path.contains('{'), "{path}: what does its parameter name? Add it to the matrix");
        let call = Call::new(&self.method, &format!("{path}{query}"));
        let call =
            if self.description["requestBody"].is_null() { call } else { call.json(body_of(&self.path)) };
        match key {
            Some(key) => call.key(key),
            None => call,
        }
    }

    fn has_query(&self, name: &str) -> bool {
        let parameters = self.description["parameters"].as_array().into_iter().flatten();
        let mut queries = parameters.filter(|parameter| parameter["in"] == "query");
        queries.any(|parameter| parameter["name"] == name)
    }

    /// Checks that a refusal has the form that all have, and that it is described.
    #[track_caller]
    fn expect_refused(&self, response: &RestResponse, caller: &str) {
        let place = format!("{} {} of {caller}", self.method, self.path);
        let code = match response.status {
            401 => "unauthenticated",
            403 => "not_authorized",
            404 => "not_found",
            other => panic!("{place}: {other} is no refusal of access: {response:?}"),
        };
        response.refused(response.status, code);
        let described = &self.description["responses"][response.status.to_string()];
        assert!(described.is_object(), "{place} does not describe {}", response.status);
    }
}

/// Creates a message, a task and, with a hosted agent, a session of alice. Returns the id of the session.
async fn create_objects(world: &RestWorld, is_hosted: bool) -> String {
    world.put(REMOTE, "/registry/agents/remote", r#"{"capabilities": ["translate"]}"#).await.expect(201);
    let message = json!({"messageId": "zebra-message", "message": {"type": "query", "content": SECRET}});
    world.post(ALICE, "/agents/remote/messages", &message).await.expect(202);
    let claimed = world.post_empty(REMOTE, "/agents/remote/messages/claim").await.expect(200);
    let nack = json!({"lease": claimed["messages"][0]["lease"], "requeue": false, "error": SECRET});
    world.post(REMOTE, "/agents/remote/messages/zebra-message/nack", &nack).await.expect(200);
    let task = json!({"taskId": "zebra-task", "task": {"type": SECRET, "parameters": {"prompt": "plan"}}});
    world.post(ALICE, "/agents/remote/tasks", &task).await.expect(202);
    if !is_hosted {
        return "none".to_owned();
    }
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let path = "/agents/writer/tasks/zebra-task";
    let call = Call::new("GET", &format!("{path}/events")).key(ALICE);
    assert_eq!(events(&world.open(&call).await.end().await).last().unwrap().0, "end");
    world.get(ALICE, path).await.expect(200)["sessionId"].as_str().expect("a session").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_needs_a_valid_key() {
    let world = RestWorld::start(&writer()).await;
    let session = create_objects(&world, true).await;
    for operation in Operation::all() {
        let place = format!("{} {}", operation.method, operation.path);
        if operation.is(&OPEN) {
            assert_eq!(operation.description["security"], json!([{}]), "{place}");
            assert_eq!(world.send(&operation.call(None, &session, true, "")).await.status, 200, "{place}");
            continue;
        }
        assert!(operation.description["security"].is_null(), "{place} says that it needs no key");
        for (caller, key, why) in [
            ("nobody", None, "send a key"),
            ("an unknown key", Some("unknown"), "the key is not valid"),
            ("an empty key", Some(""), "the key is not valid"),
            ("an expired key", Some(EXPIRED), "the key is not valid"),
        ] {
            let there = world.send(&operation.call(key, &session, true, "")).await;
            operation.expect_refused(&there, caller);
            assert!(there.status == 401 && there.text.contains(why), "{place} of {caller}: {there:?}");
            assert_eq!(there.header("www-authenticate"), Some("bearer"), "{place}");
            let absent = world.send(&operation.call(key, &session, false, "")).await;
            assert_eq!(there.without_date(), absent.without_date(), "{place} of {caller}");
        }
    }
    // The paths of ACP are not in the description.
    for path in
        ["/acp", "/acp/writer", "/acp/absent", "/attach", "/attach/remote", "/attach/absent", "/absent"]
    {
        for method in ["GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD", "TRACE"] {
            for key in ["unknown", EXPIRED] {
                let refused = world.send(&Call::new(method, path).key(key)).await;
                assert_eq!(refused.status, 401, "{method} {path}: {refused:?}");
            }
            assert_eq!(world.send(&Call::new(method, path)).await.status, 401, "{method} {path}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_without_rules_finds_nothing() {
    let world = RestWorld::start(&writer()).await;
    let session = create_objects(&world, true).await;
    for operation in Operation::all().into_iter().filter(|operation| !operation.is(&OPEN)) {
        let place = format!("{} {}", operation.method, operation.path);
        let there = world.send(&operation.call(Some(STRANGER), &session, true, "")).await;
        assert!(!there.text.contains(SECRET), "{place}: {there:?}");
        if operation.is(&LISTS) {
            assert_eq!(there.expect(200)["pagination"]["total"], 0, "{place}");
        } else if operation.id == "get_openapi" {
            there.expect(200);
        } else {
            operation.expect_refused(&there, "a stranger");
            assert!([403, 404].contains(&there.status), "{place}: {there:?}");
            let absent = world.send(&operation.call(Some(STRANGER), &session, false, "")).await;
            assert_eq!(there.without_date(), absent.without_date(), "{place}");
        }
    }
    for (there, absent) in [("/acp/writer", "/acp/absent"), ("/attach/remote", "/attach/absent")] {
        let initialize =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
        let there = world.post(STRANGER, there, &initialize).await;
        let absent = world.post(STRANGER, absent, &initialize).await;
        assert!([403, 404].contains(&there.status), "{there:?}");
        assert_eq!(there.without_date(), absent.without_date());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_of_another_user_are_as_absent() {
    let world = RestWorld::start(&writer()).await;
    let session = create_objects(&world, true).await;
    let is_described = |operation: &&Operation| !operation.is(&OPEN) && !operation.is(&LISTS);
    for operation in Operation::all().iter().filter(is_described) {
        let place = format!("{} {}", operation.method, operation.path);
        let is_of_owner = OF_OWNERS.iter().any(|parameter| operation.path.contains(parameter));
        let mut queries = vec![String::new()];
        for name in ["owner", "sender"].into_iter().filter(|name| operation.has_query(name)) {
            queries.push(format!("?{name}=alice"));
        }
        for query in queries {
            let there = world.send(&operation.call(Some(BOB), &session, true, &query)).await;
            assert!(!there.text.contains(SECRET), "{place}: {there:?}");
            if operation.is(&OF_USERS) {
                assert!(!is_of_owner, "{place}");
                assert!((200..300).contains(&there.status), "{place}: {there:?}");
                continue;
            }
            operation.expect_refused(&there, "another user");
            let absent = world.send(&operation.call(Some(BOB), &session, false, &query)).await;
            assert_eq!(there.without_date(), absent.without_date(), "{place}{query}");
        }
    }
    // Nothing was changed.
    for path in ["/agents/remote/messages/zebra-message", "/agents/remote/tasks/zebra-task"] {
        world.get(ALICE, path).await.expect(200);
    }
    world.get(ALICE, &format!("/sessions/{session}")).await.expect(200);
    let dead = world.get(ALICE, "/agents/remote/dead-letters").await.expect(200);
    assert_eq!(dead["messages"][0]["messageId"], "zebra-message");
    assert_eq!(world.get(ADMIN, "/agents/remote").await.expect(200)["status"], "online");
    world.stop().await;
}

/// The number of reads of the store stands for the time of a refusal, which a test cannot compare.
#[tokio::test]
async fn a_refusal_reads_as_much_for_absent_as_for_forbidden() {
    let faults = Arc::new(Faults::default());
    let store = Arc::new(FaultyStore::new(faults.clone()));
    let world = RestWorld::start_with("", |settings| settings.backend = Some(store)).await;
    create_objects(&world, false).await;
    let reads = async |call: Call| {
        let before = faults.reads.load(Ordering::SeqCst);
        let response = world.send(&call).await;
        (faults.reads.load(Ordering::SeqCst) - before, response.status)
    };
    for operation in Operation::all().into_iter().filter(|operation| operation.path.contains('{')) {
        for key in [STRANGER, BOB] {
            let (there, status) = reads(operation.call(Some(key), "none", true, "")).await;
            if status != 404 {
                assert!(operation.is(&OF_USERS), "{} {}: {status}", operation.method, operation.path);
                continue;
            }
            let (absent, _) = reads(operation.call(Some(key), "none", false, "")).await;
            assert_eq!(there, absent, "{} {} of {key}", operation.method, operation.path);
        }
    }
    world.stop().await;
}
