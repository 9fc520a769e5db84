//! The parts of a message besides its payload: `_meta`, trace contexts, ids and attachments.

use std::sync::Arc;
use std::time::Duration;

use duologue_agent::Server;
use duologue_client::exchange::envelope::*;
use duologue_client::exchange::{Error, Exchange, PeerAgent};
use duologue_client::schema::{Meta, TraceContext};
use duologue_test_support::Wire;
use serde_json::json;

use super::pair::{Heard, Quiet};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Records the `_meta` of each message, and answers with one of its own.
struct Echo(Heard);

impl Echo {
    fn add(&self, kind: &str, about: Option<&EnvelopeId>, meta: Option<&Meta>) {
        let about = about.map(|about| format!(" re {about}")).unwrap_or_default();
        let thread = meta.and_then(|meta| meta.get::<String>("thread"));
        let trace = meta.and_then(Meta::trace_context).map(|trace| trace.parent_id().to_owned());
        self.0.add(format!("{kind}{about} {thread:?} {trace:?}"));
    }
}

fn answer(text: &str) -> Meta {
    Meta::from_iter([("answer", text)])
}

impl EnvelopeHandler for Echo {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("echo").max_concurrent_tasks(2)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        self.add("query", query.envelope.reference.as_ref(), query.meta());
        assert_eq!(query.session_id().map(|id| id.as_str()), Some("memory"));
        query.set_answer_meta(answer("query"));
        match query.question.as_str() {
            // The trace goes on by itself through the peer of the message.
            "ask back" => Ok(query.peer.query("and you?").await?),
            "fail" => Err(EnvelopeError::internal("no")),
            _ => Ok(QueryResponse::new(query.envelope.id.as_str()).attachments(query.attachments.clone())),
        }
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        self.add("accept", None, task.meta());
        task.set_answer_meta(answer("ack"));
        Ok(Ack::new(true))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        if task.task == "wait" {
            task.cancelled().await;
        }
        if task.task == "much" {
            for step in 0..5_000 {
                task.output(json!(step)).await?;
            }
            task.output("end").last().await?;
        }
        if task.task == "stream" {
            task.output("Once ").await?;
            task.output(json!(["upon"])).attachment(Attachment::new("a/b")).meta(thread("o")).last().await?;
            task.output("too late").await?;
        }
        task.set_answer_meta(answer("result"));
        Ok(DelegationOutcome::new(OutcomeStatus::Completed)
            .outcome(task.task.as_str())
            .attachments(task.attachments.clone()))
    }

    async fn cancel(&self, cancel: Received<Cancel>, _: &ReceivedTask) -> Result<(), EnvelopeError> {
        self.add(&format!("cancel {:?}", cancel.reason), cancel.envelope.reference.as_ref(), cancel.meta());
        Ok(())
    }

    async fn notify(&self, news: Received<Notify>) {
        let kind = format!("notify {} {}", news.topic, news.attachments.len());
        self.add(&kind, news.envelope.reference.as_ref(), news.meta());
    }

    async fn result(&self, result: Received<DelegationOutcome>) {
        self.add(&format!("result {}", result.outcome), result.envelope.reference.as_ref(), result.meta());
    }

    async fn error(&self, error: Received<EnvelopeError>) {
        self.add(&format!("error {}", *error), error.envelope.reference.as_ref(), error.meta());
    }
}

/// Connects two sides in memory. The handlers are shared: an `Arc` of a handler is one.
fn connected() -> (PeerAgent, Heard, Heard) {
    let (here, there) = (Heard::default(), Heard::default());
    let side = |heard: &Heard| Exchange::new().envelope_handler(Arc::new(Echo(heard.clone())));
    let (peer, _) = side(&here).in_memory(side(&there));
    (peer, here, there)
}

fn thread(name: &str) -> Meta {
    Meta::from_iter([("thread", name)])
}

fn trace() -> TraceContext {
    TraceContext::new(PARENT).unwrap()
}

fn answer_of(meta: Option<&Meta>) -> Option<String> {
    meta?.get("answer")
}

