//! A client for the REST interface of a gateway.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use duologue_hub::client::{ConnectOptions, HubClient, HubTaskEvent};
//! use duologue_hub::gateway::types::{AgentFilter, JsonText, RestNewTask};
//!
//! let mut options = ConnectOptions::default();
//! options.bearer_token = Some("the token of the hub".into());
//! let hub = HubClient::new("http://127.0.0.1:8931", &options)?;
//! let mut filter = AgentFilter::default();
//! filter.capability = Some("write".into());
//! for agent in hub.agents(&filter).await?.agents {
//!     println!("{}: {}", agent.agent_id, agent.endpoint);
//! }
//! let task = RestNewTask::new("write", JsonText::of("Write a poem.")?);
//! let created = hub.create_task("writer", &task).await?;
//! let mut events = hub.task_events("writer", &created.task_id, None).await?;
//! while let Some(event) = events.next().await? {
//!     if let HubTaskEvent::End(task) = event {
//!         println!("{:?}: {:?}", task.status, task.result);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

pub use duologue_http::ConnectOptions;
use duologue_http::raw::{RawClient, RawHttpResponse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::gateway::rest::{KEEP_ALIVE, path_of};
use crate::gateway::types::{
    AgentFilter, ClaimQuery, DeadFilter, DeadQuery, LogFilter, MessageFilter, OwnerQuery, RefusalBody,
    RestAck, RestAcknowledged, RestAgent, RestAgentCapabilities, RestAgentList, RestAgentStatus, RestAnswer,
    RestAnswered, RestClaimedMessages, RestCreatedTask, RestDeadLetters, RestHeartbeat, RestInboxMessage,
    RestLogPage, RestLogRecord, RestMessageList, RestNack, RestNewMessage, RestNewTask, RestQuestion,
    RestRegistration, RestSentMessage, RestSession, RestSessionAnswered, RestSessionInput, RestSessionLines,
    RestSessionList, RestSessionView, RestTask, RestTaskInput, RestTaskList, RestTaskProgress,
    RestTaskUpdate, SenderQuery, SessionFilter, SessionViewFilter, TaskFilter,
};

/// The time for a response. A hub waits for an agent for 30 seconds by default.
const RESPONSE: Duration = Duration::from_secs(120);
/// The time without an event or a comment of a hub after which a stream is lost.
const SILENCE: Duration = KEEP_ALIVE.saturating_mul(3);
/// The path of sessions over ACP, which an address may have.
const ACP: &str = "/acp";

/// The result of a request to a hub.
pub type HubResult<T> = Result<T, HubClientError>;

/// The reason for which a request to a hub has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubClientError {
    /// The hub cannot be reached, or the connection was lost.
    #[error("{0}")]
    Connection(#[from] duologue_http::Error),
    /// The hub refused the request.
    #[error("{} ({})", .refusal.message, .refusal.code)]
    Refused {
        /// The status of the response.
        status: u16,
        /// The reason.
        refusal: RefusalBody,
    },
    /// The response is not one of a hub.
    #[error("the response with the status {status} is not one of a hub: {reason}")]
    Response {
        /// The status.
        status: u16,
        /// The reason.
        reason: String,
    },
    /// The request has no form in JSON.
    #[error("the request has no form in JSON: {0}")]
    Request(#[source] serde_json::Error),
}

impl HubClientError {
    /// Returns true if the request, or a new stream behind the last event, can succeed later: the hub is not there, the connection
    /// was lost, or the hub is overloaded.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            HubClientError::Connection(duologue_http::Error::Lost { .. }) => true,
            HubClientError::Connection(error) => error.is_temporary(),
            HubClientError::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 503),
            _ => false,
        }
    }
}

/// A client for the REST interface of a gateway. Each request has a connection of its own.
///
/// # Errors
///
/// All functions return [`HubClientError`]. The code of a refusal is one of
/// [`RefusalCode`](crate::gateway::RefusalCode).
#[derive(Clone)]
pub struct HubClient {
    http: RawClient,
    /// The path in front of all routes.
    prefix: String,
}

