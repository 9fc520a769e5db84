//! The requests of HTTP with SSE: a POST for each message of the client, a GET for each stream, and a DELETE.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use duologue_rpc::{Limits, Malformed, RpcMessage, SecretText};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use crate::frame_view::FrameView;
use crate::server::endpoint::{
    CloseReason, ConnectRequest, ConnectionKind, Endpoint, IncomingFrame, Rejection, ResumeRefused,
    ServerConnection, SourceEnd, StreamRequest,
};
use crate::server::event_stream::event_stream;
use crate::server::router::{RouterShared, error, request_head};
use crate::server::secret::random_token;
use crate::wire::{
    CONNECTION_ID, FRAME_NUMBER, INITIALIZE, INTERNAL_ERROR, LAST_EVENT_ID, RESUME_SECRET,
    RemoteConnectionId, SESSION_ID, StreamId,
};

/// The JSON-RPC code of a request that is refused.
pub(crate) const INVALID_REQUEST: i64 = -32600;

/// A request that is refused.
pub(crate) struct HttpRefusal {
    status: StatusCode,
    code: i64,
    message: String,
}

impl HttpRefusal {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        HttpRefusal { status, code: INVALID_REQUEST, message: reason.into() }
    }

    fn of_agent(status: StatusCode, reason: String) -> Self {
        HttpRefusal { status, code: INTERNAL_ERROR, message: reason }
    }

    pub(crate) fn into_response(self) -> Response {
        let mut response = error(self.status, self.code, &self.message);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Rejection> for HttpRefusal {
    fn from(rejection: Rejection) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        HttpRefusal { status, code: rejection.code, message: rejection.message }
    }
}

impl From<ResumeRefused> for HttpRefusal {
    fn from(refused: ResumeRefused) -> Self {
        let status = match refused {
            ResumeRefused::Unknown => StatusCode::NOT_FOUND,
            ResumeRefused::CursorGone | ResumeRefused::InUse => StatusCode::CONFLICT,
            ResumeRefused::TooManyStreams { .. } => StatusCode::TOO_MANY_REQUESTS,
            ResumeRefused::InvalidCursor | ResumeRefused::Unsupported => StatusCode::BAD_REQUEST,
        };
        HttpRefusal::new(status, format!("{}: {refused}", refused.reason()))
    }
}

