//! A side with more to do than it can, and handlers that do not behave: pings are answered, slots come
//! back, and whatever was begun has an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use duologue_agent::exchange::envelope::*;
use duologue_agent::{Exchange, Server};
use duologue_rpc::Limits;
use serde_json::{Value, json};

use super::pair::{Heard, Quiet};
use duologue_test_support::{ScriptedPeer, Wire};

/// Follows its instructions, and counts the capability requests.
#[derive(Clone, Default)]
struct Clerk {
    heard: Heard,
    asked: Arc<AtomicU32>,
}

/// A value inside a handler that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

impl EnvelopeHandler for Clerk {
    fn capabilities(&self) -> Capabilities {
        let asked = self.asked.fetch_add(1, Relaxed);
        Capabilities::new(format!("clerk {asked}")).max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.question.as_str() {
            "large" => Ok(QueryResponse::new("x".repeat(17 << 20))),
            _ => std::future::pending().await,
        }
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match task.task.as_str() {
            "think" => std::future::pending().await,
            "refuse" => {
                let task = task.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    task.progress(json!("late")).await
                });
                Err(EnvelopeError::not_authorized("no"))
            }
            _ => Ok(Ack::new(true)),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let done = DelegationOutcome::new(OutcomeStatus::Completed);
        match task.task.as_str() {
            "bomb" => {
                let _bomb = Bomb;
                std::future::pending().await
            }
            "late news" => {
                let fill = json!("x".repeat(9 << 20));
                task.peer.notify("fill", fill).await.map_err(|error| error.fault())?;
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    task.progress(json!("late")).await
                });
                Ok(done)
            }
            _ => {
                self.heard.add("done");
                Ok(done.outcome("x".repeat(10_000)))
            }
        }
    }
}

async fn desk(correspondent: impl EnvelopeHandler, limits: Limits) -> (ScriptedPeer, String) {
    let (transport, mut client) = Wire::Memory.scripted();
    let exchange = Exchange::new().agent_id("c1e4").envelope_handler(correspondent);
    tokio::spawn(Server::new(Quiet).exchange(exchange).limits(limits).serve(transport));
    client.initialize(json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}})).await;
    let session = client.new_session().await;
    (client, session)
}

fn envelope(session: &str, id: impl std::fmt::Display, kind: &str, payload: Value) -> Value {
    let id = id.to_string();
    let envelope = json!({"id": id, "from": "ab", "to": "c1e4", "ts": 1, "kind": kind, "payload": payload});
    json!({"sessionId": session, "envelope": envelope})
}

