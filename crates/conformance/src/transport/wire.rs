//! Requests and messages to a server, each of which is logged for the report.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use duologue_http::Error as HttpError;
use duologue_http::raw::{RawClient, RawHttpResponse};
use duologue_transcript::{Record, RecordEvent, RecordedLine, Side};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::finding::{Finding, fail};
use crate::harness::TestClient;
use crate::raw_process::{first_permission, seconds};

/// The bytes of all lines that are logged in a run.
const LOG_BYTES: usize = 16 * 1024 * 1024;
/// The characters of a body that a finding shows.
const SHOWN: usize = 200;

/// Everything that was sent and received, one line for each message.
#[derive(Clone)]
pub(crate) struct ExchangeLog {
    start: Instant,
    records: Rc<RefCell<(Vec<Record>, usize)>>,
}

impl ExchangeLog {
    pub(crate) fn new() -> Self {
        ExchangeLog { start: Instant::now(), records: Rc::default() }
    }

    pub(crate) fn push(&self, from: Side, text: &str) {
        let (records, bytes) = &mut *self.records.borrow_mut();
        *bytes += text.len();
        if *bytes <= LOG_BYTES {
            let line = RecordedLine::new(from, text.replace(['\n', '\r'], " ").into_bytes());
            records.push(Record::new(self.start.elapsed(), RecordEvent::Line(line)));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.borrow().0.len()
    }

    pub(crate) fn since(&self, mark: usize) -> Vec<Record> {
        self.records.borrow().0.get(mark..).unwrap_or_default().to_vec()
    }
}

/// A complete answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) connection_id: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns the status and the beginning of the body.
    pub(crate) fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let beginning: String = body.chars().take(SHOWN).collect();
        if beginning.is_empty() {
            format!("status {}", self.status)
        } else {
            format!("status {}: {beginning}", self.status)
        }
    }
}

/// A client with a log.
#[derive(Clone)]
pub(crate) struct ServerWire {
    pub(crate) client: RawClient,
    pub(crate) log: ExchangeLog,
    pub(crate) patience: Duration,
}

impl ServerWire {
    /// Sends a request and reads its whole answer. An event stream is not read.
    pub(crate) async fn request(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<HttpAnswer, Finding> {
        self.request_to(None, method, headers, body).await
    }

    /// As [`request`](Self::request), to another path than that of the endpoint.
    pub(crate) async fn request_to(
        &self,
        path: Option<&str>,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<HttpAnswer, Finding> {
        let response = self.head(path, method, headers, body).await.map_err(|error| lost(method, &error))?;
        self.read(method, response).await
    }

    /// Sends a request and reads the head of its answer.
    pub(crate) async fn head(
        &self,
        path: Option<&str>,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<RawHttpResponse, HttpError> {
        let mut line = format!("{method} {}", path.unwrap_or(self.client.path()));
        for (name, value) in headers {
            // A token is not shown.
            let value = if name.eq_ignore_ascii_case("authorization") { "…" } else { value };
            line += &format!(" {name}: {value}");
        }
        if !body.is_empty() {
            line += &format!(" {body}");
        }
        self.log.push(Side::Client, &line);
        let response = self.client.send(method, path, headers, body).await;
        match &response {
            Ok(response) => {
                let mut line = response.status().to_string();
                for name in ["content-type", "acp-connection-id", "acp-session-id"] {
                    if let Some(value) = response.header(name) {
                        line += &format!(" {name}: {value}");
                    }
                }
                self.log.push(Side::Agent, &line);
            }
            Err(error) => self.log.push(Side::Agent, &format!("({error})")),
        }
        response
    }

    /// Reads the body of an answer.
    pub(crate) async fn read(&self, method: &str, response: RawHttpResponse) -> Result<HttpAnswer, Finding> {
        let header = |name: &str| response.header(name).map(str::to_owned);
        let mut answer = HttpAnswer {
            status: response.status(),
            content_type: header("content-type").unwrap_or_default(),
            connection_id: header("acp-connection-id"),
            body: Vec::new(),
        };
        if is_media_type(&answer.content_type, "text/event-stream") {
            return Ok(answer);
        }
        answer.body = match timeout(self.patience, response.body()).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return Err(lost(method, &error)),
            Err(_) => {
                let limit = seconds(self.patience);
                return Err(fail(format!("the body of the answer to {method} did not end within {limit}")));
            }
        };
        if !answer.body.is_empty() {
            self.log.push(Side::Agent, &String::from_utf8_lossy(&answer.body));
        }
        Ok(answer)
    }
}

/// Returns the failure of a request without an answer.
fn lost(method: &str, error: &HttpError) -> Finding {
    fail(format!("{method} was not answered: {error}"))
}

/// Compares a media type without its parameters.
pub(crate) fn is_media_type(value: &str, expected: &str) -> bool {
    value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(expected))
}

/// Returns a request.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Returns the request `initialize` of version 1.
pub(crate) fn initialize() -> Value {
    request(0, "initialize", &TestClient::Bare.initialize_params(1))
}

/// Returns true for the response to a request of ours.
pub(crate) fn is_response_to(message: &Value, id: u64) -> bool {
    message["id"] == id && message.get("method").is_none()
}

/// Returns the response to a request of the agent, if the message is one. Permissions are allowed, everything else is unknown.
pub(crate) fn reply_to(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    let method = message["method"].as_str()?;
    Some(if method == "session/request_permission" {
        let outcome = first_permission(&message["params"]);
        json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})
    } else {
        let error = json!({"code": -32601, "message": "the client has no such method"});
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    })
}

/// Returns the session of a request or notification.
pub(crate) fn session_of(message: &Value) -> Option<&str> {
    message.get("method")?;
    message["params"]["sessionId"].as_str()
}

/// Returns the member of the response to `initialize` that advertises resumption.
pub(crate) fn resumable(initialized: &Value) -> Option<&Value> {
    ["agentCapabilities", "capabilities"]
        .into_iter()
        .map(|name| &initialized[name]["transport"]["resumable"])
        .find(|resumable| resumable.is_object())
}

/// Returns the secret with which a client resumes its connection.
pub(crate) fn resume_secret(initialized: &Value) -> Option<&str> {
    initialized["_meta"]["duologue"]["resume"]["secret"].as_str()
}

/// Returns a message without its cursor, which a server need not repeat.
pub(crate) fn without_cursor(message: &Value) -> Value {
    let mut message = message.clone();
    for member in ["params", "result"] {
        let Some(body) = message.get_mut(member).and_then(Value::as_object_mut) else { continue };
        let Some(meta) = body.get_mut("_meta").and_then(Value::as_object_mut) else { continue };
        meta.remove("acp/cursor");
        if meta.is_empty() {
            body.remove("_meta");
        }
    }
    message
}

/// Returns true for a message with the state of the turn, which a server sends after a resume.
pub(crate) fn is_turn_state(message: &Value) -> bool {
    let params = &message["params"];
    params["_meta"].get("acp/turnState").is_some() || params["update"]["sessionUpdate"] == "state_update"
}
