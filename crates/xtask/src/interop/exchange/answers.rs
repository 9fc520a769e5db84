//! The responses of our end: the same as in `interop/ts/exchange.mjs`.

use super::{dialogue, work};
use crate::interop::Result;
use duologue_agent::exchange::Exchange;
use duologue_agent::exchange::envelope::{
    Ack, Capabilities, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeHandler, Notify,
    OutcomeStatus, Pattern, Query, QueryResponse, Received, ReceivedTask,
};
use duologue_schema::Json;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Our end of the exchange.
pub(super) fn exchange() -> Result<Exchange> {
    Ok(Exchange::new().envelope_handler(Answers::default()).dialogue(dialogue::dialogues()?).work(work::work))
}

#[derive(Default)]
struct Answers {
    /// The topics of the received notifications.
    topics: Mutex<Vec<String>>,
    /// The number of withdrawn requests.
    withdrawn: AtomicUsize,
}

/// Counts that a question was withdrawn.
struct OnDrop<'a>(&'a AtomicUsize);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl EnvelopeHandler for Answers {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("duologue")
            .domains(vec!["family.calendar".to_owned()])
            .topics(vec!["work.build".to_owned()])
            .tools(vec!["clock".to_owned()])
            .max_concurrent_tasks(2_u32)
            .model("none")
    }

    async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
        match query.question.as_str() {
            "fault" => Err(EnvelopeError::of(EnvelopeErrorCode::UnknownDomain, "nobody knows")),
            "ask back" => {
                let answer = query.peer.query("echo").await.map_err(|error| error.fault())?;
                Ok(QueryResponse::new(answer.summary))
            }
            "forever" => {
                let _withdrawn = OnDrop(&self.withdrawn);
                std::future::pending().await
            }
            "withdrawn" => Ok(QueryResponse::new("so many").data(json!(self.withdrawn.load(Relaxed)))),
            "told" => {
                let news = self.topics.lock().map(|news| news.clone()).unwrap_or_default();
                Ok(QueryResponse::new("the news").data(json!(news)))
            }
            // As it came, with what we do not know.
            _ => Ok(QueryResponse::new(super::walkthrough::HEARD).data(
                Json::new(&query.envelope.payload)
                    .map_err(|error| EnvelopeError::internal(error.to_string()))?,
            )),
        }
    }
    async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
        match task.task.as_str() {
            "refuse" => Err(EnvelopeError::not_authorized("not for you")),
            _ => Ok(Ack::new(true).estimated_ms(20_u64)),
        }
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let outcome = |status| {
            DelegationOutcome::new(status).outcome(&*task.task).data(json!({"context": task.context}))
        };
        match task.task.as_str() {
            "fail" => {
                Ok(outcome(OutcomeStatus::Failed).error(json!(EnvelopeError::not_authorized("not for you"))))
            }
            "partial" => Ok(outcome(OutcomeStatus::Partial)),
            "progress" => {
                task.progress(json!("half")).await.map_err(|error| error.fault())?;
                Ok(outcome(OutcomeStatus::Completed))
            }
            "break" => Err(EnvelopeError::internal("broke")),
            "wait" => {
                task.cancelled().await;
                Err(EnvelopeError::of(EnvelopeErrorCode::Cancelled, "as you wish"))
            }
            _ => Ok(outcome(OutcomeStatus::Completed)),
        }
    }

    async fn notify(&self, news: Received<Notify>) {
        if Pattern::from("work.*").matches(&news.topic)
            && let Ok(mut all) = self.topics.lock()
        {
            all.push(news.topic.clone());
        }
    }
}