fn code(answer: &Value) -> &Value {
    &answer["error"]["data"]["envelope"]["payload"]["code"]
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_from_what_is_known() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    for (asked, name) in [(None, "clerk 0"), (Some("discover"), "clerk 1"), (Some("delegate"), "clerk 2")] {
        if let Some(kind) = asked {
            let asked = envelope(&session, kind, kind, json!({"task": "x", "report_back": false}));
            client.request(&format!("_session/{kind}"), asked).await;
        }
        let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
        assert_eq!(pong["result"]["envelope"]["payload"]["agent_name"], name, "{pong}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_correspondent_that_panics_over_what_it_can_do_is_answered_for() {
    struct Lost;
    impl EnvelopeHandler for Lost {
        fn capabilities(&self) -> Capabilities {
            std::panic::resume_unwind(Box::new(()))
        }
    }
    let (mut client, session) = desk(Lost, Limits::default()).await;
    let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    assert_eq!(pong["result"]["envelope"]["kind"], "pong", "{pong}");
    for kind in ["discover", "delegate"] {
        let asked = envelope(&session, kind, kind, json!({"task": "x"}));
        let answer = client.request(&format!("_session/{kind}"), asked).await;
        assert_eq!(*code(&answer), "internal", "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn questions_leave_room_for_pings_and_cancellations() {
    let mut limits = Limits::default();
    limits.in_flight = 32;
    let (mut client, session) = desk(Clerk::default(), limits).await;
    let query = |number: u32| envelope(&session, number, "query", json!({"question": "think"}));
    let mut waiting = Vec::new();
    for (many, status) in [(0, "idle"), (1, "busy"), (30, "overloaded")] {
        while waiting.len() < many {
            waiting.push(client.send_request("_session/query", query(waiting.len() as u32)).await);
        }
        let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
        assert_eq!(pong["result"]["envelope"]["payload"]["status"], status, "{pong}");
    }
    let refused = client.request("_session/query", query(30)).await;
    assert_eq!(*code(&refused), "overloaded", "{refused}");
    let mut cancel = envelope(&session, "c", "cancel", json!({"reason": ""}));
    cancel["envelope"]["ref"] = json!("nothing");
    let ack = client.request("_session/cancel", cancel).await;
    assert_eq!(ack["result"]["envelope"]["payload"]["accepted"], false, "{ack}");
    for id in &waiting {
        client.notify("$/cancel_request", json!({ "requestId": id })).await;
    }
    for _ in waiting {
        assert_eq!(*code(&client.next_message().await), "cancelled");
    }
    let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    assert_eq!(pong["result"]["envelope"]["payload"]["status"], "idle", "{pong}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_refused_in_an_envelope() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let answer = client
        .request("_session/query", envelope(&session, "q", "query", json!({"question": "large"})))
        .await;
    assert_eq!(
        (code(&answer), &answer["error"]["data"]["envelope"]["ref"]),
        (&json!("internal"), &json!("q"))
    );
    assert!(answer["error"]["message"].as_str().unwrap().contains("Limits::frame_bytes"), "{answer}");
}

/// A peer that does not read gets no more work done, as its results would have to be buffered.
#[tokio::test(start_paused = true)]
async fn a_task_has_its_slot_until_its_result_can_leave() {
    let clerk = Clerk::default();
    let mut limits = Limits::default();
    limits.output_bytes = 100_000;
    let (mut client, session) = desk(clerk.clone(), limits).await;
    for number in 0..300 {
        client
            .send_request("_session/delegate", envelope(&session, number, "delegate", json!({"task": "x"})))
            .await;
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let done = clerk.heard.all().len();
    // As many as the pipe and the output buffer take, and the waiting one.
    assert!((1..40).contains(&done), "{done} tasks were done for nobody");
    let mut ends = 0;
    while ends < done {
        ends += usize::from(client.next_message().await["method"] == "_session/result");
    }
    client
        .send_request("_session/delegate", envelope(&session, "again", "delegate", json!({"task": "x"})))
        .await;
    while client.next_message().await["params"]["envelope"]["ref"] != "again" {}
}

/// The slot of an ended task is taken until its result has room in the output.
#[tokio::test(start_paused = true)]
async fn no_task_is_accepted_while_a_result_waits_for_room() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let delegate = |id: &str, task: &str| envelope(&session, id, "delegate", json!({"task": task}));
    client.send_request("_session/delegate", delegate("full", "late news")).await;
    // The task has ended. Its notification fills the output, which nobody reads.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let next = client.send_request("_session/delegate", delegate("next", "x")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (mut refused, mut ended) = (None, false);
    while refused.is_none() || !ended {
        let message = client.next_message().await;
        ended |= message["method"] == "_session/result";
        if message["id"] == json!(next) {
            refused = Some(code(&message).clone());
        }
    }
    assert_eq!(refused, Some(json!("overloaded")));
    let ack = client.request("_session/delegate", delegate("next", "x")).await;
    assert_eq!(ack["result"]["envelope"]["payload"]["accepted"], true, "{ack}");
}

/// The ends of repeated delegations wait until the peer reads.
#[tokio::test(start_paused = true)]
async fn repeated_ends_are_sent_one_at_a_time() {
    let mut limits = Limits::default();
    limits.output_bytes = 100_000;
    let (mut client, session) = desk(Clerk::default(), limits).await;
    let task = envelope(&session, "d", "delegate", json!({"task": "x"}));
    client.request("_session/delegate", task.clone()).await;
    client.expect("_session/result").await;
    for _ in 0..300 {
        client.send_request("_session/delegate", task.clone()).await;
        tokio::task::yield_now().await;
    }
    let ping = client.send_request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    let (mut before, mut ends, mut acks) = (None, 0, 0);
    while before.is_none() || ends < 300 {
        let message = client.next_message().await;
        ends += usize::from(message["method"] == "_session/result");
        acks += usize::from(message["result"]["envelope"]["kind"] == "ack");
        if message["id"] == json!(ping) {
            before = Some(ends);
        }
    }
    assert!(before.is_some_and(|before| before < 60), "{before:?} ends were buffered");
    assert_eq!(acks, 300);
}

#[tokio::test(start_paused = true)]
async fn no_progress_comes_behind_the_end() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    client
        .send_request("_session/delegate", envelope(&session, "d", "delegate", json!({"task": "late news"})))
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(client.next_message().await["result"]["envelope"]["kind"], "ack");
    assert_eq!(client.expect("_session/notify").await["params"]["envelope"]["payload"]["topic"], "fill");
    client.expect("_session/result").await;
    client.probe().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_task_sends_no_progress() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let ack = client
        .request("_session/delegate", envelope(&session, "d", "delegate", json!({"task": "refuse"})))
        .await;
    assert_eq!(ack["result"]["envelope"]["payload"]["accepted"], false, "{ack}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.probe().await;
}

/// A cancellation ends all copies of a delegation. Only after a withdrawal does the next copy run.
#[tokio::test(start_paused = true)]
async fn a_cancelled_delegation_does_not_run_for_its_copy() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let task = envelope(&session, "d", "delegate", json!({"task": "think"}));
    let first = client.send_request("_session/delegate", task.clone()).await;
    let again = client.send_request("_session/delegate", task).await;
    let mut cancel = envelope(&session, "c", "cancel", json!({"reason": ""}));
    cancel["envelope"]["ref"] = json!("d");
    let ack = client.request("_session/cancel", cancel).await;
    assert_eq!(ack["result"]["envelope"]["payload"]["accepted"], true, "{ack}");
    let mut answered = Vec::new();
    for _ in 0..2 {
        let answer = client.next_message().await;
        assert_eq!(*code(&answer), "cancelled", "{answer}");
        answered.push(answer["id"].clone());
    }
    assert!(answered.contains(&json!(first)) && answered.contains(&json!(again)));
    let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    assert_eq!(pong["result"]["envelope"]["payload"]["active_tasks"], 0, "{pong}");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_duplicate_is_answered() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let task = envelope(&session, "d", "delegate", json!({"task": "think"}));
    client.send_request("_session/delegate", task.clone()).await;
    let again = client.send_request("_session/delegate", task).await;
    client.notify("$/cancel_request", json!({ "requestId": again })).await;
    let answer = client.next_message().await;
    assert_eq!((&answer["id"], code(&answer)), (&json!(again), &json!("cancelled")));
    let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    assert_eq!(pong["result"]["envelope"]["payload"]["active_tasks"], 1, "the first one is not withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_even_if_it_panics_when_it_is_given_up() {
    let (mut client, session) = desk(Clerk::default(), Limits::default()).await;
    let task = envelope(&session, "d", "delegate", json!({"task": "bomb", "deadline_ms": 10}));
    client.request("_session/delegate", task).await;
    let end = client.expect("_session/error").await;
    assert_eq!(end["params"]["envelope"]["ref"], "d");
    let pong = client.request("_session/ping", envelope(&session, "p", "ping", json!({}))).await;
    assert_eq!(pong["result"]["envelope"]["payload"]["status"], "idle", "{pong}");
}
