//! A connection over HTTP with SSE: its requests, its streams and a session on it.

use duologue_http::raw::RawHttpResponse;
use duologue_transcript::Side;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::finding::{Finding, fail};
use crate::raw_process::seconds;
use crate::transport::harness::AgentCalls;
use crate::transport::wire::{
    HttpAnswer, ServerWire, initialize, is_media_type, is_response_to, reply_to, request,
};

/// The content type of every message.
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
/// The header with which a client requests a stream.
pub(crate) const STREAM: (&str, &str) = ("Accept", "text/event-stream");
const CONNECTION: &str = "Acp-Connection-Id";
const SESSION: &str = "Acp-Session-Id";

/// Returns the header with the id of a connection.
pub(crate) fn of_connection(id: &str) -> (&'static str, &str) {
    (CONNECTION, id)
}

/// Returns the header with the id of a session.
pub(crate) fn of_session(id: &str) -> (&'static str, &str) {
    (SESSION, id)
}

/// A connection that has answered `initialize`.
pub(crate) struct HttpConnection {
    pub(crate) wire: ServerWire,
    pub(crate) id: String,
    pub(crate) initialized: Value,
    /// The stream of the connection, once it is open.
    pub(crate) stream: Option<EventStream>,
    next_id: u64,
}

impl HttpConnection {
    /// Sends `initialize` and reads the id of the connection.
    pub(crate) async fn open(wire: &ServerWire) -> Result<Self, Finding> {
        let answer = wire.request("POST", &[JSON], &initialize().to_string()).await?;
        HttpConnection::of(wire, &answer)
    }

    /// Reads the answer to `initialize`.
    pub(crate) fn of(wire: &ServerWire, answer: &HttpAnswer) -> Result<Self, Finding> {
        if answer.status != 200 {
            return Err(fail(format!("`initialize` is answered with {}", answer.shown())));
        }
        if !is_media_type(&answer.content_type, "application/json") {
            return Err(fail(format!("the answer has the content type {:?}", answer.content_type)));
        }
        let message = answer.json().ok_or_else(|| fail("the answer is not JSON"))?;
        if !is_response_to(&message, 0) || !message["result"].is_object() {
            return Err(fail(format!("the answer has no result for the id 0: {}", answer.shown())));
        }
        let id = answer.connection_id.clone().filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| fail("the answer has no header `Acp-Connection-Id`"))?;
        let initialized = message["result"].clone();
        Ok(HttpConnection { wire: wire.clone(), id, initialized, stream: None, next_id: 1 })
    }

    /// Returns the id of the next request.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends a message.
    pub(crate) async fn post(&self, session: Option<&str>, message: &Value) -> Result<HttpAnswer, Finding> {
        let mut headers = vec![JSON, of_connection(&self.id)];
        headers.extend(session.map(of_session));
        self.wire.request("POST", &headers, &message.to_string()).await
    }

    /// Sends a message that has to be accepted.
    pub(crate) async fn send(&self, session: Option<&str>, message: &Value) -> Result<(), Finding> {
        let answer = self.post(session, message).await?;
        if answer.status == 202 {
            return Ok(());
        }
        let name = message["method"].as_str().unwrap_or("a response");
        Err(fail(format!("{name} is answered with {}, not 202", answer.shown()))
            .explained_by("http-accepted"))
    }

    /// Requests a stream. The second result is the answer of a server that refuses it.
    pub(crate) async fn request_stream(
        &self,
        session: Option<&str>,
        more: &[(&str, &str)],
    ) -> Result<Result<EventStream, HttpAnswer>, Finding> {
        let mut headers = vec![STREAM, of_connection(&self.id)];
        headers.extend(session.map(of_session));
        headers.extend_from_slice(more);
        let response = self.wire.head(None, "GET", &headers, "").await;
        let response = response.map_err(|error| fail(format!("GET was not answered: {error}")))?;
        if response.status() != 200 {
            return self.wire.read("GET", response).await.map(Err);
        }
        let content_type = response.header("content-type").unwrap_or_default();
        if !is_media_type(content_type, "text/event-stream") {
            let content_type = content_type.to_owned();
            return Err(fail(format!("the stream has the content type {content_type:?}")));
        }
        let name = session.map_or_else(|| "connection".to_owned(), |session| format!("session {session}"));
        Ok(Ok(EventStream { wire: self.wire.clone(), response, name }))
    }

    /// Opens the stream of the connection.
    pub(crate) async fn open_stream(&mut self) -> Result<(), Finding> {
        match self.request_stream(None, &[]).await? {
            Ok(stream) => {
                self.stream = Some(stream);
                Ok(())
            }
            Err(answer) => {
                Err(fail(format!("the stream of the connection is refused with {}", answer.shown())))
            }
        }
    }

    /// Opens the stream of a session that exists.
    pub(crate) async fn stream_of(&self, session: &str) -> Result<EventStream, Finding> {
        match self.request_stream(Some(session), &[]).await? {
            Ok(stream) => Ok(stream),
            Err(answer) => Err(fail(format!("the stream of a session is refused with {}", answer.shown()))
                .explained_by("sse-session-answers")),
        }
    }
}

