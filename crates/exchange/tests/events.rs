//! The events of the feature `events`: one for each message, with latency and success, and without content. A test
//! program of its own: other tests run without a subscriber, and `tracing` caches that nobody is interested.
#![cfg(feature = "events")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_client::exchange::Exchange;
use duologue_client::exchange::envelope::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records the events of the target as text.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Ids are random.
        if !matches!(field.name(), "id" | "from" | "to" | "task") {
            self.0 += &format!(" {}={value:?}", field.name());
        }
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "duologue::events"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0.trim().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Secretive;

impl EnvelopeHandler for Secretive {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("secretive").max_concurrent_tasks(1)
    }

    async fn query(&self, _: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Err(EnvelopeError::not_authorized("secret"))
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        task.output("secret").last().await?;
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome("secret"))
    }
}

#[tokio::test(start_paused = true)]
async fn each_message_is_an_event() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let (peer, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Secretive));
    peer.query("secret").await.unwrap_err();
    let events = std::mem::take(&mut *recorder.0.lock().unwrap());
    assert_eq!(
        events,
        [
            r#"event="acp_message_sent" kind=query"#,
            r#"event="acp_message_received" kind=query"#,
            r#"event="acp_message_sent" kind=error"#,
            r#"event="acp_request_completed" kind=query latency_ms=250 success=false code="not_authorized""#,
        ]
    );
    peer.delegate("secret").await.unwrap().result().await.unwrap();
    let events = std::mem::take(&mut *recorder.0.lock().unwrap());
    let has = |event: &str| events.iter().any(|line| line.starts_with(event));
    for event in [
        r#"event="acp_task_created""#,
        r#"event="acp_stream_chunk" position=0 complete=true"#,
        r#"event="acp_task_completed" latency_ms=0 success=true"#,
        r#"event="acp_message_received" kind=result"#,
    ] {
        assert!(has(event), "{event}: {events:?}");
    }
    assert!(events.iter().all(|line| !line.contains("secret")), "{events:?}");
}
