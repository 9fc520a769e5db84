//! A task whose sender is an agent that waits for its end.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Json;
use duologue_schema::envelope::{
    DelegationOutcome, Envelope, EnvelopeError, EnvelopeErrorCode, NotificationPayload, Notify,
    OutcomeStatus, OutputChunk, TaskState,
};
use duologue_store::{StoreTopic, StoredTask, StoredTaskKey};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::reply::{CallReplies, fault};
use super::report_cancelled;
use super::withdrawal::RoutedCallTask;
use crate::gateway::rest::tasks::cancel;
use crate::gateway::task_output::OutputListener;
use crate::gateway::{GatewayShared, events};

/// The topic of notifications about the progress of a task.
const PROGRESS: &str = "task.progress";
/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);
/// The time between two chunks of output.
const CHUNK_PAUSE: Duration = Duration::from_millis(200);

/// A task whose sender waits for its end.
pub(super) struct FollowedTask<'a> {
    pub(super) gateway: &'a Arc<GatewayShared>,
    pub(super) key: StoredTaskKey,
    /// The delegation.
    pub(super) request: &'a Envelope,
    pub(super) replies: &'a CallReplies,
    /// True if the sender receives the progress and the end.
    pub(super) wants_report: bool,
    /// The output that the sender receives.
    pub(super) output: Option<OutputListener>,
    /// The call, which the sender can withdraw.
    pub(super) running: &'a RoutedCallTask,
}

impl FollowedTask<'_> {
    /// Sends the progress and the output of the task, and its end. If the process of the sender ends before, the task is cancelled, because
    /// nobody waits for it. It goes on if the server itself ends.
    pub(super) async fn follow(&self) {
        tokio::select! {
            () = self.follow_state() => {}
            () = self.send_output() => {}
        }
    }

    /// Sends the output until it is dropped.
    async fn send_output(&self) {
        let Some(output) = &self.output else { return std::future::pending().await };
        loop {
            output.arrived().await;
            self.send_chunk(false);
            sleep(CHUNK_PAUSE).await;
        }
    }

    fn send_chunk(&self, is_last: bool) {
        let Some(chunk) = self.output.as_ref().and_then(|output| output.take(is_last)) else { return };
        match Json::new(&chunk) {
            Ok(data) => {
                self.notify(Notify::new(OutputChunk::TOPIC).data(data));
                events::stream_chunk(&self.key, chunk.position, chunk.complete);
            }
            Err(error) => tracing::error!(%error, "a chunk of the output of a task could not be written"),
        }
    }

    async fn follow_state(&self) {
        let mut changes = self.gateway.store.watch(&StoreTopic::Task(self.key.clone()));
        let mut sent = None;
        let mut is_withdrawn = false;
        loop {
            let key = self.key.clone();
            match self.gateway.in_store(move |store| store.task(&key)).await {
                Ok(Some(task)) if task.state.is_final() => return self.send_end(&task),
                Ok(Some(task)) => {
                    let now = (task.state.clone(), task.progress);
                    if task.state != TaskState::Submitted && sent.as_ref() != Some(&now) {
                        let mut data = json!({"state": task.state.as_str()});
                        if let Some(percent) = task.progress {
                            data["progress"] = json!(percent);
                        }
                        self.notify(Notify::new(PROGRESS).data(Json::from(data)));
                        sent = Some(now);
                    }
                }
                Ok(None) => {
                    let why = "the task was erased with the data of its owner";
                    let fault = EnvelopeError::of(EnvelopeErrorCode::NotFound, why);
                    return self.notify(fault);
                }
                Err(_) => {
                    sleep(RETRY).await;
                    continue;
                }
            }
            tokio::select! {
                () = changes.changed() => {}
                () = self.replies.closed() => return self.give_up().await,
                () = self.running.withdrawn(), if !is_withdrawn => {
                    is_withdrawn = true;
                    self.cancel().await;
                }
            }
        }
    }

    fn notify<P: NotificationPayload>(&self, payload: P) {
        if self.wants_report {
            self.replies.notify(self.request, payload);
        }
    }

    fn send_end(&self, task: &StoredTask) {
        self.send_chunk(task.state == TaskState::Completed);
        let result = task.result.as_ref().and_then(|result| result.parse::<Value>().ok()).unwrap_or_default();
        let (mut members, other) = match result {
            Value::Object(members) => (members, None),
            Value::Null => (Map::new(), None),
            other => (Map::new(), Some(other)),
        };
        let text = match members.remove("text") {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let mut outcome = match &task.state {
            TaskState::Cancelled => {
                let fault = EnvelopeError::of(EnvelopeErrorCode::Cancelled, "the task was cancelled");
                return self.notify(fault);
            }
            TaskState::Completed => {
                let is_partial = members.get("status").and_then(Value::as_str) == Some("partial");
                let status = if is_partial { OutcomeStatus::Partial } else { OutcomeStatus::Completed };
                DelegationOutcome::new(status).outcome(text)
            }
            state => {
                let failure = task.error.as_ref().map(fault);
                let failure = failure.unwrap_or_else(|| {
                    EnvelopeError::internal(format!("the task has ended as {}", state.as_str()))
                });
                let outcome = DelegationOutcome::new(OutcomeStatus::Failed).outcome(failure.message.as_str());
                outcome.error(json!({
                    "code": failure.code, "message": failure.message, "retryable": failure.retryable,
                }))
            }
        };
        let attachments = members.remove("attachments").unwrap_or_default();
        outcome.attachments = serde_json::from_value(attachments).unwrap_or_default();
        // The data of a delegation, or what another result has beside its text.
        let rest = |members: Map<_, _>| (!members.is_empty()).then_some(Value::Object(members));
        if let Some(data) = members.remove("data").or(other).or_else(|| rest(members)) {
            outcome = outcome.data(Json::from(data));
        }
        self.notify(outcome);
    }

    /// Cancels a task that nobody waits for.
    async fn give_up(&self) {
        if *self.gateway.closing.borrow() || !self.wants_report {
            return;
        }
        self.cancel().await;
    }

    /// Cancels the task.
    pub(super) async fn cancel(&self) {
        let (time, key) = (self.gateway.time(), self.key.clone());
        if let Ok(Ok((task, true))) = self.gateway.in_store(move |store| cancel(store, time, &key)).await {
            report_cancelled(&self.key.owner, &task);
        }
    }
}
