//! The work of an agent on a task: a prompt turn, or a delegation or a work order for an agent that handles envelopes.

use std::future::pending;
use std::sync::Arc;

use duologue_client::Turn;
use duologue_client::exchange::envelope::{Delegation, OutputStream, Subscription};
use duologue_client::exchange::{self, PeerAgent};
use duologue_rpc::raw_message::beginning;
use duologue_schema::envelope::{
    DelegationOutcome, EnvelopeError, EnvelopeErrorCode, OutcomeStatus, Priority, TaskState,
};
use duologue_schema::work::{WorkInput, WorkOutput};
use duologue_schema::{Attachment, Members, SessionUpdate, StopReason, TraceContext};
use duologue_store::{JsonText, StoredTask, TaskFailure};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::gateway::agent_calls::DELEGATED;
use crate::gateway::agent_turn::{TurnOutput, WorkSession, failure_of, is_worker_lost, prompt_of_task};
use crate::gateway::dialogue_relay::DialogueWork;
use crate::gateway::result_size::ResultSize;
use crate::gateway::{GatewayShared, failure};

/// The type of a task whose parameters are a work order.
const WORK_ORDER: &str = "invoke";
/// The most bytes of a MIME type with its parameters.
const MIME_TYPE_BYTES: usize = 255;
/// The bytes of the reason for which parameters are no work order.
const REASON_BYTES: usize = 256;

/// The work of an agent on a task.
pub(crate) enum WorkTurn {
    /// A prompt, whose text is the result.
    Prompt(Turn),
    /// A delegation.
    Delegation(Box<DelegatedWork>),
    /// A work order.
    Order(OrderedWork),
    /// A dialogue with another agent.
    Dialogue(DialogueWork),
}

/// A part of the work.
pub(crate) enum WorkNews {
    /// An update of the session.
    Update(SessionUpdate),
    /// The progress in percent.
    Progress(u8),
    /// A part of the output.
    Text(String),
}

/// The end of the work.
pub(crate) struct WorkEnd {
    pub(crate) state: TaskState,
    pub(crate) result: Option<JsonText>,
    pub(crate) error: Option<TaskFailure>,
    /// True if the connection to the agent was lost.
    pub(crate) is_lost: bool,
}

impl WorkEnd {
    fn failed(fault: &EnvelopeError) -> Self {
        let error = TaskFailure::new(fault.code.as_str(), fault.message.as_str(), fault.retryable);
        WorkEnd { state: TaskState::Failed, result: None, error: Some(error), is_lost: false }
    }
}

/// A delegation that was accepted.
pub(crate) struct DelegatedWork {
    task: Delegation,
    progress: Subscription,
    output: OutputStream,
    end: Option<exchange::Result<DelegationOutcome>>,
}

/// A work order, and its end if it has come.
pub(crate) struct OrderedWork {
    work: BoxFuture<'static, exchange::Result<WorkOutput>>,
    end: Option<exchange::Result<WorkOutput>>,
    cancelled: Arc<Notify>,
}

impl WorkTurn {
    /// Gives an agent a task. Returns its end if the agent does not accept it.
    pub(crate) async fn begin(
        gateway: &Arc<GatewayShared>,
        work: &mut WorkSession,
        task: &StoredTask,
    ) -> Result<Self, WorkEnd> {
        if let Some(relayed) = work.relayed.take() {
            return DialogueWork::begin(gateway, task, work, relayed).await.map(WorkTurn::Dialogue);
        }
        let parameters: Value = task.parameters.parse().unwrap_or_default();
        let trace = task.trace.as_deref().and_then(TraceContext::new);
        if !work.has_envelopes {
            let prompt = prompt_of_task(&task.kind, &parameters, trace.as_ref());
            let turn = work.session.prompt(prompt).await;
            return turn.map(WorkTurn::Prompt).map_err(|error| {
                WorkEnd::failed(&EnvelopeError::internal(error.to_string()).retryable(true))
            });
        }
        if task.kind == WORK_ORDER {
            return order(&work.session.peer_agent(), task, parameters, trace).map(WorkTurn::Order);
        }
        match delegate(&work.session.peer_agent(), task, parameters, trace).await {
            Ok(task) => {
                let (progress, output) = (task.progress(), task.output());
                Ok(WorkTurn::Delegation(Box::new(DelegatedWork { task, progress, output, end: None })))
            }
            Err(error) => {
                let state = match &error {
                    exchange::Error::Declined(_) => TaskState::Rejected,
                    _ => TaskState::Failed,
                };
                let is_lost = is_delegation_lost(work.is_remote, &error);
                Err(WorkEnd { state, is_lost, ..WorkEnd::failed(&error.fault()) })
            }
        }
    }

