//! The requests to an agent that serves the REST interface itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::raw_message::beginning;
use duologue_schema::TraceContext;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::clock::HubClock;
use crate::credential::AgentCredential;
use crate::deliveries::{DeliverySettings, honoured_wait};
use crate::gateway::config::{AgentConfig, GatewayConfig, GatewayLimits};
use crate::gateway::failure;
use crate::gateway::pauses::DoublingPause;
use crate::gateway::rest::path_of;
use crate::gateway::result_size::ResultSize;
use crate::outbound::{OutboundClient, OutboundError, OutboundResponse, OutboundSettings};

/// The first pause before the state of some work is read again. It doubles while nothing changes.
pub(crate) const FIRST_POLL: Duration = Duration::from_millis(200);
/// The longest of these pauses.
pub(crate) const LONGEST_POLL: Duration = Duration::from_secs(5);
/// The bytes of an answer beside those of its result.
const ANSWER_BYTES: usize = 64 * 1024;
/// The bytes of a refusal's text that are shown.
const REFUSAL_BYTES: usize = 1024;
/// The characters of an id that the id at the agent begins with.
const ID_CHARS: usize = 80;
/// The pause after which work returns to an agent that could not be reached. It doubles with each attempt.
const RETURN: DoublingPause = DoublingPause { first: Duration::from_secs(1), longest: Duration::MAX };

/// An agent that serves the REST interface itself.
pub(crate) struct RestPeer {
    /// The address of its routes.
    base: String,
    credential: AgentCredential,
    client: OutboundClient,
    pub(crate) result_size: ResultSize,
}

/// The reason for which a request has no answer.
#[derive(Debug)]
pub(crate) struct RestFault {
    pub(crate) code: String,
    pub(crate) message: String,
    /// The status of the response, if there is one.
    status: Option<u16>,
    /// True if the same request can succeed later.
    pub(crate) is_temporary: bool,
    /// The time before which the agent wants no other request.
    pub(crate) wait: Duration,
}

impl RestFault {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        RestFault {
            code: code.to_owned(),
            message: message.into(),
            status: None,
            is_temporary: false,
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        RestFault { is_temporary: true, ..RestFault::new(failure::UNREACHABLE, message) }
    }

    /// Returns true if the agent does not know the work, or has no route for its state.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.status, Some(404 | 405))
    }

    /// Returns true if the agent has refused the request, so it does nothing for it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.status, Some(400..=499))
    }

    /// Returns true if the agent does not show the work.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.status, Some(403 | 404))
    }

    /// Reads the error that an agent has answered. Its code can be any text.
    pub(crate) fn answered(error: &Value) -> Self {
        let code = error["code"].as_str().unwrap_or_default();
        let is_code = (1..=64).contains(&code.len())
            && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let message = error["message"].as_str().unwrap_or("the agent has named no reason");
        RestFault::new(if is_code { code } else { failure::AGENT_FAILED }, beginning(message, REFUSAL_BYTES))
    }
}

/// Returns the settings of requests to agents. Agents on this machine need the setting of callbacks.
pub(crate) fn outbound_settings(config: &GatewayConfig) -> OutboundSettings {
    OutboundSettings { allow_loopback: config.loopback_callbacks, ..OutboundSettings::default() }
}

/// Returns the credential of an agent elsewhere.
pub(crate) fn credential(agent: &AgentConfig, limits: &GatewayLimits) -> AgentCredential {
    AgentCredential::new(agent.auth.clone(), Duration::from_secs(limits.auth_seconds))
}

/// Returns the pause before the next attempt of work that an agent could not be given.
pub(crate) fn return_pause(attempts: u32) -> Duration {
    RETURN.after(attempts.saturating_sub(1))
}

/// Returns the id of a piece of work at the agent. All principals are one there, and may use one id. `seq` changes
/// when work is sent again, and is unique together with the time of creation.
pub(crate) fn id_at_agent(principal: &str, id: &str, created: u64, seq: u64) -> String {
    let digest = Sha256::digest(json!([principal, id, created, seq]).to_string());
    let start: String = id.chars().take(ID_CHARS).collect();
    digest.iter().take(16).fold(start + ".", |text, byte| format!("{text}{byte:02x}"))
}

/// Returns an answer, unless it is about other work than the request. An answer need not have an id.
pub(crate) fn answer_about(id: &str, name: &str, answer: Value) -> Result<Value, RestFault> {
    match answer.get(name) {
        None | Some(Value::Null) => Ok(answer),
        Some(Value::String(found)) if found == id => Ok(answer),
        Some(_) => Err(RestFault::new(
            failure::AGENT_FAILED,
            format!("the agent answered with another `{name}` than {id:?}"),
        )),
    }
}