impl std::fmt::Debug for HubClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubClient").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl HubClient {
    /// Creates a client for an address such as `http://127.0.0.1:8931`. A path `/acp` at its end is ignored.
    ///
    /// # Errors
    ///
    /// [`HubClientError::Connection`] for an address or a header that is not valid.
    pub fn new(url: &str, options: &ConnectOptions) -> HubResult<Self> {
        let http = RawClient::new(url, options)?.response_timeout(RESPONSE).silence_limit(SILENCE);
        let path = http.path().trim_end_matches('/');
        let prefix = path.strip_suffix(ACP).unwrap_or(path).to_owned();
        Ok(HubClient { http, prefix })
    }

    /// Lists the agents that are not offline.
    pub async fn agents(&self, filter: &AgentFilter) -> HubResult<RestAgentList> {
        self.get(&["agents"], filter).await
    }

    /// Lists all agents, with those that are offline.
    pub async fn registry(&self, filter: &AgentFilter) -> HubResult<RestAgentList> {
        self.get(&["registry", "agents"], filter).await
    }

    /// Returns an agent.
    pub async fn agent(&self, agent: &str) -> HubResult<RestAgent> {
        self.get(&["agents", agent], &()).await
    }

    /// Returns the capabilities of an agent with its card.
    pub async fn capabilities(&self, agent: &str) -> HubResult<RestAgentCapabilities> {
        self.get(&["agents", agent, "capabilities"], &()).await
    }

    /// Registers an agent, or replaces its entry.
    pub async fn register(&self, agent: &str, entry: &RestRegistration) -> HubResult<RestAgent> {
        self.call("PUT", &["registry", "agents", agent], &(), Some(entry)).await
    }

    /// Removes the entry of an agent.
    pub async fn unregister(&self, agent: &str) -> HubResult<()> {
        self.change("DELETE", &["registry", "agents", agent], &()).await
    }

    /// Sends a sign of life of an agent.
    pub async fn heartbeat(&self, agent: &str, status: RestAgentStatus) -> HubResult<RestAgent> {
        let beat = RestHeartbeat { status };
        self.call("POST", &["registry", "agents", agent, "heartbeat"], &(), Some(&beat)).await
    }

    /// Sends a message to an agent.
    pub async fn send_message(&self, agent: &str, message: &RestNewMessage) -> HubResult<RestSentMessage> {
        self.call("POST", &["agents", agent, "messages"], &(), Some(message)).await
    }

    /// Lists the messages of an agent.
    pub async fn messages(&self, agent: &str, filter: &MessageFilter) -> HubResult<RestMessageList> {
        self.get(&["agents", agent, "messages"], filter).await
    }

    /// Returns a message with its answer.
    pub async fn message(&self, agent: &str, id: &str, query: &SenderQuery) -> HubResult<RestInboxMessage> {
        self.get(&["agents", agent, "messages", id], query).await
    }

    /// Takes messages from the inbox of an agent.
    pub async fn claim(&self, agent: &str, claim: &ClaimQuery) -> HubResult<RestClaimedMessages> {
        self.call("POST", &["agents", agent, "messages", "claim"], claim, None::<&()>).await
    }

    /// Acknowledges a message.
    pub async fn ack(&self, agent: &str, id: &str, ack: &RestAck) -> HubResult<RestAcknowledged> {
        self.call("POST", &["agents", agent, "messages", id, "ack"], &(), Some(ack)).await
    }

    /// Returns a message to the inbox, or makes it a dead letter.
    pub async fn nack(&self, agent: &str, id: &str, nack: &RestNack) -> HubResult<RestAcknowledged> {
        self.call("POST", &["agents", agent, "messages", id, "nack"], &(), Some(nack)).await
    }

    /// Gives an agent a task.
    pub async fn create_task(&self, agent: &str, task: &RestNewTask) -> HubResult<RestCreatedTask> {
        self.call("POST", &["agents", agent, "tasks"], &(), Some(task)).await
    }

    /// Lists the tasks of an agent.
    pub async fn tasks(&self, agent: &str, filter: &TaskFilter) -> HubResult<RestTaskList> {
        self.get(&["agents", agent, "tasks"], filter).await
    }

    /// Returns a task.
    pub async fn task(&self, agent: &str, id: &str, query: &OwnerQuery) -> HubResult<RestTask> {
        self.get(&["agents", agent, "tasks", id], query).await
    }

    /// Cancels a task.
    pub async fn cancel_task(&self, agent: &str, id: &str, query: &OwnerQuery) -> HubResult<RestTask> {
        self.call("POST", &["agents", agent, "tasks", id, "cancel"], query, None::<&()>).await
    }

    /// Returns the open questions of a task.
    pub async fn questions(&self, agent: &str, id: &str, query: &OwnerQuery) -> HubResult<RestTaskInput> {
        self.get(&["agents", agent, "tasks", id, "input"], query).await
    }

    /// Answers a question of a task.
    pub async fn answer(
        &self,
        agent: &str,
        id: &str,
        query: &OwnerQuery,
        answer: &RestAnswer,
    ) -> HubResult<RestAnswered> {
        self.call("POST", &["agents", agent, "tasks", id, "input"], query, Some(answer)).await
    }

    /// Follows a task to its end. `last` is the [`last_id`](TaskEventStream::last_id) of an earlier stream.
    pub async fn task_events(&self, agent: &str, id: &str, last: Option<&str>) -> HubResult<TaskEventStream> {
        let events = self.events(&["agents", agent, "tasks", id, "events"], &(), last).await?;
        Ok(TaskEventStream { events })
    }

    /// Lists the dead letters of an agent.
    pub async fn dead_letters(&self, agent: &str, filter: &DeadFilter) -> HubResult<RestDeadLetters> {
        self.get(&["agents", agent, "dead-letters"], filter).await
    }

    /// Sends a dead letter again.
    pub async fn resend(&self, agent: &str, id: &str, query: &DeadQuery) -> HubResult<()> {
        self.change("POST", &["agents", agent, "dead-letters", id, "resend"], query).await
    }

    /// Drops a dead letter.
    pub async fn drop_dead_letter(&self, agent: &str, id: &str, query: &DeadQuery) -> HubResult<()> {
        self.change("DELETE", &["agents", agent, "dead-letters", id], query).await
    }

    /// Lists the sessions of the caller.
    pub async fn sessions(&self, filter: &SessionFilter) -> HubResult<RestSessionList> {
        self.get(&["sessions"], filter).await
    }

    /// Returns a session of the caller.
    pub async fn session(&self, id: &str) -> HubResult<RestSession> {
        self.get(&["sessions", id], &()).await
    }

    /// Returns the open questions of one's own session.
    pub async fn session_questions(&self, id: &str) -> HubResult<RestSessionInput> {
        self.get(&["sessions", id, "input"], &()).await
    }

    /// Answers a question of one's own session.
    pub async fn answer_session(&self, id: &str, answer: &RestAnswer) -> HubResult<RestSessionAnswered> {
        self.call("POST", &["sessions", id, "input"], &(), Some(answer)).await
    }

    /// Returns a page of the log of a session.
    pub async fn session_log(&self, id: &str, filter: &LogFilter) -> HubResult<RestLogPage> {
        self.get(&["sessions", id, "log"], filter).await
    }

    /// Returns a page of the view of one's own session: its messages, tool calls and requests, each once.
    pub async fn session_view(&self, id: &str, filter: &SessionViewFilter) -> HubResult<RestSessionView> {
        self.get(&["sessions", id, "view"], filter).await
    }

    /// Returns lines of one's own session for a reader.
    pub async fn session_lines(&self, id: &str, filter: &LogFilter) -> HubResult<RestSessionLines> {
        self.get(&["sessions", id, "view", "lines"], filter).await
    }

    /// Follows the log of a session behind a record, which is 0 for the whole log.
    pub async fn follow_session_log(&self, id: &str, after: u64) -> HubResult<SessionLogStream> {
        let last = (after > 0).then(|| after.to_string());
        let events = self.events(&["sessions", id, "log"], &(), last.as_deref()).await?;
        Ok(SessionLogStream { events })
    }

    /// Ends a session and removes its log.
    pub async fn erase_session(&self, id: &str) -> HubResult<()> {
        self.change("DELETE", &["sessions", id], &()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &impl Serialize) -> HubResult<T> {
        self.call("GET", path, query, None::<&()>).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &[&str],
        query: &impl Serialize,
        body: Option<&impl Serialize>,
    ) -> HubResult<T> {
        let response = self.send(method, path, query, body, &[]).await?;
        let status = response.status();
        let body = response.body().await?;
        serde_json::from_slice(&body).map_err(|error| not_of_hub(status, &body, &error))
    }

    /// Sends a request whose response has no body.
    async fn change(&self, method: &str, path: &[&str], query: &impl Serialize) -> HubResult<()> {
        self.send(method, path, query, None::<&()>, &[]).await.map(drop)
    }

    async fn events(
        &self,
        path: &[&str],
        query: &impl Serialize,
        last: Option<&str>,
    ) -> HubResult<EventStream> {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(last.map(|last| ("last-event-id", last)));
        let response = self.send("GET", path, query, None::<&()>, &headers).await?;
        Ok(EventStream { response, last_id: last.map(str::to_owned), has_ended: false })
    }

    /// Sends a request, and checks that it is not refused.
    async fn send(
        &self,
        method: &str,
        path: &[&str],
        query: &impl Serialize,
        body: Option<&impl Serialize>,
        headers: &[(&str, &str)],
    ) -> HubResult<RawHttpResponse> {
        let target = format!("{}{}{}", self.prefix, path_of(path), query_of(query)?);
        let mut headers = headers.to_vec();
        let body = body.map(serde_json::to_string).transpose().map_err(HubClientError::Request)?;
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let response = self.http.send(method, Some(&target), &headers, &body.unwrap_or_default()).await?;
        let status = response.status();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let body = response.body().await?;
        match serde_json::from_slice(&body) {
            Ok(refusal) => Err(HubClientError::Refused { status, refusal }),
            Err(error) => Err(not_of_hub(status, &body, &error)),
        }
    }
}