    /// Returns the next part of the work, or `None` at its end.
    ///
    /// # Cancel safety
    ///
    /// No part is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<duologue_client::Result<WorkNews>> {
        match self {
            WorkTurn::Prompt(turn) => turn.next().await.map(|update| update.map(WorkNews::Update)),
            WorkTurn::Delegation(work) => work.next().await.map(Ok),
            WorkTurn::Order(order) => {
                order.run().await;
                None
            }
            WorkTurn::Dialogue(dialogue) => {
                dialogue.run().await;
                None
            }
        }
    }

    /// Requests the end of the work.
    pub(crate) fn cancel(&self) {
        match self {
            WorkTurn::Prompt(turn) => turn.cancel(),
            WorkTurn::Delegation(work) => {
                let cancel = work.task.cancel("the task was cancelled");
                tokio::spawn(async move {
                    if let Err(error) = cancel.await {
                        tracing::debug!(%error, "the agent has not confirmed the end of a task");
                    }
                });
            }
            WorkTurn::Order(order) => order.cancelled.notify_one(),
            WorkTurn::Dialogue(dialogue) => dialogue.cancel(),
        }
    }

    /// Waits for the end.
    pub(crate) async fn end(self, output: &TurnOutput, size: ResultSize, is_remote: bool) -> WorkEnd {
        match self {
            WorkTurn::Prompt(mut turn) => end_of_turn(turn.outcome().await, output, size, is_remote),
            WorkTurn::Delegation(work) => {
                let DelegatedWork { task, end, .. } = *work;
                let end = match end {
                    Some(end) => end,
                    None => task.result().await,
                };
                end_of_delegation(end, size, is_remote)
            }
            WorkTurn::Dialogue(dialogue) => dialogue.end().await,
            WorkTurn::Order(mut order) => {
                order.run().await;
                match order.end {
                    Some(end) => end_of_order(end, size, is_remote),
                    None => {
                        WorkEnd { state: TaskState::Cancelled, result: None, error: None, is_lost: false }
                    }
                }
            }
        }
    }
}

impl DelegatedWork {
    async fn next(&mut self) -> Option<WorkNews> {
        loop {
            tokio::select! {
                biased;
                Some(progress) = self.progress.next() => {
                    let data: Option<Value> =
                        progress.ok().and_then(|progress| progress.data.as_ref()?.parse().ok());
                    if let Some(percent) = data.as_ref().and_then(percent) {
                        return Some(WorkNews::Progress(percent));
                    }
                }
                Some(chunk) = self.output.next() => {
                    if let Some(text) = chunk.ok().and_then(|chunk| chunk.text()) {
                        return Some(WorkNews::Text(text));
                    }
                }
                end = self.task.result() => {
                    self.end = Some(end);
                    return None;
                }
            }
        }
    }
}

impl OrderedWork {
    /// Waits for the output, or for the cancellation, which withdraws the order.
    async fn run(&mut self) {
        if self.end.is_some() {
            return;
        }
        tokio::select! {
            end = &mut self.work => {
                self.work = pending().boxed();
                self.end = Some(end);
            }
            () = self.cancelled.notified() => {
                self.work = pending().boxed();
                // It is cancelled from now on.
                self.cancelled.notify_one();
            }
        }
    }
}