/// Returns the headers of a request with the trace context of its work.
pub(crate) fn trace_headers(context: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(context) = context.and_then(|context| HeaderValue::from_str(context).ok()) {
        headers.insert(TraceContext::TRACEPARENT, context);
    }
    headers
}

impl RestPeer {
    pub(crate) fn new(
        agent: &AgentConfig,
        url: &str,
        config: &GatewayConfig,
        result_size: ResultSize,
    ) -> Arc<Self> {
        Arc::new(RestPeer {
            base: format!("{}{}", url.trim_end_matches('/'), path_of(&["agents", &agent.id])),
            credential: credential(agent, &config.limits),
            client: OutboundClient::new(outbound_settings(config)),
            result_size,
        })
    }

    /// Returns the answer to a GET of a path behind that of the agent.
    pub(crate) async fn get(&self, path: &[&str]) -> Result<Value, RestFault> {
        self.call(Method::GET, path, Bytes::new(), HeaderMap::new()).await
    }

    /// Returns the answer to a POST, with further headers.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        body: &impl Serialize,
        mut headers: HeaderMap,
    ) -> Result<Value, RestFault> {
        let body =
            serde_json::to_vec(body).map_err(|error| RestFault::new(failure::INTERNAL, error.to_string()))?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call(Method::POST, path, body.into(), headers).await
    }

    /// Returns a result, unless it is over its limit. A part of a value is worth nothing, so it is not cut.
    pub(crate) fn checked_result<'a>(&self, result: &'a Value) -> Result<Option<&'a Value>, RestFault> {
        match result {
            Value::Null => Ok(None),
            result if result.to_string().len() <= self.result_size.part => Ok(Some(result)),
            _ => Err(too_large(self.result_size)),
        }
    }

    /// Sends a request, and again with a new token if the first one is refused.
    async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Bytes,
        mut headers: HeaderMap,
    ) -> Result<Value, RestFault> {
        let url = format!("{}{}", self.base, path_of(path));
        let limit = self.result_size.part.saturating_add(ANSWER_BYTES);
        let mut is_fresh = false;
        loop {
            let token = self.credential.token().await.map_err(RestFault::unreachable)?;
            if let Some(token) = &token
                && let Ok(mut value) = format!("Bearer {}", token.as_str()).parse::<HeaderValue>()
            {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            let answered =
                self.client.fetch(method.clone(), &url, headers.clone(), body.clone(), limit).await;
            let (OutboundResponse { status, retry_after }, bytes) =
                answered.map_err(|error| self.not_answered(&error))?;
            if status == StatusCode::UNAUTHORIZED
                && self.credential.refuse(token.as_ref()).await
                && !std::mem::replace(&mut is_fresh, true)
            {
                continue;
            }
            let parsed = serde_json::from_slice::<Value>(&bytes);
            // It would be in the result of a task.
            if parsed.as_ref().is_ok_and(|parsed| self.credential.is_in(parsed)) {
                let why = "the answer of the agent has the credential of the server";
                return Err(RestFault::new(failure::AGENT_FAILED, why));
            }
            return read(status, parsed.ok()).map_err(|fault| {
                let wall = HubClock::system().now().wall;
                let limit = DeliverySettings::default().retry_after;
                RestFault { wait: honoured_wait(retry_after.as_deref(), wall, limit), ..fault }
            });
        }
    }

    fn not_answered(&self, error: &OutboundError) -> RestFault {
        match error {
            OutboundError::BodyTooLarge { .. } => too_large(self.result_size),
            error => RestFault::unreachable(error.to_string()),
        }
    }
}

fn too_large(ResultSize { part: limit, whole }: ResultSize) -> RestFault {
    let remedy = match limit < whole {
        true => "raise `limits.result_bytes`",
        false => {
            "the store holds no larger one (`limits.result_bytes`), so the agent has to answer with less"
        }
    };
    RestFault::new(
        failure::TOO_LARGE,
        format!("the answer of the agent is over the limit of {limit} bytes; {remedy}"),
    )
}