/// Returns the error for a body that is none of a hub.
fn not_of_hub(status: u16, body: &[u8], error: &serde_json::Error) -> HubClientError {
    let reason = if body.is_empty() { "it is empty".to_owned() } else { error.to_string() };
    HubClientError::Response { status, reason }
}

/// Writes the members of an object as a query.
fn query_of(query: &impl Serialize) -> HubResult<String> {
    let Value::Object(members) = serde_json::to_value(query).map_err(HubClientError::Request)? else {
        return Ok(String::new());
    };
    let mut text = String::new();
    for (name, value) in members {
        let value = match value {
            Value::Null => continue,
            Value::String(value) => value,
            other => other.to_string(),
        };
        let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
        text.push_str(&format!("{}{name}={value}", if text.is_empty() { '?' } else { '&' }));
    }
    Ok(text)
}

struct EventStream {
    response: RawHttpResponse,
    last_id: Option<String>,
    has_ended: bool,
}

impl EventStream {
    /// Returns the name and the data of the next event.
    async fn next(&mut self) -> HubResult<Option<(String, Vec<u8>)>> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(event) = self.response.event().await? else { return Ok(None) };
        self.last_id = event.id.or(self.last_id.take());
        let name = event.name.unwrap_or_default();
        self.has_ended = name == "end";
        Ok(Some((name, event.data)))
    }

    fn parse<T: DeserializeOwned>(&self, data: &[u8]) -> HubResult<T> {
        let status = self.response.status();
        serde_json::from_slice(data)
            .map_err(|error| HubClientError::Response { status, reason: error.to_string() })
    }
}

