//! The session of a task or a message, and its prompt turn.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use duologue_client::{Client, Connection, Exchange, HostContext, PromptBuilder, Session};
use duologue_rpc::Transport;
use duologue_schema::{
    Attachment, BlobResourceContents, ContentBlock, Conversation, EmbeddedResource, EmbeddedResourceResource,
    MessageKind, PlanEntryStatus, RequestId, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionUpdate, TraceContext, serialized_len,
};
use duologue_store::TaskFailure;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::error::LIMIT_REACHED;
use crate::gateway::agent_calls::DELEGATED;
use crate::gateway::config::WorkQuestions;
use crate::gateway::dialogue_relay::{RelayChannel, relaying};
use crate::gateway::failure;
use crate::gateway::hosted::HostedEntry;
use crate::gateway::result_size::ResultSize;
use crate::session_task::ClientRole;

/// Limit on the updates of a turn in bytes. The work fails beyond it.
const TURN_BYTES: usize = 64 << 20;
/// The code of the error of a turn whose agent has ended.
const INTERRUPTED: &str = "interrupted";
/// The time in which the agent closes a session.
const CLOSE: Duration = Duration::from_secs(5);

/// A question of the agent.
pub(crate) struct WorkQuestion {
    /// The id of the request, which has the place of the question in the session.
    pub(crate) id: Option<RequestId>,
    pub(crate) request: RequestPermissionRequest,
    /// The place for its answer.
    pub(crate) answer: oneshot::Sender<RequestPermissionOutcome>,
}

/// A session that was opened for work.
pub(crate) struct WorkSession {
    pub(crate) session: Session,
    pub(crate) questions: mpsc::Receiver<WorkQuestion>,
    connection: Connection,
    /// True if the agent runs on another machine.
    pub(crate) is_remote: bool,
    /// True if the agent gets its work as envelopes.
    pub(crate) has_envelopes: bool,
    /// The messages of the agent in the dialogue that the session is for.
    pub(crate) relayed: Option<RelayChannel>,
}

impl WorkSession {
    /// Opens a session of a principal in the folder of the agent, with the trace context of the work: a new one, or one that
    /// is known.
    pub(crate) async fn open(
        agent: &HostedEntry,
        principal: &str,
        trace: Option<&TraceContext>,
        known: Option<&str>,
    ) -> duologue_client::Result<Self> {
        WorkSession::open_for(agent, principal, trace, known, None).await
    }

    /// As [`open`](Self::open), for a dialogue whose messages go through these channels.
    pub(crate) async fn open_for(
        agent: &HostedEntry,
        principal: &str,
        trace: Option<&TraceContext>,
        known: Option<&str>,
        relay: Option<RelayChannel>,
    ) -> duologue_client::Result<Self> {
        let ours = connect(agent, principal, ClientRole::Worker);
        let (sender, questions) = mpsc::channel(16);
        let client = Client::new(()).on_with(
            (agent.config.questions, sender),
            async |(rule, sender): (WorkQuestions, mpsc::Sender<WorkQuestion>),
                   context: HostContext,
                   request: RequestPermissionRequest| {
                if let Some(outcome) = rule.answer(&request) {
                    return Ok(RequestPermissionResponse::from(outcome));
                }
                let (answer, answered) = oneshot::channel();
                let id = context.request_id().cloned();
                let _ = sender.send(WorkQuestion { id, request, answer }).await;
                // Without an answer the agent may not do it.
                let outcome = answered.await.unwrap_or(RequestPermissionOutcome::Cancelled);
                Ok(RequestPermissionResponse::from(outcome))
            },
        );
        let client = if agent.config.envelopes { client.exchange(Exchange::new()) } else { client };
        let (client, relayed) = match relay {
            Some((sender, receiver)) => (relaying(client, sender.clone()), Some((sender, receiver))),
            None => (client, None),
        };
        let connection = client.connect(ours).await?;
        // It was accepted before the folder was removed from the configuration.
        let cwd = agent.cwd.as_deref().unwrap_or(Path::new(""));
        let mut session = connection.session_in(cwd);
        if let Some(trace) = trace {
            session = session.meta(trace.clone());
        }
        let session = match known {
            Some(id) => session.resume(id).await?,
            None => session.create().await?,
        };
        let (is_remote, has_envelopes) = (agent.remote.is_some(), agent.config.envelopes);
        Ok(WorkSession { session, questions, connection, is_remote, has_envelopes, relayed })
    }