/// Creates the work order of a task. It is sent when it is waited for, and the id of the task is its id.
fn order(
    peer: &PeerAgent,
    task: &StoredTask,
    parameters: Value,
    trace: Option<TraceContext>,
) -> Result<OrderedWork, WorkEnd> {
    let work = peer.work(work_input(parameters)?).id(task.key.task.as_str()).trace_context(trace);
    Ok(OrderedWork { work: work.into_future(), end: None, cancelled: Arc::default() })
}

/// Reads the parameters of a work order.
fn work_input(parameters: Value) -> Result<WorkInput, WorkEnd> {
    serde_json::from_value(parameters).map_err(|error| {
        // It repeats values of the parameters.
        let error = error.to_string();
        let why = beginning(&error, REASON_BYTES);
        let why = format!("the parameters of a task of the type `{WORK_ORDER}` are no work order: {why}");
        WorkEnd::failed(&EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, why))
    })
}

/// Sends the delegation of a task. The id of the task is its id, so it is found in the logs of both sides.
async fn delegate(
    peer: &PeerAgent,
    task: &StoredTask,
    parameters: Value,
    trace: Option<TraceContext>,
) -> exchange::Result<Delegation> {
    let (text, context, attachments) = delegation_parts(&task.kind, parameters);
    let delegate = peer.delegate(text).id(task.key.task.as_str()).context(context).trace_context(trace);
    let delegate = delegate.priority(match task.priority {
        0..=2 => Priority::Low,
        3..=5 => Priority::Medium,
        6 | 7 => Priority::High,
        8 => Priority::Urgent,
        _ => Priority::Critical,
    });
    attachments.into_iter().fold(delegate, |delegate, attachment| delegate.attachment(attachment)).await
}

/// Returns the text, the context and the attachments of a delegation: the prompt of the parameters with the others, or the
/// type with all parameters.
fn delegation_parts(kind: &str, parameters: Value) -> (String, Members, Vec<Attachment>) {
    let mut parameters = match parameters {
        Value::Object(members) => members,
        Value::String(text) => return (text, Members::new(), Vec::new()),
        Value::Null => Default::default(),
        other => [("parameters".to_owned(), other)].into_iter().collect(),
    };
    let mut attachments = Vec::new();
    if kind == DELEGATED {
        // As another agent has sent it.
        let attached = parameters.remove("attachments").unwrap_or_default();
        attachments = serde_json::from_value(attached).unwrap_or_default();
        if let Some(Value::Object(context)) = parameters.remove("context") {
            parameters.extend(context);
        }
    }
    let name =
        ["prompt", "text"].into_iter().find(|name| parameters.get(*name).is_some_and(Value::is_string));
    let text = match name.and_then(|name| parameters.remove(name)) {
        Some(Value::String(text)) => text,
        _ => kind.to_owned(),
    };
    (text, Members::of(&parameters).unwrap_or_default(), attachments)
}

fn end_of_turn(
    outcome: duologue_client::Result<duologue_schema::PromptResponse>,
    output: &TurnOutput,
    size: ResultSize,
    is_remote: bool,
) -> WorkEnd {
    let response = match outcome {
        Ok(response) => response,
        Err(error) => {
            let is_lost = is_worker_lost(is_remote, &error);
            let error = Some(failure_of(failure::AGENT_FAILED, &error));
            return WorkEnd { state: TaskState::Failed, result: None, error, is_lost };
        }
    };
    let (text, is_cut) = output.text(size);
    let mut result = json!({"text": text, "stopReason": response.stop_reason});
    add_parts(&mut result, None, &output.attachments(), size, is_cut);
    let (state, error) = match response.stop_reason {
        StopReason::Cancelled => (TaskState::Cancelled, None),
        StopReason::Refusal => {
            let why = "the agent refused the task";
            (TaskState::Rejected, Some(TaskFailure::new(failure::REFUSED, why, false)))
        }
        _ => (TaskState::Completed, None),
    };
    let result = JsonText::of(&result).ok().filter(|_| state != TaskState::Cancelled);
    WorkEnd { state, result, error, is_lost: false }
}

