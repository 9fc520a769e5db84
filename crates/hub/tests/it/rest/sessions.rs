//! Sessions and their logs: who sees them, pages, streams, and their removal.

use serde_json::{Value, json};

use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, RestWorld, events};

/// A gateway and the session of a task that has ended.
async fn world_with_session() -> (RestWorld, String) {
    let world = RestWorld::start(&writer()).await;
    run_task(&world, "t1", "plan").await;
    let task = world.get(ALICE, "/agents/writer/tasks/t1").await.expect(200);
    let session = task["sessionId"].as_str().expect("a session").to_owned();
    (world, session)
}

/// Runs a task to its end, and returns its events.
async fn run_task(world: &RestWorld, id: &str, prompt: &str) -> Vec<(String, Option<String>, Value)> {
    let task = json!({"taskId": id, "task": {"type": "write", "parameters": {"prompt": prompt}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let call = Call::new("GET", &format!("/agents/writer/tasks/{id}/events")).key(ALICE);
    events(&world.open(&call).await.end().await)
}

/// Reads a log in pages of two records.
async fn all_records(world: &RestWorld, session: &str) -> Vec<Value> {
    let (mut records, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/sessions/{session}/log?after={after}&limit=2");
        let page = world.get(ALICE, &path).await.expect(200);
        let found = page["records"].as_array().unwrap();
        assert!(found.len() <= 2, "{page}");
        let next = page["next"].as_u64().unwrap();
        if found.is_empty() {
            assert_eq!((next, &page["live"]), (after, &json!(false)));
            return records;
        }
        assert_eq!(found.last().unwrap()["number"], next);
        records.extend(found.iter().cloned());
        after = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_read_in_pages_and_as_a_stream() {
    let (world, session) = world_with_session().await;
    let found = world.get(ALICE, &format!("/sessions/{session}")).await.expect(200);
    assert_eq!(found, world.get(ALICE, "/sessions").await.expect(200)["sessions"][0]);
    assert_eq!((&found["sessionId"], &found["agentId"]), (&json!(session), &json!("writer")));
    assert_eq!(found["live"], false);

    let records = all_records(&world, &session).await;
    let numbers: Vec<u64> = records.iter().map(|record| record["number"].as_u64().unwrap()).collect();
    let end = numbers.len() as u64;
    assert_eq!(numbers, (1..=end).collect::<Vec<_>>());
    let events_of_hub: Vec<&Value> = records
        .iter()
        .map(|record| &record["record"]["hub"]["event"])
        .filter(|event| !event.is_null())
        .collect();
    assert!(events_of_hub.contains(&&json!("prompt")) && events_of_hub.contains(&&json!("answer")));

    let path = format!("/sessions/{session}/log");
    let stream = |path: &str| Call::new("GET", path).key(ALICE).header("accept", "text/event-stream");
    let streamed = events(&world.open(&stream(&path)).await.end().await);
    let (name, id, last) = streamed.last().unwrap();
    assert_eq!((name.as_str(), id, last), ("end", &Some(end.to_string()), &json!({"number": end})));
    let data: Vec<&Value> = streamed[..streamed.len() - 1].iter().map(|(_, _, data)| data).collect();
    assert_eq!(data, records.iter().collect::<Vec<_>>());
    // Behind a position, which `Last-Event-ID` replaces.
    let rest = events(&world.open(&stream(&format!("{path}?after={}", end - 1))).await.end().await);
    assert_eq!(rest.len(), 2, "{rest:?}");
    let resumed = stream(&path).header("last-event-id", &(end - 2).to_string());
    assert_eq!(events(&world.open(&resumed).await.end().await).len(), 3);
    let complete = stream(&path).header("last-event-id", &end.to_string());
    assert_eq!(world.send(&complete).await.status, 204);
    world.send(&stream(&path).header("last-event-id", "x")).await.refused(400, "invalid_parameter");
    world.get(ALICE, &format!("{path}?after={}", end + 9)).await.refused(410, "expired");
    world.get(ALICE, &format!("{path}?after=x")).await.refused(400, "invalid_parameter");
    world.stop().await;
}

/// Starts a task whose agent waits for an answer, and returns the id of its session.
async fn world_with_question() -> (RestWorld, String) {
    let world = RestWorld::start(&writer()).await;
    let task = json!({"taskId": "t1", "task": {"type": "ask", "parameters": {"prompt": "permission"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let mut running = world.open(&Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE)).await;
    running.until("input_required").await;
    let listed = world.get(ALICE, "/sessions").await.expect(200);
    assert_eq!(listed["sessions"][0]["live"], true);
    let session = listed["sessions"][0]["sessionId"].as_str().unwrap().to_owned();
    (world, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_follows_a_session_that_runs() {
    let (world, session) = world_with_question().await;
    let path = format!("/sessions/{session}/log");
    assert_eq!(world.get(ALICE, &path).await.expect(200)["live"], true);
    let mut stream =
        world.open(&Call::new("GET", &path).key(ALICE).header("accept", "text/event-stream")).await;
    stream.until("session/request_permission").await;
    let answer = json!({"answer": {"optionId": "allow-once"}});
    world.post(ALICE, "/agents/writer/tasks/t1/input", &answer).await.expect(200);
    let streamed = events(&stream.end().await);
    assert_eq!(streamed.last().unwrap().0, "end");
    assert!(streamed.iter().any(|(_, _, data)| data["record"]["hub"]["event"] == "answered"), "{streamed:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_there_for_its_owner_alone() {
    let (world, session) = world_with_session().await;
    for suffix in ["", "/log"] {
        for key in [BOB, ADMIN] {
            let foreign = world.get(key, &format!("/sessions/{session}{suffix}")).await;
            foreign.refused(404, "not_found");
            assert_eq!(foreign.text, world.get(key, &format!("/sessions/absent{suffix}")).await.text);
        }
    }
    world.delete(BOB, &format!("/sessions/{session}")).await.refused(404, "not_found");
    world.delete(ALICE, &format!("/sessions/{session}")).await.expect(204);
    world.delete(ALICE, &format!("/sessions/{session}")).await.refused(404, "not_found");
    world.get(ALICE, &format!("/sessions/{session}/log")).await.refused(404, "not_found");
    assert_eq!(world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_runs_is_erased() {
    let (world, session) = world_with_question().await;
    let mut running = world.open(&Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE)).await;
    running.until("input_required").await;
    world.delete(ALICE, &format!("/sessions/{session}")).await.expect(204);
    // The task fails with its session.
    let streamed = events(&running.end().await);
    let (name, _, end) = streamed.last().unwrap();
    assert_eq!((name.as_str(), &end["status"]), ("end", &json!("failed")), "{end}");
    world.get(ALICE, &format!("/sessions/{session}")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_of_a_principal_has_its_sessions() {
    let (world, session) = world_with_session().await;
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    run_task(&world, "t2", &format!("echo {secret}")).await;
    let export = world.get(ALICE, "/principals/alice/data").await;
    let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().filter(|line| line["session"].is_object()).count(), 2);
    let records: Vec<Value> = lines
        .iter()
        .map(|line| &line["sessionRecord"])
        .filter(|record| record["sessionId"] == session.as_str())
        .map(|record| json!({"number": record["number"], "record": record["record"]}))
        .collect();
    assert_eq!(records, all_records(&world, &session).await);
    // An administrator is no party of the sessions.
    assert!(export.text.lines().any(|line| line.contains("sessionRecord") && line.contains(secret)));
    let redacted = world.get(ADMIN, "/principals/alice/data").await.text;
    assert!(redacted.lines().any(|line| line.contains("sessionRecord")));
    assert!(!redacted.lines().any(|line| line.contains("sessionRecord") && line.contains(secret)));

    world.get(BOB, "/principals/alice/data").await.refused(404, "not_found");
    world.delete(ADMIN, "/principals/alice/data").await.expect(200);
    assert_eq!(world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"], 0);
    world.get(ALICE, &format!("/sessions/{session}")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_a_task_have_the_updates_of_its_session() {
    let world = RestWorld::start(&writer()).await;
    let all = run_task(&world, "t1", "plan").await;
    let updates: Vec<_> = all.iter().filter(|(name, ..)| name == "update").collect();
    let kinds: Vec<&Value> = updates.iter().map(|(_, _, data)| &data["update"]["sessionUpdate"]).collect();
    assert!(kinds.contains(&&json!("plan")) && kinds.contains(&&json!("agent_message_chunk")), "{kinds:?}");
    assert_eq!(all.last().unwrap().0, "end");

    // A client that connects again receives what followed.
    let (_, id, first) = updates[0];
    let call = Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE);
    let call = call.header("last-event-id", id.as_deref().unwrap());
    let resumed = events(&world.open(&call).await.end().await);
    let later: Vec<_> =
        resumed.iter().filter(|(name, ..)| name == "update").map(|(_, _, data)| data).collect();
    assert_eq!(later, updates[1..].iter().map(|(_, _, data)| data).collect::<Vec<_>>());
    assert_eq!((&first["taskId"], resumed.last()), (&json!("t1"), all.last()));
    world.stop().await;
}