#[tokio::test(start_paused = true)]
async fn every_message_carries_its_meta_and_so_does_its_answer() {
    let (peer, _, there) = connected();
    let response = peer.query("q").trace_context(trace()).meta(thread("a")).received().await.unwrap();
    assert_eq!(answer_of(response.meta()).as_deref(), Some("query"));
    assert_eq!(there.all(), [r#"query Some("a") Some("b7ad6b7169203331")"#]);

    let task = peer.delegate("t").meta(thread("b")).await.unwrap();
    assert_eq!(answer_of(task.ack_meta()).as_deref(), Some("ack"));
    assert_eq!(answer_of(task.received().await.unwrap().meta()).as_deref(), Some("result"));

    let task = peer.delegate("wait").id("d1").trace_context(trace()).await.unwrap();
    assert_eq!(task.id().as_str(), "d1");
    assert!(task.cancel("enough").meta(thread("c")).await.unwrap().accepted);
    peer.notify("work", json!(1)).about("n0").meta(thread("d")).await.unwrap();
    let outcome = DelegationOutcome::new(OutcomeStatus::Failed).outcome("late");
    peer.result("old", outcome).meta(thread("e")).await.unwrap();
    let id =
        peer.error(EnvelopeError::internal("odd")).about("n1").id("e1").trace_context(None).await.unwrap();
    assert_eq!(id.as_str(), "e1");
    assert_eq!(
        there.wait(7).await[1..],
        [
            r#"accept Some("b") None"#,
            r#"accept None Some("b7ad6b7169203331")"#,
            r#"cancel "enough" re d1 Some("c") None"#,
            r#"notify work 0 re n0 Some("d") None"#,
            r#"result late re old Some("e") None"#,
            r#"error odd (internal) re n1 None None"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_through_the_peer_of_a_message_continues_its_trace() {
    let (peer, here, _) = connected();
    peer.query("ask back").trace_context(trace()).await.unwrap();
    peer.query("ask back").await.unwrap();
    assert_eq!(here.all(), [r#"query None Some("b7ad6b7169203331")"#, "query None None"]);
}

/// Refuses everything, at the time that the task names.
struct Refusing;

impl EnvelopeHandler for Refusing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("refusing").max_concurrent_tasks(1)
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        query.set_answer_meta(answer("error"));
        Err(EnvelopeError::internal("no"))
    }

    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        task.set_answer_meta(answer("ack"));
        if task.task == "early" { Err(EnvelopeError::not_authorized("no")) } else { Ok(Ack::new(true)) }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        task.set_answer_meta(answer("end"));
        Err(EnvelopeError::internal("no"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_meta_of_an_error_is_readable() {
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Refusing));
    let error = peer.query("q").await.unwrap_err();
    assert_eq!(answer_of(error.meta()).as_deref(), Some("error"), "{error}");
    let declined = peer.delegate("early").await.unwrap_err();
    assert!(matches!(&declined, Error::Declined(why) if why.code == EnvelopeErrorCode::NotAuthorized));
    assert_eq!(answer_of(declined.meta()).as_deref(), Some("ack"));
    let ended = peer.delegate("late").await.unwrap().result().await.unwrap_err();
    assert_eq!(
        (ended.code(), answer_of(ended.meta()).as_deref()),
        (EnvelopeErrorCode::Internal, Some("end"))
    );
    let unknown = peer.task_status("none").await.unwrap_err();
    assert_eq!(unknown.meta(), None);
}

/// On the wire it stands beside the envelope.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_handler_has_its_meta() {
    let (transport, mut client) = Wire::Memory.scripted();
    let exchange = Exchange::new().envelope_handler(Refusing);
    tokio::spawn(Server::new(Quiet).exchange(exchange).serve(transport));
    client.initialize(json!({"_meta": {"duologue": {"agentId": "ab", "envelope": {"v": [1]}}}})).await;
    let session = client.new_session().await;
    let envelope =
        json!({"id": "q1", "from": "ab", "to": "", "ts": 1, "kind": "query", "payload": {"question": "?"}});
    let refused = client.request("_session/query", json!({"sessionId": session, "envelope": envelope})).await;
    let data = &refused["error"]["data"];
    assert_eq!((&data["_meta"]["answer"], &data["envelope"]["ref"]), (&json!("error"), &json!("q1")));
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_choose_ids_and_an_open_one_is_not_used_twice() {
    let (peer, ..) = connected();
    assert_eq!(peer.query("q").id("q1").await.unwrap().summary, "q1");
    let task = peer.delegate("wait").id("d1").await.unwrap();
    let again = peer.delegate("wait").id("d1").await.unwrap_err();
    assert!(matches!(&again, Error::IdInUse { id } if id.as_str() == "d1"), "{again}");
    // A task needs no handle to be cancelled.
    assert!(peer.cancel("d1").reason("enough").await.unwrap().accepted);
    assert_eq!(task.result().await.unwrap().outcome, "wait");
    let unknown = peer.cancel("d2").await.unwrap();
    assert_eq!((unknown.accepted, unknown.reason.as_deref()), (false, Some("not_found")));
}

#[tokio::test(start_paused = true)]
async fn attachments_travel_both_ways() {
    let (peer, _, there) = connected();
    let image = Attachment::with_bytes("image/png", [1, 2, 3]).name("a.png");
    let response = peer.query("q").attachment(image.clone()).await.unwrap();
    assert_eq!(response.attachments, std::slice::from_ref(&image));
    let task = peer.delegate("t").attachment(image.clone()).attachment(image.clone()).await.unwrap();
    assert_eq!(task.result().await.unwrap().attachments, [image.clone(), image.clone()]);
    peer.notify("work", json!(1)).attachment(image).await.unwrap();
    assert_eq!(there.wait(3).await[2], "notify work 1 None None");
}

#[tokio::test(start_paused = true)]
async fn attachments_are_bounded_on_both_sides() {
    let side = |limit| Exchange::new().envelope_handler(Echo(Heard::default())).max_attachment_bytes(limit);
    let large = Attachment::with_text("text/plain", "x".repeat(100));
    // Before anything is sent.
    let (peer, _) = side(109).in_memory(side(1_000));
    let error = peer.query("q").attachment(large.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the attachments have 110 bytes, more than Exchange::max_attachment_bytes = 109; nothing was sent"
    );
    assert!(matches!(
        peer.delegate("t").attachment(large.clone()).await,
        Err(Error::AttachmentsTooLarge { .. })
    ));
    assert!(peer.notify("t", json!(1)).attachment(large.clone()).await.is_err());
    // The limit itself is allowed, on both sides and in both directions.
    let (peer, _) = side(110).in_memory(side(110));
    assert_eq!(
        peer.query("q").attachment(large.clone()).await.unwrap().attachments,
        std::slice::from_ref(&large)
    );
    // The receiver checks the size too.
    let (peer, _) = side(1_000).in_memory(side(109));
    for error in [
        peer.query("q").attachment(large.clone()).await.unwrap_err(),
        peer.delegate("t").attachment(large.clone()).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), EnvelopeErrorCode::InvalidParameter);
        assert!(error.to_string().contains("more than Exchange::max_attachment_bytes = 109"), "{error}");
    }
    peer.query("q").await.unwrap();
    // In an answer and in a result: the error replaces them.
    let (peer, _) = side(1_000).in_memory(Exchange::new().envelope_handler(Large));
    let error = peer.query("q").await.unwrap_err();
    assert!(matches!(&error, Error::Answer { fault, .. } if fault.message.contains("1000")), "{error}");
    let error = peer.delegate("t").await.unwrap().result().await.unwrap_err();
    assert!(matches!(&error, Error::Answer { .. }), "{error}");
    let (peer, _) = side(9_000).in_memory(Exchange::new().envelope_handler(Large).max_attachment_bytes(9));
    for error in
        [peer.query("q").await.unwrap_err(), peer.delegate("t").await.unwrap().result().await.unwrap_err()]
    {
        assert!(error.to_string().contains("Exchange::max_attachment_bytes = 9"), "{error}");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    peer.ping().await.unwrap();
}

/// Answers with large attachments.
struct Large;

impl Large {
    fn attachment() -> Attachment {
        Attachment::with_text("text/plain", "x".repeat(2_000))
    }
}

impl EnvelopeHandler for Large {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("large").max_concurrent_tasks(1)
    }

    async fn query(&self, _: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new("large").attachments([Large::attachment()]))
    }

    async fn delegate(&self, _: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).attachments([Large::attachment()]))
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_streams_its_output() {
    let (peer, here, _) = connected();
    let task = peer.delegate("stream").await.unwrap();
    let mut output = task.output();
    let first = output.next().await.unwrap().unwrap();
    assert_eq!(
        (first.text().as_deref(), first.chunk.position, first.chunk.complete),
        (Some("Once "), 0, false)
    );
    let last = output.next().await.unwrap().unwrap();
    assert_eq!((last.text(), last.chunk.position, last.chunk.complete), (None, 1, true));
    assert_eq!(last.attachments(), [Attachment::new("a/b")]);
    assert_eq!(last.notification.meta().and_then(|meta| meta.get::<String>("thread")).as_deref(), Some("o"));
    assert!(output.next().await.is_none() && output.is_complete());
    task.result().await.unwrap();
    // Nobody waits for the output of a task without a report, and nothing else receives it.
    let silent = peer.delegate("stream").report_back(false).await.unwrap();
    assert!(silent.output().next().await.is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(here.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn unread_output_is_kept() {
    let (peer, ..) = connected();
    let task = peer.delegate("much").await.unwrap();
    task.result().await.unwrap();
    let (mut output, mut chunks) = (task.output(), 0);
    while let Some(chunk) = output.next().await {
        assert_eq!(chunk.unwrap().chunk.position, chunks);
        chunks += 1;
    }
    assert_eq!(chunks, 5_001);
}

#[tokio::test(start_paused = true)]
async fn another_stream_of_the_output_continues_it() {
    let (peer, ..) = connected();
    let task = peer.delegate("stream").await.unwrap();
    let (mut first, mut second) = (task.output(), task.output());
    assert_eq!(first.next().await.unwrap().unwrap().chunk.position, 0);
    assert_eq!(second.next().await.unwrap().unwrap().chunk.position, 1);
    assert!(first.next().await.is_none() && second.next().await.is_none());
    assert!(first.is_complete() && second.is_complete());
}