/// Returns the end of a work order. An order without success has an output too.
fn end_of_order(end: exchange::Result<WorkOutput>, size: ResultSize, is_remote: bool) -> WorkEnd {
    let output = match end {
        Ok(output) => output,
        Err(error) => {
            let is_lost = is_delegation_lost(is_remote, &error);
            return WorkEnd { is_lost, ..WorkEnd::failed(&error.fault()) };
        }
    };
    let data = serde_json::to_value(&output).ok();
    let (text, is_cut) = size.cut(output.summary);
    let mut result =
        json!({"text": text, "success": output.success, "recommendation": output.recommendation});
    add_parts(&mut result, data, &[], size, is_cut);
    WorkEnd { state: TaskState::Completed, result: JsonText::of(&result).ok(), error: None, is_lost: false }
}

/// Checks the attachments in a result of an agent elsewhere, as those of a turn are checked. Returns true if some of them are left
/// out.
pub(crate) fn check_attachments(result: &mut Value, size: ResultSize) -> bool {
    let found = result.as_object_mut().and_then(|members| members.remove("attachments"));
    let found = match found {
        None | Some(Value::Null) => return false,
        Some(Value::Array(found)) => found,
        Some(_) => return true,
    };
    let count = found.len();
    let attachments: Vec<Attachment> =
        found.into_iter().filter_map(|attachment| serde_json::from_value(attachment).ok()).collect();
    add_attachments(result, &attachments, size) || attachments.len() < count
}

/// Adds attachments to a result, and returns true if some of them are left out: those without a MIME type or with data that is not
/// base64, or all if they are too large.
pub(crate) fn add_attachments(result: &mut Value, attachments: &[Attachment], size: ResultSize) -> bool {
    let sound: Vec<_> = attachments.iter().filter(|attachment| is_sound(attachment)).collect();
    let part = serde_json::to_value(&sound).ok().filter(|_| !sound.is_empty());
    add_part(result, "attachments", part, size) || sound.len() < attachments.len()
}

/// Adds data and attachments to a result. `is_cut` is true if the text of the result is not whole.
fn add_parts(
    result: &mut Value,
    data: Option<Value>,
    attachments: &[Attachment],
    size: ResultSize,
    is_cut: bool,
) {
    let has_cut_data = add_part(result, "data", data, size);
    if add_attachments(result, attachments, size) || has_cut_data || is_cut {
        result["truncated"] = json!(true);
    }
}

/// Adds a part to a result, and returns true if it is left out. It is whole or absent, because a piece of it is worth nothing.
fn add_part(result: &mut Value, name: &str, part: Option<Value>, size: ResultSize) -> bool {
    match part {
        Some(part) if size.fits(result, &part) => result[name] = part,
        Some(_) => return true,
        None => {}
    }
    false
}

/// Returns true if an attachment has a MIME type, and a content that can be decoded.
fn is_sound(attachment: &Attachment) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let essence = attachment.mime_type.split(';').next().unwrap_or_default().trim();
    let has_type = attachment.mime_type.len() <= MIME_TYPE_BYTES
        && essence.split_once('/').is_some_and(|(kind, sub)| is_name(kind) && is_name(sub));
    let has_both = attachment.text.is_some() && attachment.data.is_some();
    has_type && !has_both && attachment.bytes().is_ok()
}

fn end_of_delegation(end: exchange::Result<DelegationOutcome>, size: ResultSize, is_remote: bool) -> WorkEnd {
    let outcome = match end {
        Ok(outcome) => outcome,
        Err(error) => {
            let fault = error.fault();
            let is_lost = is_delegation_lost(is_remote, &error);
            return match fault.code {
                EnvelopeErrorCode::Cancelled => {
                    WorkEnd { state: TaskState::Cancelled, result: None, error: None, is_lost }
                }
                _ => WorkEnd { is_lost, ..WorkEnd::failed(&fault) },
            };
        }
    };
    if outcome.status == OutcomeStatus::Failed {
        let fault = outcome.fault().unwrap_or_else(|| EnvelopeError::internal(outcome.outcome.as_str()));
        return WorkEnd::failed(&fault);
    }
    let (text, is_cut) = size.cut(outcome.outcome);
    let mut result = json!({"text": text, "status": outcome.status});
    let data = outcome.data.and_then(|data| data.parse().ok());
    add_parts(&mut result, data, &outcome.attachments, size, is_cut);
    WorkEnd { state: TaskState::Completed, result: JsonText::of(&result).ok(), error: None, is_lost: false }
}