impl<E: Endpoint> RouterShared<E> {
    /// Takes one message of a client. `initialize` is answered with its response, everything else with 202.
    pub(crate) async fn post(&self, parts: Parts, body: Body) -> Result<Response, HttpRefusal> {
        let Ok(_permit) = self.requests.try_acquire() else {
            let limit = self.options.requests;
            let reason =
                format!("request limit reached ({limit}); retry later or raise `ServerOptions::requests`");
            return Err(HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, reason));
        };
        if !is_json(&parts.headers) {
            let reason = "the message has to have `Content-Type: application/json`";
            return Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        let text = self.read_body(body).await?;
        match RpcMessage::read(&text, &Limits::default()) {
            Some(Err(Malformed::Noise(error))) => {
                let message = error.message.into_owned();
                return Err(HttpRefusal {
                    status: StatusCode::BAD_REQUEST,
                    code: error.code.0.into(),
                    message,
                });
            }
            None => return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "the body is empty")),
            // The agent answers a request with invalid members by itself.
            Some(_) => {}
        }
        let view = FrameView::read(&text);
        if view.is_request(INITIALIZE) && !parts.headers.contains_key(CONNECTION_ID) {
            return self.initialize(parts, text.clone()).await;
        }
        let connection = self.connection(&parts).await?;
        let mut session = self.session(&parts.headers)?;
        if let Some(named) = view.params_session() {
            if session.as_ref().is_some_and(|session| **session != *named) {
                let reason = "the header `Acp-Session-Id` is another one than `params.sessionId`";
                return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, reason));
            }
            session = Some(named.into());
        }
        let number = match parts.headers.get(FRAME_NUMBER) {
            None => None,
            Some(number) => {
                Some(number.to_str().ok().and_then(|number| number.parse().ok()).ok_or_else(|| {
                    let reason = "the header `Acp-Frame-Number` is not a number";
                    HttpRefusal::new(StatusCode::BAD_REQUEST, reason)
                })?)
            }
        };
        let frame = IncomingFrame { text: text.clone(), session: session.clone(), number };
        let after = self.options.stall_timeout;
        match timeout(after, connection.accept(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(rejection)) => {
                return Err(rejection.into());
            }
            Err(_) => {
                let reason =
                    format!("the agent took no message for {after:?} (`ServerOptions::stall_timeout`)");
                return Err(HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, reason));
            }
        }
        Ok(response(StatusCode::ACCEPTED, Body::empty(), connection.id(), session.as_deref()))
    }

    async fn initialize(&self, parts: Parts, initialize: Bytes) -> Result<Response, HttpRefusal> {
        let id = random_token().map_err(|error| {
            HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random connection id: {error}"))
        })?;
        let request = ConnectRequest {
            id: RemoteConnectionId::new(id),
            kind: ConnectionKind::Events,
            head: request_head(parts),
            initialize,
        };
        let connection = self.endpoint.connect(request).await?;
        // The client does not learn the id of a connection whose response it does not wait for.
        let mut guard = UnansweredConnection(Some(connection.clone()));
        let after = self.options.initialize_timeout;
        let text = match timeout(after, connection.initialize_response()).await {
            Ok(Ok(text)) => text,
            Ok(Err(end)) => {
                let reason = match end {
                    SourceEnd::Failed(reason) => reason,
                    SourceEnd::Ended | SourceEnd::Superseded => "the agent has ended".into(),
                };
                return Err(HttpRefusal::of_agent(StatusCode::BAD_GATEWAY, reason));
            }
            Err(_) => {
                let reason =
                    format!("the agent did not answer in {after:?} (`ServerOptions::initialize_timeout`)");
                return Err(HttpRefusal::of_agent(StatusCode::GATEWAY_TIMEOUT, reason));
            }
        };
        if FrameView::read(&text).result.is_none() {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok(response);
        }
        guard.0 = None;
        let mut response = response(StatusCode::OK, Body::from(text), connection.id(), None);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Opens the stream of a connection or of a session.
    pub(crate) async fn open_events(&self, parts: Parts) -> Result<Response, HttpRefusal> {
        let accepts = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if !accepts.flat_map(|value| value.split(',')).any(|value| is_media_type(value, "text/event-stream"))
        {
            let reason = "send `Accept: text/event-stream` for a stream, or `Upgrade: websocket`";
            return Err(HttpRefusal::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        let permit = self.socket_permit()?;
        let connection = self.connection(&parts).await?;
        let session = self.session(&parts.headers)?;
        let text = |name| header_text(&parts.headers, name, self.options.id_bytes);
        let request = StreamRequest {
            stream: session.clone().map_or(StreamId::Connection, StreamId::Session),
            // An empty one is that of a client that has received no event.
            cursor: text(LAST_EVENT_ID)?.filter(|cursor| !cursor.is_empty()).map(Arc::from),
            secret: text(RESUME_SECRET)?.map(SecretText::from),
        };
        let source = connection.open_stream(request)?;
        let events = event_stream(source, &self.options);
        let body = events.map(move |event| {
            let _held = &permit;
            event
        });
        let body = Body::from_stream(body);
        let mut response = response(StatusCode::OK, body, connection.id(), session.as_deref());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }

    /// Ends a connection.
    pub(crate) async fn delete(&self, parts: Parts) -> Result<Response, HttpRefusal> {
        let connection = self.connection(&parts).await?;
        connection.close(CloseReason::Deleted).await;
        Ok(response(StatusCode::ACCEPTED, Body::empty(), connection.id(), None))
    }

    async fn connection(&self, parts: &Parts) -> Result<E::Connection, HttpRefusal> {
        let id = header_text(&parts.headers, CONNECTION_ID, self.options.id_bytes)?;
        let Some(id) = id else {
            let reason = "the header `Acp-Connection-Id` is missing";
            return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, reason));
        };
        let found = self.endpoint.find(&RemoteConnectionId::new(id), &request_head(parts.clone())).await;
        found.ok_or_else(|| ResumeRefused::Unknown.into())
    }

    fn session(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, HttpRefusal> {
        Ok(header_text(headers, SESSION_ID, self.options.id_bytes)?.map(Arc::from))
    }

    async fn read_body(&self, body: Body) -> Result<Bytes, HttpRefusal> {
        let limit = self.options.frame_bytes;
        let too_large = |bytes: u64| {
            let reason = format!("message of {bytes} bytes, limit {limit} (`ServerOptions::frame_bytes`)");
            HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
        };
        let stated = body.size_hint().lower();
        if stated > limit as u64 {
            return Err(too_large(stated));
        }
        let reading = async {
            let mut chunks = body.into_data_stream();
            let mut text = BytesMut::new();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.map_err(|error| {
                    HttpRefusal::new(StatusCode::BAD_REQUEST, format!("the body was not read: {error}"))
                })?;
                if text.len() + chunk.len() > limit {
                    return Err(too_large((text.len() + chunk.len()) as u64));
                }
                text.extend_from_slice(&chunk);
            }
            Ok(text.freeze())
        };
        let after = self.options.stall_timeout;
        timeout(after, reading).await.unwrap_or_else(|_| {
            let reason = format!("the body did not arrive in {after:?} (`ServerOptions::stall_timeout`)");
            Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, reason))
        })
    }
}

/// Ends a connection whose client has left before the response to `initialize`.
struct UnansweredConnection<C: ServerConnection>(Option<C>);

impl<C: ServerConnection> Drop for UnansweredConnection<C> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            tokio::spawn(async move { connection.close(CloseReason::ClientClosed).await });
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| is_media_type(value, "application/json"))
}

/// Compares a media type without its parameters.
fn is_media_type(value: &str, expected: &str) -> bool {
    value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(expected))
}

/// Returns the text of a header that a client can repeat no more than once.
fn header_text<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
    limit: usize,
) -> Result<Option<&'a str>, HttpRefusal> {
    let refusal =
        |why: String| HttpRefusal::new(StatusCode::BAD_REQUEST, format!("the header `{name}` {why}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refusal("was sent twice".into()));
    }
    let bytes = value.len();
    if bytes > limit {
        return Err(refusal(format!("has {bytes} bytes, limit {limit} (`ServerOptions::id_bytes`)")));
    }
    // Session ids can have any characters.
    std::str::from_utf8(value.as_bytes()).map(Some).map_err(|_| refusal("is not UTF-8".into()))
}

/// Creates a response with the ids of the connection and the session.
fn response(status: StatusCode, body: Body, id: &RemoteConnectionId, session: Option<&str>) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let ids = [(CONNECTION_ID, Some(id.as_str())), (SESSION_ID, session)];
    for (name, id) in ids {
        // A session id from the params can have characters that no header has.
        if let Some(id) = id
            && let Ok(value) = HeaderValue::from_bytes(id.as_bytes())
        {
            headers.insert(name, value);
        }
    }
    response
}