/// An event of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HubTaskEvent {
    /// The task has another state.
    State(RestTask),
    /// The task has made progress.
    Progress(RestTaskProgress),
    /// The agent has written an update of the session.
    Update(RestTaskUpdate),
    /// A question was opened, answered or withdrawn.
    Question(RestQuestion),
    /// The task has ended.
    End(RestTask),
}

/// The events of a task.
pub struct TaskEventStream {
    events: EventStream,
}

impl TaskEventStream {
    /// Returns the next event. It is `None` behind the end of the task, and if the server ends the stream: a new stream
    /// continues behind [`last_id`](Self::last_id).
    ///
    /// # Errors
    ///
    /// [`HubClientError::Connection`] if the connection is lost.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn next(&mut self) -> HubResult<Option<HubTaskEvent>> {
        while let Some((name, data)) = self.events.next().await? {
            let events = &self.events;
            return Ok(Some(match name.as_str() {
                "state" => HubTaskEvent::State(events.parse(&data)?),
                "progress" => HubTaskEvent::Progress(events.parse(&data)?),
                "update" => HubTaskEvent::Update(events.parse(&data)?),
                "question" => HubTaskEvent::Question(events.parse(&data)?),
                "end" => HubTaskEvent::End(events.parse(&data)?),
                // One of a later version.
                _ => continue,
            }));
        }
        Ok(None)
    }

    /// Returns the id of the last event that had one.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.events.last_id.as_deref()
    }
}