/// Returns true for the error of an envelope whose connection to an agent on another machine was lost.
pub(crate) fn is_delegation_lost(is_remote: bool, error: &exchange::Error) -> bool {
    is_remote
        && (error.code() == EnvelopeErrorCode::Unreachable || matches!(error, exchange::Error::Connection(_)))
}

/// Reads a progress that is a number, or an object with one.
fn percent(data: &Value) -> Option<u8> {
    let number = data.as_u64().or_else(|| data["progress"].as_u64()).or_else(|| data["percent"].as_u64())?;
    u8::try_from(number).ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_of_an_agent_elsewhere_are_those_of_a_turn() {
        let sound = json!({"mime_type": "image/png", "data": "iVBORw==", "size": 4});
        let text = json!({"mime_type": "text/plain; charset=utf-8", "text": "t"});
        let other = [
            json!({"mime_type": "image/png", "data": "no base64!"}),
            json!({"mime_type": "png", "data": "iVBORw=="}),
            json!({"mime_type": "text/html\r\nx: y", "text": "t"}),
            json!({"mime_type": "text/plain", "text": "t", "data": "no base64!"}),
            json!({"data": "iVBORw=="}),
            json!(5),
        ];
        let size = |limit| ResultSize { part: limit, whole: 10_000 };
        let checked = |attachments: Value, limit| {
            let mut result = json!({"text": "t", "attachments": attachments});
            if check_attachments(&mut result, size(limit)) {
                result["truncated"] = json!(true);
            }
            result
        };
        let whole = json!({"text": "t", "attachments": [sound, text]});
        assert_eq!(checked(json!([sound, text]), 1000), whole);
        for other in other {
            let cut = json!({"text": "t", "attachments": [sound], "truncated": true});
            assert_eq!(checked(json!([other, sound]), 1000), cut, "{other}");
        }
        for attachments in [json!("a"), json!([5]), json!([{"data": "iVBORw=="}])] {
            assert_eq!(checked(attachments, 1000), json!({"text": "t", "truncated": true}));
        }
        assert_eq!(checked(json!([sound]), 10), json!({"text": "t", "truncated": true}));
        assert_eq!(checked(Value::Null, 1000), json!({"text": "t"}));
        assert!(!check_attachments(&mut json!("a"), size(1)));
    }

    #[test]
    fn parameters_become_a_delegation() {
        for (kind, parameters, text, context, attached) in [
            ("write", json!({"prompt": "p"}), "p", json!({}), 0),
            ("write", json!({"text": "p", "n": 1}), "p", json!({"n": 1}), 0),
            ("write", json!("p"), "p", json!({}), 0),
            ("write", json!({"n": 1}), "write", json!({"n": 1}), 0),
            ("write", json!([1]), "write", json!({"parameters": [1]}), 0),
            ("write", Value::Null, "write", json!({}), 0),
            (
                DELEGATED,
                json!({"prompt": "p", "context": {"n": 1}, "attachments": [{"mime_type": "a/b", "text": "t"}]}),
                "p",
                json!({"n": 1}),
                1,
            ),
        ] {
            let (found, members, attachments) = delegation_parts(kind, parameters);
            assert_eq!((found.as_str(), attachments.len()), (text, attached));
            assert_eq!(serde_json::to_value(&members).unwrap(), context);
        }
        assert_eq!(percent(&json!({"progress": 40})), Some(40));
        assert_eq!((percent(&json!(101)), percent(&json!("half"))), (None, None));
    }

    #[test]
    fn the_refusal_of_an_order_does_not_repeat_it() {
        let refused = work_input(json!({"context": "x".repeat(5_000)})).err().and_then(|end| end.error);
        let refused = refused.expect("a refusal");
        assert_eq!(refused.code, "invalid_parameter");
        assert!(refused.message.contains("no work order") && refused.message.len() < 400, "{refused:?}");
    }
}