impl AgentCalls for HttpConnection {
    async fn call(&mut self, method: &str, params: &Value) -> Result<Value, Finding> {
        let id = self.new_id();
        self.send(None, &request(id, method, params)).await?;
        let deadline = Instant::now() + self.wire.patience;
        let Some(mut stream) = self.stream.take() else {
            return Err(fail("the stream of the connection is not open"));
        };
        let response = loop {
            match stream.next(deadline).await? {
                NextEvent::Event(event) if is_response_to(&event.message, id) => break event.message,
                NextEvent::Event(event) => {
                    if let Some(reply) = reply_to(&event.message) {
                        self.send(None, &reply).await?;
                    }
                }
                NextEvent::Quiet => {
                    let limit = seconds(self.wire.patience);
                    let saw = format!("no answer to {method} on the stream of the connection within {limit}");
                    return Err(fail(saw).explained_by("sse-connection-answers"));
                }
                NextEvent::End => {
                    let saw = format!("the stream of the connection ended before the answer to {method}");
                    return Err(fail(saw).explained_by("sse-connection-answers"));
                }
            }
        };
        self.stream = Some(stream);
        Ok(response)
    }
}

/// An event with a message.
#[derive(Clone, Debug)]
pub(crate) struct StreamEvent {
    pub(crate) id: Option<String>,
    pub(crate) message: Value,
}

/// The result of waiting for an event.
pub(crate) enum NextEvent {
    Event(StreamEvent),
    /// None came before the deadline.
    Quiet,
    /// The stream has ended.
    End,
}

/// An open stream.
pub(crate) struct EventStream {
    wire: ServerWire,
    response: RawHttpResponse,
    name: String,
}

impl EventStream {
    /// Returns the next event.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Result<NextEvent, Finding> {
        let event = match timeout_at(deadline, self.response.event()).await {
            Err(_) => return Ok(NextEvent::Quiet),
            // A connection that is closed in the middle of a chunk is an end too.
            Ok(Ok(None) | Err(duologue_http::Error::Lost { .. })) => {
                self.wire.log.push(Side::Agent, &format!("({} stream ends)", self.name));
                return Ok(NextEvent::End);
            }
            Ok(Err(error)) => return Err(fail(error.to_string())),
            Ok(Ok(Some(event))) => event,
        };
        let data = String::from_utf8_lossy(&event.data).into_owned();
        let id = event.id.as_ref().map(|id| format!(" id: {id}")).unwrap_or_default();
        self.wire.log.push(Side::Agent, &format!("({} event{id}) {data}", self.name));
        match serde_json::from_str::<Value>(&data) {
            Ok(message) if message.is_object() => Ok(NextEvent::Event(StreamEvent { id: event.id, message })),
            _ => {
                let beginning: String = data.chars().take(100).collect();
                Err(fail(format!("the data of an event is no message: {beginning}")))
            }
        }
    }
}

/// A session with its stream.
pub(crate) struct HttpSession {
    pub(crate) connection: HttpConnection,
    pub(crate) id: String,
    pub(crate) stream: EventStream,
}

/// The events of a turn, the response included.
pub(crate) struct HttpTurn {
    pub(crate) events: Vec<StreamEvent>,
    /// The position of the response to the prompt, if it came.
    pub(crate) response: Option<usize>,
    /// The answers to the POSTs with which requests of the agent were answered.
    pub(crate) replies: Vec<HttpAnswer>,
    pub(crate) prompt: u64,
    pub(crate) has_ended: bool,
}

impl HttpSession {
    /// Sends a prompt and reads the stream of the session until its response.
    pub(crate) async fn turn(&mut self, text: &str) -> Result<HttpTurn, Finding> {
        let prompt = self.connection.new_id();
        self.connection.send(Some(&self.id), &prompt_request(prompt, &self.id, text)).await?;
        let deadline = Instant::now() + self.connection.wire.patience;
        let mut turn =
            HttpTurn { events: Vec::new(), response: None, replies: Vec::new(), prompt, has_ended: false };
        loop {
            match self.stream.next(deadline).await? {
                NextEvent::Event(event) => {
                    if let Some(reply) = reply_to(&event.message) {
                        turn.replies.push(self.connection.post(Some(&self.id), &reply).await?);
                    }
                    let is_response = is_response_to(&event.message, prompt);
                    turn.events.push(event);
                    if is_response {
                        turn.response = Some(turn.events.len() - 1);
                        return Ok(turn);
                    }
                }
                NextEvent::Quiet => return Ok(turn),
                NextEvent::End => {
                    turn.has_ended = true;
                    return Ok(turn);
                }
            }
        }
    }
}

/// Returns a prompt.
pub(crate) fn prompt_request(id: u64, session: &str, text: &str) -> Value {
    let params = serde_json::json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    request(id, "session/prompt", &params)
}