impl std::fmt::Debug for TaskEventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskEventStream").field("last_id", &self.last_id()).finish_non_exhaustive()
    }
}

/// The records of the log of a session.
pub struct SessionLogStream {
    events: EventStream,
}

impl SessionLogStream {
    /// Returns the next record. It is `None` if the session does not run any more, or the server ends the stream: a new
    /// stream continues behind the number of the last record.
    ///
    /// # Errors
    ///
    /// [`HubClientError::Connection`] if the connection is lost.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn next(&mut self) -> HubResult<Option<RestLogRecord>> {
        while let Some((name, data)) = self.events.next().await? {
            if name == "record" {
                return self.events.parse(&data).map(Some);
            }
        }
        Ok(None)
    }
}

impl std::fmt::Debug for SessionLogStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLogStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_path() {
        let prefix = |url| HubClient::new(url, &ConnectOptions::default()).map(|client| client.prefix).ok();
        for (url, expected) in [
            ("http://a", ""),
            ("http://a/", ""),
            ("http://a:1/acp", ""),
            ("http://a/hub", "/hub"),
            ("http://a/hub/acp/", "/hub"),
        ] {
            assert_eq!(prefix(url).as_deref(), Some(expected), "{url}");
        }
        assert!(prefix("ftp://a").is_none());
    }

    #[test]
    fn a_query_has_what_is_set() {
        let parts = |filter: &AgentFilter| {
            let text = query_of(filter).unwrap();
            let mut parts: Vec<String> = text.strip_prefix('?').unwrap().split('&').map(Into::into).collect();
            parts.sort();
            parts
        };
        let mut filter = AgentFilter::default();
        assert_eq!(parts(&filter), ["limit=100", "offset=0"]);
        (filter.tag, filter.status) = (Some("a b&ü".into()), Some(RestAgentStatus::Busy));
        assert_eq!(parts(&filter), ["limit=100", "offset=0", "status=busy", "tag=a%20b%26%C3%BC"]);
        assert_eq!(query_of(&()).unwrap(), "");
    }
}
