//! Operation: metrics, readiness, draining, audit lines, events and trace contexts.

use duologue_client::Command;
use duologue_hub::gateway::RefusalCode;
use duologue_hub::{Hub, HubSettings, ServerOptions};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::faulty_store::{Faults, FaultyStore};
use crate::receiver::{Receiver, accept};
use crate::remote_agents::{until, until_true};
use crate::rest::hosted::writer;
use crate::rest::recorder::{record, recorded, recorded_line};
use crate::rest::world::{ADMIN, ALICE, BOB, Call, REMOTE, RestWorld, STRANGER, events};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A sample of a metric: its labels and its value.
type Sample = (BTreeMap<String, String>, f64);

/// Reads the text format, by the names of the samples.
fn samples(text: &str) -> BTreeMap<String, Vec<Sample>> {
    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let labels = labels.trim_end_matches('}').split(',').filter_map(|label| {
            let (label, value) = label.split_once('=')?;
            Some((label.to_owned(), value.trim_matches('"').to_owned()))
        });
        samples
            .entry(name.to_owned())
            .or_default()
            .push((labels.collect(), value.parse().expect("a number")));
    }
    samples
}

async fn metrics(world: &RestWorld) -> BTreeMap<String, Vec<Sample>> {
    let response = world.get(ADMIN, "/metrics").await;
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );
    samples(&response.text)
}