    /// Returns the connection of the session.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Leaves the session open, for a worker that goes on with it.
    pub(crate) async fn leave(self) {
        self.connection.close().await;
    }

    /// Closes the session, which ends its process. Its log stays.
    pub(crate) async fn close(self) {
        let _ = tokio::time::timeout(CLOSE, async { self.session.close().await }).await;
        self.connection.close().await;
    }
}

/// Opens a connection to the hub of an agent, in memory.
pub(crate) fn connect(agent: &HostedEntry, principal: &str, role: ClientRole) -> Transport {
    let (ours, theirs) = Transport::memory();
    let (hub, owner) = (agent.hub.clone(), principal.to_owned());
    tokio::spawn(async move { hub.serve_work(owner, theirs, role).await });
    ours
}

/// Returns true for the error of a turn whose connection to an agent on another machine was lost.
pub(crate) fn is_worker_lost(is_remote: bool, error: &duologue_client::Error) -> bool {
    let duologue_client::Error::Response(error) = error else { return false };
    let error = serde_json::to_value(error).unwrap_or_default();
    is_remote && error["data"]["code"] == INTERRUPTED
}

/// Returns the failure of work for its sender. `code` is that of an error without a better one.
pub(crate) fn failure_of(code: &str, error: &duologue_client::Error) -> TaskFailure {
    match error {
        duologue_client::Error::AuthRequired { message, .. } => {
            let why = format!(
                "the agent requires a login: {message}; log in with its own program, or set its key in `agents.env`"
            );
            TaskFailure::new(failure::LOGIN_REQUIRED, why, false)
        }
        // An error of the hub, which names the cause itself.
        duologue_client::Error::Response(response) if error.code().is_some() => {
            // A session was not opened.
            let is_limit = code == failure::UNREACHABLE && error.code().as_deref() == Some(LIMIT_REACHED);
            let code = if is_limit { failure::OVERLOADED } else { code };
            let retryable = response.data_member("retryable").unwrap_or(true);
            TaskFailure::new(code, response.message.as_ref(), retryable)
        }
        error => TaskFailure::new(code, error.to_string(), true),
    }
}

/// The output of a turn so far.
#[derive(Default)]
pub(crate) struct TurnOutput {
    conversation: Conversation,
    bytes: usize,
    /// The entry of the conversation that the last update has changed.
    pub(crate) entry: Option<usize>,
    /// The percent of the steps of the plan that are done.
    pub(crate) progress: Option<u8>,
}

impl TurnOutput {
    /// Adds an update. Returns false if the updates exceed the limit.
    pub(crate) fn add(&mut self, update: &SessionUpdate) -> bool {
        let Some(length) = serialized_len(update, TURN_BYTES - self.bytes) else { return false };
        self.bytes += length;
        if let SessionUpdate::Plan(plan) = update {
            let done = plan.entries.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
            self.progress =
                (100 * done).checked_div(plan.entries.len()).and_then(|percent| u8::try_from(percent).ok());
        }
        self.entry = self.conversation.apply(update);
        true
    }

    /// Returns the text of the agent's messages without cleared drafts, and true if it was cut.
    pub(crate) fn text(&self, size: ResultSize) -> (String, bool) {
        size.cut(self.conversation.all_agent_text())
    }

    /// Returns the images, sounds and files in the agent's messages.
    pub(crate) fn attachments(&self) -> Vec<Attachment> {
        let of_agent = self.conversation.messages().filter(|message| message.kind == MessageKind::Agent);
        of_agent.flat_map(|message| &message.content).filter_map(attachment_of).collect()
    }
}