/// Reads an answer. A redirect is not followed.
fn read(status: StatusCode, parsed: Option<Value>) -> Result<Value, RestFault> {
    let number = status.as_u16();
    let fault = match number {
        200..=299 => {
            return parsed
                .ok_or_else(|| RestFault::new(failure::AGENT_FAILED, "the answer of the agent is not JSON"));
        }
        // The credential is that of the server, and not of the principal whose work this is.
        401 => RestFault::unreachable(
            "the agent refuses the credential of the server (status 401); its operator sets `agents.auth`",
        ),
        408 | 425 | 429 | 500.. => {
            RestFault::unreachable(format!("the agent answered with the status {number}"))
        }
        300..=399 => RestFault::new(
            failure::AGENT_FAILED,
            format!("the agent answered with the status {number}, and redirects are not followed"),
        ),
        _ => match parsed {
            Some(refusal) if refusal["code"].is_string() => {
                let is_temporary = refusal["retryable"] == true;
                RestFault { is_temporary, ..RestFault::answered(&refusal) }
            }
            _ => {
                RestFault::new(failure::AGENT_FAILED, format!("the agent answered with the status {number}"))
            }
        },
    };
    Err(RestFault { status: Some(number), ..fault })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn peer(listener: &TcpListener, settings: OutboundSettings) -> RestPeer {
        RestPeer {
            base: format!("http://{}/agents/a", listener.local_addr().unwrap()),
            credential: AgentCredential::new(None, Duration::ZERO),
            client: OutboundClient::new(settings),
            result_size: ResultSize { part: 1, whole: 2 },
        }
    }

    #[test]
    fn two_principals_and_two_attempts_have_different_ids() {
        let ids = [("alice", "t1", 1, 1), ("bob", "t1", 1, 1), ("alice", "t1", 1, 2), ("alice", "t1", 2, 1)]
            .map(|(principal, id, created, seq)| id_at_agent(principal, id, created, seq));
        for (index, id) in ids.iter().enumerate() {
            assert!(id.starts_with("t1.") && !ids[..index].contains(id), "{ids:?}");
        }
        assert_eq!(ids[0], id_at_agent("alice", "t1", 1, 1));
        assert!(id_at_agent("alice", &"ü".repeat(128), 1, 1).chars().count() <= 128);
    }

    #[test]
    fn an_answer_is_about_the_work_that_was_asked_for() {
        for (answer, is_read) in [
            (json!({"taskId": "t1"}), true),
            (json!({"taskId": null}), true),
            (json!({}), true),
            (json!({"taskId": "t2"}), false),
            (json!({"taskId": 1}), false),
        ] {
            let read = answer_about("t1", "taskId", answer.clone());
            assert_eq!(read.map_err(|fault| fault.code).ok(), is_read.then_some(answer));
        }
    }

    #[tokio::test]
    async fn an_agent_that_does_not_answer_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = OutboundSettings { allow_loopback: true, ..OutboundSettings::default() };
        settings.total_timeout = Duration::from_millis(50);
        let agent = peer(&listener, settings);
        let fault = agent.post(&["tasks"], &json!({}), HeaderMap::new()).await.unwrap_err();
        assert!(fault.is_temporary && fault.message.contains("total_timeout"), "{fault:?}");
        drop(listener);
        let fault = agent.get(&["tasks", "t1"]).await.unwrap_err();
        assert!(fault.is_temporary && fault.code == "unreachable", "{fault:?}");
    }

    #[tokio::test]
    async fn the_time_that_an_agent_asks_for_is_kept_up_to_a_limit() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent = peer(&listener, OutboundSettings { allow_loopback: true, ..OutboundSettings::default() });
        for (header, seconds) in [("retry-after: 7\r\n", 7), ("retry-after: 86400\r\n", 3600), ("", 0)] {
            let answer = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                _ = socket.read(&mut [0; 4096]).await.unwrap();
                let head = format!("HTTP/1.1 429 Too Many Requests\r\n{header}content-length: 0\r\n\r\n");
                socket.write_all(head.as_bytes()).await.unwrap();
            };
            let (fault, ()) = tokio::join!(agent.get(&["tasks", "t1"]), answer);
            let fault = fault.unwrap_err();
            assert!(fault.is_temporary && fault.wait == Duration::from_secs(seconds), "{fault:?}");
        }
    }

    #[test]
    fn answers_are_read_by_their_status() {
        let refusal = r#"{"code": "conflict", "message": "m", "retryable": false}"#;
        for (status, body, code, is_temporary) in [
            (200, "<html>", "agent_failed", false),
            (302, "{}", "agent_failed", false),
            (401, refusal, "unreachable", true),
            (409, refusal, "conflict", false),
            (409, r#"{"code": "key_in_use", "message": "m", "retryable": true}"#, "key_in_use", true),
            (400, r#"{"code": "NO CODE", "message": "m"}"#, "agent_failed", false),
            (404, "<html>", "agent_failed", false),
            (429, refusal, "unreachable", true),
            (503, refusal, "unreachable", true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let fault = read(status, serde_json::from_str(body).ok()).unwrap_err();
            assert_eq!((fault.code.as_str(), fault.is_temporary), (code, is_temporary), "{status} {fault:?}");
        }
        assert_eq!(read(StatusCode::ACCEPTED, Some(json!([1]))).unwrap(), json!([1]));
    }
}