/// Returns the value of the sample with these labels.
fn value(samples: &BTreeMap<String, Vec<Sample>>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let all = samples.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", samples.keys()));
    let has_labels = |sample: &&Sample| {
        labels.iter().all(|(label, value)| sample.0.get(*label).is_some_and(|it| it == value))
    };
    all.iter().find(has_labels).map_or(0.0, |sample| sample.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_bounded_labels_and_nothing_of_a_principal() {
    let world = RestWorld::start(&writer()).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
    let secret = "zebra";
    let task = json!({"taskId": format!("{secret}-task"), "task": {"type": format!("{secret}-type"), "parameters": {"prompt": "plan"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    world.post(ALICE, "/agents/remote/tasks", &task).await.expect(202);
    let call = Call::new("GET", &format!("/agents/writer/tasks/{secret}-task/events")).key(ALICE);
    assert_eq!(events(&world.open(&call).await.end().await).last().unwrap().0, "end");
    let message = json!({"messageId": format!("{secret}-message"), "priority": "critical", "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, "/agents/remote/messages", &message).await.expect(202);
    world.get(BOB, &format!("/agents/{secret}/tasks")).await.refused(404, "not_found");
    world.get(secret, "/agents").await.refused(401, "unauthenticated");

    for key in [ALICE, STRANGER, REMOTE] {
        world.get(key, "/metrics").await.refused(403, "not_authorized");
    }
    let all = metrics(&world).await;
    for (name, labels, at_least) in [
        ("duologue_tasks", &[("agent", "writer"), ("state", "completed")][..], 1.0),
        ("duologue_tasks", &[("agent", "other"), ("state", "submitted")], 1.0),
        ("duologue_queue_entries", &[("queue", "messages"), ("agent", "other"), ("band", "3")], 1.0),
        ("duologue_queue_entries", &[("queue", "tasks"), ("agent", "other"), ("band", "1")], 1.0),
        ("duologue_log_bytes", &[("agent", "writer")], 1.0),
        ("duologue_refusals_total", &[("code", "not_found")], 1.0),
        ("duologue_refusals_total", &[("code", "unauthenticated")], 1.0),
        ("duologue_refusals_total", &[("code", "not_authorized")], 3.0),
        ("duologue_request_seconds_count", &[("operation", "create_task")], 2.0),
        ("duologue_store_batch_seconds_count", &[], 1.0),
    ] {
        assert!(value(&all, name, labels) >= at_least, "{name} {labels:?}: {all:?}");
    }
    for name in ["duologue_sessions", "duologue_connections", "duologue_processes", "duologue_draining"] {
        assert!(all.contains_key(name), "{name}: {:?}", all.keys());
    }

    // Every label has one of a few values.
    let description: Value = serde_json::from_str(&duologue_hub::gateway::openapi_json()).unwrap();
    let paths = description["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let operations: BTreeSet<String> =
        operations.map(|operation| operation["operationId"].as_str().unwrap().to_owned()).collect();
    let codes = [RefusalCode::NotFound, RefusalCode::Unauthenticated, RefusalCode::NotAuthorized];
    for (label, value) in all.values().flatten().flat_map(|(labels, _)| labels) {
        let is_known = match label.as_str() {
            "agent" => ["writer", "other"].contains(&value.as_str()),
            "state" => ["submitted", "working", "completed", "pending", "delivered", "given_up"]
                .contains(&value.as_str()),
            "queue" => ["messages", "tasks"].contains(&value.as_str()),
            "band" => ["0", "1", "2", "3"].contains(&value.as_str()),
            "code" => codes.iter().any(|code| code.as_str() == value),
            "operation" => operations.contains(value),
            "outcome" => ["accepted", "rejected", "failed"].contains(&value.as_str()),
            "le" => value == "+Inf" || value.parse::<f64>().is_ok(),
            _ => false,
        };
        assert!(is_known, "{label}={value}");
    }
    let text = world.get(ADMIN, "/metrics").await.text;
    for part in [secret, "alice", "bob", "stranger", "token", "session_id", "/tmp"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_rule_for_all_agents_gives_the_metrics() {
    let world = RestWorld::start("").await;
    world.get(ALICE, "/metrics").await.refused(403, "not_authorized");
    world.stop().await;
    let rule = "[[rules]]\nrole = \"user\"\nactions = [\"operate\"]\nagents = [\"*\"]";
    let world = RestWorld::start(rule).await;
    assert_eq!(world.get(ALICE, "/metrics").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_server_whose_store_fails_is_not_ready() {
    let faults = Arc::new(Faults::default());
    let store = Arc::new(FaultyStore::new(faults.clone()));
    let world = RestWorld::start_with("", |settings| settings.backend = Some(store)).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
    assert_eq!(world.get("", "/ready").await.text, "ready");
    faults.apply.store(true, Ordering::SeqCst);
    let response = async || Some(world.get("", "/ready").await).filter(|response| response.status != 200);
    let why = until(response).await.refused(500, "internal");
    assert!(!why.contains("a fault of a test"), "{why}");
    let task = json!({"task": {"type": "a"}});
    world.post(ALICE, "/agents/remote/tasks", &task).await.refused(500, "internal");
    assert_eq!(world.get("", "/health").await.text, "ok");
    faults.apply.store(false, Ordering::SeqCst);
    until_true(async || world.get("", "/ready").await.status == 200).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_works_on_as_many_tasks_as_it_may() {
    // Half of the places is for other principals.
    let agent = writer().replace("trust =", "max_tasks = 4\ntrust =");
    let world = RestWorld::start(&agent).await;
    let tasks = "/agents/writer/tasks";
    for id in ["t1", "t2", "t3"] {
        let task = json!({"taskId": id, "task": {"type": "wait", "parameters": {"prompt": "cancel"}}});
        world.post(ALICE, tasks, &task).await.expect(202);
    }
    let states = async || {
        let mut states = Vec::new();
        for id in ["t1", "t2", "t3"] {
            states.push(world.get(ALICE, &format!("{tasks}/{id}")).await.expect(200)["state"].clone());
        }
        states
    };
    let two = [json!("working"), json!("working"), json!("submitted")];
    until_true(async || states().await == two).await;
    let all = metrics(&world).await;
    assert_eq!(value(&all, "duologue_tasks", &[("agent", "writer"), ("state", "working")]), 2.0);
    // Their processes start after the change of their states.
    until_true(async || value(&metrics(&world).await, "duologue_processes", &[("agent", "writer")]) >= 2.0)
        .await;
    // A place that is free again is used.
    world.post_empty(ALICE, &format!("{tasks}/t1/cancel")).await;
    until_true(async || states().await[2] == "working").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_works_on_as_many_messages_as_it_may() {
    // Half of the places is for other principals.
    let agent = writer().replace("trust =", "max_messages = 4\ntrust =");
    let world = RestWorld::start(&agent).await;
    let messages = "/agents/writer/messages";
    for id in ["m1", "m2", "m3"] {
        let message = json!({"messageId": id, "message": {"type": "query", "content": "cancel"}});
        world.post(ALICE, messages, &message).await.expect(202);
    }
    let found = async |id: &str| {
        let message = world.get(ALICE, &format!("{messages}/{id}")).await.expect(200);
        (message["status"].clone(), message["attempts"].clone())
    };
    let begun = (json!("processing"), json!(1));
    for id in ["m1", "m2"] {
        until(async || Some(found(id).await).filter(|found| *found == begun)).await;
    }
    assert_eq!(found("m3").await, (json!("received"), json!(0)));
    world.stop().await;
}

#[tokio::test]
async fn refused_access_is_an_audit_line() {
    let world = RestWorld::with_remote("").await;
    let agent = "audit%0Aevent%3Dforged%1b%5B31m";
    world.get(BOB, &format!("/agents/{agent}/tasks/t-1")).await.refused(404, "not_found");
    world.get("wrong", "/agents/audit-401").await.refused(401, "unauthenticated");
    let from = json!({"from": "bob", "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, "/agents/remote/messages", &from).await.refused(403, "not_authorized");
    let lines = recorded("duologue::audit");
    let of = |part: &str| {
        lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {lines:?}"))
    };
    let found = of("/agents/audit%0A");
    for part in [r#"event="access_refused""#, r#"principal="bob""#, r#"method="GET""#, r#"code="not_found""#]
    {
        assert!(found.contains(part), "{found}");
    }
    assert!(!of("/agents/audit-401").contains("principal"), "nobody has sent it");
    assert!(
        lines.iter().any(|line| line.contains(r#"principal="alice""#) && line.contains("not_authorized"))
    );
    world.stop().await;
}

#[tokio::test]
async fn a_connection_above_the_limit_is_an_audit_line_with_its_peer() {
    in_time(async {
        record();
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(HubSettings::new(|| Command::new("false"), data.path())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = ServerOptions::default();
        (options.sockets, options.requests, options.strangers) = (0, 0, 1);
        options.token = Some("secret".into());
        let clients = async {
            let _first = TcpStream::connect(address).await.unwrap();
            let mut above = TcpStream::connect(address).await.unwrap();
            let peer = above.local_addr().unwrap();
            assert_eq!(above.read(&mut [0]).await.unwrap_or_default(), 0, "it is closed");
            let line =
                format!(r#"event="connection_refused" peer="{peer}" reason="connection limit reached (1);"#);
            let lines = recorded("duologue::audit");
            assert!(lines.iter().any(|found| found.contains(&line)), "{lines:?}");
        };
        hub.serve_http(listener, options, clients).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_question_is_an_audit_line() {
    let world = RestWorld::start(&writer()).await;
    let tasks = "/agents/writer/tasks";
    for (id, kind, allowed) in [("audit-yes", "allow_once", true), ("audit-no", "reject_once", false)] {
        let task = json!({"taskId": id, "task": {"type": "a", "parameters": {"prompt": "permission"}}});
        world.post(ALICE, tasks, &task).await.expect(202);
        let input = format!("{tasks}/{id}/input");
        let question = until(async || {
            let open = world.get(ALICE, &input).await.expect(200);
            open["questions"].get(0).cloned()
        })
        .await;
        let options = question["question"]["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind).expect("an option");
        let answer =
            json!({"questionId": question["questionId"], "answer": {"optionId": option["optionId"]}});
        world.post(ALICE, &input, &answer).await.expect(200);
        let session = world.get(ALICE, &format!("{tasks}/{id}")).await.expect(200)["sessionId"].clone();
        // One line for the request, and one of the session that the agent waits in.
        let parts = [
            r#"event="question_answered" principal="alice" agent="writer""#.to_owned(),
            format!("option=\"{kind}\" allowed={allowed}"),
        ];
        for place in [format!("task=\"{id}\""), format!("session={session} question")] {
            recorded_line("duologue::audit", &[&parts[..], &[place]].concat()).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_and_tasks_are_events() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::start(&format!("loopback_callbacks = true\n{}", writer())).await;
    let odd = "event-1\u{202e}";
    let message = json!({"messageId": odd, "mode": "sync", "message": {"type": "query", "content": "hello"}});
    world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
    let task = json!({
        "taskId": "event-2", "task": {"type": "a", "parameters": {"prompt": "plan"}}, "streamEndpoint": receiver.url("/c"),
    });
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let call = Call::new("GET", "/agents/writer/tasks/event-2/events").key(ALICE);
    world.open(&call).await.end().await;
    for parts in [
        ["acp_message_received", r#"principal="alice" agent="writer" message_id="event-1\u{202e}""#],
        ["acp_message_sent", r#"agent="writer" message_id="event-1\u{202e}" attempt=1"#],
        ["acp_task_created", r#"principal="alice" agent="writer" task="event-2""#],
        ["acp_stream_chunk", r#"agent="writer" task="event-2" position=0"#],
        ["acp_stream_chunk", r#"complete=true"#],
        ["acp_task_completed", r#"agent="writer" task="event-2" state="completed""#],
    ] {
        recorded_line("duologue::events", &parts).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_context_reaches_the_session_and_the_callback() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::start(&format!("loopback_callbacks = true\n{}", writer())).await;
    let tasks = "/agents/writer/tasks";
    let odd = [
        "",
        "00-0-0-0",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    let all = odd.into_iter().chain([TRACE]);
    let count = all.clone().count();
    for (number, trace) in all.enumerate() {
        let task = json!({
            "taskId": format!("t{number}"), "task": {"type": "a", "parameters": {"prompt": "plan"}},
            "callback": receiver.url(&format!("/{number}")),
        });
        let call = Call::new("POST", tasks).key(ALICE).json(&task).header("traceparent", trace);
        world.send(&call).await.expect(202);
    }
    until_true(async || receiver.received().len() >= count).await;
    for post in receiver.received() {
        let number: usize = post.path.trim_start_matches('/').parse().unwrap();
        let trace = post.headers.get("traceparent").map(|trace| trace.to_str().unwrap());
        assert_eq!(trace, (number == odd.len()).then_some(TRACE), "{number}");
        // The log has the messages to the agent.
        let task = world.get(ALICE, &format!("{tasks}/t{number}")).await.expect(200);
        let log = world.log_of("writer", task["sessionId"].as_str().unwrap());
        let metas: Vec<_> = log.lines().filter(|line| line.contains("traceparent")).collect();
        assert_eq!(metas.len() >= 2, number == odd.len(), "{number}: {metas:?}");
        assert!(metas.iter().all(|line| line.contains(TRACE)), "{metas:?}");
    }

    // That of a message is kept, and another one makes no other message of it.
    let message =
        json!({"messageId": "m1", "mode": "sync", "message": {"type": "query", "content": "hello"}});
    let call = || Call::new("POST", "/agents/writer/messages").key(ALICE).json(&message);
    world.send(&call().header("traceparent", TRACE)).await.expect(200);
    world.send(&call()).await.expect(200);
    let export = world.get(ALICE, "/principals/alice/data").await.text;
    let kept = export.lines().find(|line| line.contains("\"m1\"")).expect("the message");
    assert!(kept.contains(TRACE), "{kept}");
    world.stop().await;
}