/// Returns the content of a block that is no text of a message.
fn attachment_of(block: &ContentBlock) -> Option<Attachment> {
    let with_data = |mime_type: &str, data: &String| Attachment::new(mime_type).data(data);
    Some(match block {
        ContentBlock::Image(image) => with_data(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => with_data(&audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                with_data(blob.mime_type.as_deref().unwrap_or("application/octet-stream"), &blob.blob)
            }
            EmbeddedResourceResource::TextResourceContents(text) => {
                Attachment::with_text(text.mime_type.as_deref().unwrap_or("text/plain"), &text.text)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// The content of a message, as the REST interface stores it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageContent {
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) content: Value,
    #[serde(default)]
    pub(crate) mime_type: Option<String>,
    #[serde(default)]
    pub(crate) metadata: Value,
}

/// Creates the prompt for a message. Content that is no text is base64 in JSON.
pub(crate) fn prompt_of_message(message: &MessageContent, trace: Option<&TraceContext>) -> PromptBuilder {
    with_trace(message_blocks(message), trace)
}

fn with_trace(prompt: PromptBuilder, trace: Option<&TraceContext>) -> PromptBuilder {
    match trace {
        Some(trace) => prompt.meta(trace.clone()),
        None => prompt,
    }
}

fn message_blocks(message: &MessageContent) -> PromptBuilder {
    let mime_type = message.mime_type.as_deref().unwrap_or("text/plain");
    let main = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &message.content {
        Value::String(text) if !is_text(&main) && BASE64_STANDARD.decode(text).is_ok() => {
            with_data(PromptBuilder::default(), text, main)
        }
        Value::String(text) => PromptBuilder::new(text),
        other => PromptBuilder::new(other.to_string()),
    }
}

/// Creates the prompt for a task: its prompt or text alone, or its type with all parameters.
pub(crate) fn prompt_of_task(kind: &str, parameters: &Value, trace: Option<&TraceContext>) -> PromptBuilder {
    with_trace(task_text(kind, parameters), trace)
}

fn task_text(kind: &str, parameters: &Value) -> PromptBuilder {
    if let Value::String(text) = parameters {
        return PromptBuilder::new(text);
    }
    if let Some(prompt) = delegated_prompt(kind, parameters) {
        return prompt;
    }
    let alone = parameters.as_object().filter(|members| members.len() == 1);
    let text = alone.and_then(|members| members.get("prompt").or_else(|| members.get("text")));
    match text.and_then(Value::as_str) {
        Some(text) => PromptBuilder::new(text),
        None => PromptBuilder::new(format!("Task: {kind}\nParameters: {parameters}")),
    }
}

/// Creates the prompt for a task that an agent has delegated, with its context and its attachments.
fn delegated_prompt(kind: &str, parameters: &Value) -> Option<PromptBuilder> {
    let text = parameters["prompt"].as_str().filter(|_| kind == DELEGATED)?;
    let prompt = match &parameters["context"] {
        Value::Null => PromptBuilder::new(text),
        context => PromptBuilder::new(format!("{text}\n\nContext: {context}")),
    };
    let attachments: Vec<Attachment> =
        serde_json::from_value(parameters["attachments"].clone()).unwrap_or_default();
    Some(attachments.into_iter().fold(prompt, |prompt, attachment| {
        let main = attachment.mime_type.to_ascii_lowercase();
        match (attachment.data, attachment.text) {
            (Some(data), _) => with_data(prompt, &data, main),
            (None, Some(text)) => prompt.text(text),
            (None, None) => prompt,
        }
    }))
}

/// Adds base64 to a prompt.
fn with_data(prompt: PromptBuilder, data: &str, main: String) -> PromptBuilder {
    if main.starts_with("image/") {
        prompt.image(data, main)
    } else if main.starts_with("audio/") {
        prompt.audio(data, main)
    } else {
        let mut blob = BlobResourceContents::new(data, "message:content");
        blob.mime_type = Some(main);
        let contents = EmbeddedResourceResource::BlobResourceContents(blob);
        prompt.resource(EmbeddedResource::new(contents))
    }
}

/// Returns true if the content of a MIME type is text. The type is in lower case and has no parameters.
pub(crate) fn is_text(mime_type: &str) -> bool {
    mime_type.starts_with("text/")
        || mime_type.ends_with("+json")
        || mime_type.ends_with("+xml")
        || matches!(mime_type, "application/json" | "application/xml" | "application/jose")
}
