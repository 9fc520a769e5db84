//! Our server behind a layer that breaks one rule.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use duologue_agent::schema::ToolCallUpdate;
use duologue_agent::{
    Agent, PermissionOption, PermissionOptionKind, Prompt, Server, StopReason, Transport, Turn,
};
use duologue_http::{AgentEndpoint, ServerOptions, router};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as ClientMessage;

/// The server without a fault.
pub(crate) const NONE: &str = "none";
/// The token of the server.
pub(crate) const TOKEN: &str = "the-token-of-the-tests";

const CONNECTION: &str = "acp-connection-id";
const SESSION: &str = "acp-session-id";
const CURSOR: &str = "last-event-id";
const SECRET: &str = "acp-resume";

/// An agent that sends some updates and requests a permission.
#[derive(Clone)]
struct Asking;

impl Agent for Asking {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        for part in ["one", "two", "three"] {
            message.push(part).await?;
        }
        let options = vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)];
        turn.request_permission(ToolCallUpdate::new("call"), options).await?;
        message.push("four").await?;
        Ok(StopReason::EndTurn)
    }
}

async fn run_agent(transport: Transport) {
    let _ = Server::new(Asking).serve(transport).await;
}

/// The state of a server.
struct FaultyServer {
    fault: &'static str,
    /// The address of the same server without a fault, for sockets.
    inner: std::net::SocketAddr,
    /// The response to the last `initialize`, for a server that gives an id twice.
    last_initialize: Mutex<Option<(HeaderMap, Vec<u8>)>>,
    /// The connections whose stream was opened.
    opened: Mutex<HashSet<String>>,
    /// The secret of the last connection over a socket.
    secret: Mutex<Option<Value>>,
}

/// Starts a server and returns its address.
pub(crate) async fn start(fault: &'static str) -> String {
    let endpoint = AgentEndpoint::new(run_agent);
    let mut options = ServerOptions::default();
    options.token = Some(TOKEN.into());
    let inner = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let state = Arc::new(FaultyServer {
        fault,
        inner: inner.local_addr().expect("an address"),
        last_initialize: Mutex::default(),
        opened: Mutex::default(),
        secret: Mutex::default(),
    });
    let app = router(endpoint.clone(), options.clone());
    tokio::spawn(async move { axum::serve(inner, router(endpoint, options)).await });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("http://{}/acp", listener.local_addr().expect("an address"));
    let app = app.layer(from_fn_with_state(state, layer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn status(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

/// Returns the open stream of a server that sends nothing.
fn silent(mut response: Response) -> Response {
    let nothing = stream::pending::<Result<Vec<u8>, std::io::Error>>();
    *response.body_mut() = Body::from_stream(nothing);
    response
}

/// Passes a request to our server, and breaks the rule of the fault.
async fn layer(State(server): State<Arc<FaultyServer>>, mut request: Request, next: Next) -> Response {
    let fault = server.fault;
    if request.uri().path() == "/health" {
        return if fault == "health" { status(500) } else { next.run(request).await };
    }
    let headers = request.headers_mut();
    let set = |headers: &mut HeaderMap, name: HeaderName, value: &str| {
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
    };
    match fault {
        "token-required" => set(headers, AUTHORIZATION, &format!("Bearer {TOKEN}")),
        "origin-refused" => _ = headers.remove(ORIGIN),
        "host-refused" => set(headers, HOST, "localhost"),
        "http-content-type" => set(headers, CONTENT_TYPE, "application/json"),
        "sse-accept" => set(headers, ACCEPT, "text/event-stream"),
        "sse-secret" => _ = headers.remove(SECRET),
        "sse-cursor-gone" if headers.get(CURSOR).is_some_and(|cursor| cursor.len() > 3) => {
            headers.remove(CURSOR);
        }
        "sse-replay" => {
            let cursor = headers.get(CURSOR).and_then(|cursor| cursor.to_str().ok()?.parse::<u64>().ok());
            if let Some(cursor) = cursor {
                set(headers, HeaderName::from_static(CURSOR), &(cursor + 1).to_string());
            }
        }
        _ => {}
    }
    if request.headers().contains_key(UPGRADE) {
        return match fault {
            "no-websocket" => status(426),
            fault if fault.starts_with("ws-") => upgrade(server, request, next).await,
            _ => next.run(request).await,
        };
    }
    if fault == "no-http" {
        return status(405);
    }
    match *request.method() {
        Method::POST => post(&server, request, next).await,
        Method::GET => get(&server, request, next).await,
        _ => delete(&server, request, next).await,
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn post(server: &FaultyServer, request: Request, next: Next) -> Response {
    let fault = server.fault;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let message: Option<Value> = serde_json::from_slice(&body).ok();
    let has_connection = parts.headers.contains_key(CONNECTION);
    let message = message.unwrap_or_default();
    match fault {
        "http-not-json" if message.is_null() => return status(500),
        "http-line-breaks" if body.contains(&b'\n') => return status(400),
        "http-batch" if message.is_array() => return status(202),
        "http-connection-missing" if !has_connection && message["method"] != "initialize" => {
            return status(404);
        }
        "http-session-mismatch" if text_of(&parts.headers, SESSION).as_deref() == Some("another") => {
            return status(500);
        }
        _ => {}
    }
    let is_initialize = message["method"] == "initialize" && parts.headers.contains_key(AUTHORIZATION);
    if fault == "http-connection-ids" && is_initialize {
        let last = server.last_initialize.lock().expect("no panic").clone();
        if let Some((headers, body)) = last {
            let mut response = Response::new(Body::from(body));
            *response.headers_mut() = headers;
            return response;
        }
    }
    let mut response = next.run(Request::from_parts(parts, Body::from(body))).await;
    match (fault, response.status().as_u16()) {
        ("http-initialize", 200) => _ = response.headers_mut().remove(CONNECTION),
        ("http-connection-ids", 200) => {
            let (parts, body) = response.into_parts();
            let body = to_bytes(body, 1 << 20).await.expect("a body").to_vec();
            *server.last_initialize.lock().expect("no panic") = Some((parts.headers.clone(), body.clone()));
            response = Response::from_parts(parts, Body::from(body));
        }
        ("resume-advertised", 200) => {
            let (mut parts, body) = response.into_parts();
            let body = to_bytes(body, 1 << 20).await.expect("a body");
            let mut message: Value = serde_json::from_slice(&body).expect("JSON");
            let transport = &mut message["result"]["agentCapabilities"]["transport"];
            transport["resumable"]["retentionMessages"] = json!("many");
            parts.headers.remove("content-length");
            response = Response::from_parts(parts, Body::from(message.to_string()));
        }
        ("http-connection-unknown", 404) => return status(410),
        ("http-accepted", 202) => *response.status_mut() = StatusCode::OK,
        ("sse-agent-request", 202) if message.get("method").is_none() => {
            *response.status_mut() = StatusCode::OK;
        }
        _ => {}
    }
    response
}

async fn get(server: &FaultyServer, request: Request, next: Next) -> Response {
    let fault = server.fault;
    let (connection, session) = (text_of(request.headers(), CONNECTION), text_of(request.headers(), SESSION));
    let has_cursor = request.headers().contains_key(CURSOR);
    match fault {
        "sse-connection-missing" if connection.is_none() => return status(404),
        "sse-session-unknown" if session.as_deref() == Some("no-such-session") => return status(500),
        _ => {}
    }
    let mut response = next.run(request).await;
    match (fault, response.status().as_u16()) {
        ("sse-connection-unknown", 404) => return status(410),
        ("sse-second", 409) => return status(500),
        (_, 200) => {}
        _ => return response,
    }
    let first =
        connection.is_some_and(|id| session.is_some() || server.opened.lock().expect("no panic").insert(id));
    match fault {
        "sse-opens" => {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }
        "sse-connection-answers" if session.is_none() => return silent(response),
        "sse-session-answers" if session.is_some() => return silent(response),
        "sse-missed" if !first && !has_cursor => return silent(response),
        "sse-session-only" if session.is_some() => {
            let params = json!({"sessionId": "stray", "update": {"sessionUpdate": "x"}});
            let stray = json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
            let stray = format!("id: 0\ndata: {stray}\n\n");
            let (parts, body) = response.into_parts();
            let body = stream::iter([Ok(stray.into())]).chain(body.into_data_stream());
            response = Response::from_parts(parts, Body::from_stream(body));
        }
        "sse-deleted" => {
            let (parts, body) = response.into_parts();
            let body = body.into_data_stream().chain(stream::pending());
            response = Response::from_parts(parts, Body::from_stream(body));
        }
        "sse-event-ids" => {
            let (parts, body) = response.into_parts();
            let body = body.into_data_stream().map(|chunk| {
                let text = String::from_utf8(chunk?.into()).expect("UTF-8");
                let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("id:"));
                Ok::<_, axum::Error>(lines.collect::<String>())
            });
            response = Response::from_parts(parts, Body::from_stream(body));
        }
        _ => {}
    }
    response
}

async fn delete(server: &FaultyServer, request: Request, next: Next) -> Response {
    let fault = server.fault;
    server.last_initialize.lock().expect("no panic").take();
    let has_connection = request.headers().contains_key(CONNECTION);
    match fault {
        "http-delete-missing" if !has_connection => return status(202),
        "http-deleted" if has_connection => return status(202),
        _ => {}
    }
    let mut response = next.run(request).await;
    if fault == "http-delete" && response.status() == 202 {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// Opens a socket to the server without a fault, and relays messages.
async fn upgrade(server: Arc<FaultyServer>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    // Our server decides on the access.
    if text_of(&parts.headers, "authorization") != Some(format!("Bearer {TOKEN}"))
        || parts.headers.contains_key(ORIGIN)
        || !text_of(&parts.headers, "host").is_some_and(|host| host.starts_with("127.0.0.1"))
    {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let stream = TcpStream::connect(server.inner).await.expect("the inner server");
    let request = axum::http::Request::builder()
        .uri(format!("ws://{}/acp", server.inner))
        .header(HOST, server.inner.to_string())
        .header(AUTHORIZATION, format!("Bearer {TOKEN}"))
        .header("connection", "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(())
        .expect("a request");
    let (inner, answer) = tokio_tungstenite::client_async(request, stream).await.expect("a socket");
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.expect("an upgrade");
    let fault = server.fault;
    let mut response = upgrade.on_upgrade(move |outer| async move { relay(&server, outer, inner).await });
    if fault != "ws-upgrade" {
        response.headers_mut().insert(CONNECTION, answer.headers()[CONNECTION].clone());
    }
    response
}

async fn relay(server: &FaultyServer, mut outer: WebSocket, mut inner: WebSocketStream<TcpStream>) {
    let fault = server.fault;
    let (mut is_first, mut received) = (true, 0);
    loop {
        tokio::select! {
            message = outer.recv() => {
                let text = match message {
                    Some(Ok(Message::Text(text))) => text.as_str().to_owned(),
                    Some(Ok(Message::Binary(_))) if fault == "ws-binary" => return,
                    // The answers to both are written by the next read.
                    Some(Ok(Message::Ping(_))) if fault == "ws-ping" => return,
                    Some(Ok(Message::Close(_))) if fault == "ws-close" => return,
                    Some(Ok(Message::Close(_))) => {
                        let _ = inner.close(None).await;
                        while let Some(Ok(_)) = inner.next().await {}
                        while let Some(Ok(_)) = outer.recv().await {}
                        return;
                    }
                    Some(Ok(_)) => continue,
                    _ => return,
                };
                let mut message: Value = serde_json::from_str(&text).unwrap_or_default();
                let is_resume = message["method"] == "stream/resume";
                let params = &mut message["params"];
                let resumed = json!({"jsonrpc": "2.0", "method": "stream/resumed", "params": {"received": 0}});
                let answers = match fault {
                    "ws-line-breaks" => text.contains('\n'),
                    "ws-first-frame" if std::mem::take(&mut is_first) => {
                        if message["method"] != "initialize" && !is_resume {
                            continue;
                        }
                        false
                    }
                    "ws-resume-secret" if is_resume => {
                        if params["connectionId"] != "no-such-connection" {
                            params["secret"] = server.secret.lock().expect("no panic").clone().unwrap_or_default();
                        }
                        false
                    }
                    "ws-resume-unknown" => is_resume && params["connectionId"] == "no-such-connection",
                    "ws-cursor-gone" => is_resume && params["cursors"][0]["cursor"] == "no-such-cursor",
                    _ => false,
                };
                if answers && fault == "ws-line-breaks" {
                    return;
                }
                if answers {
                    let _ = outer.send(Message::text(resumed.to_string())).await;
                    continue;
                }
                let text = if is_resume { message.to_string() } else { text };
                if inner.send(ClientMessage::text(text)).await.is_err() {
                    return;
                }
            }
            message = inner.next() => {
                let text = match message {
                    Some(Ok(ClientMessage::Text(text))) => text.as_str().to_owned(),
                    Some(Ok(ClientMessage::Close(close))) => {
                        let code = close.map_or(1000, |close| close.code.into());
                        let close = axum::extract::ws::CloseFrame { code, reason: "".into() };
                        let _ = outer.send(Message::Close(Some(close))).await;
                        while let Some(Ok(_)) = outer.recv().await {}
                        return;
                    }
                    Some(Ok(_)) => continue,
                    _ => return,
                };
                received += 1;
                let message: Value = serde_json::from_str(&text).expect("JSON");
                let secret = &message["result"]["_meta"]["duologue"]["resume"]["secret"];
                if secret.is_string() {
                    *server.secret.lock().expect("no panic") = Some(secret.clone());
                }
                let text = match fault {
                    "ws-initialize" => text.replace("\"result\"", "\"error\""),
                    // The first frame behind `stream/resumed` is lost.
                    "ws-resume" if received == 2 && message["id"].is_null() => continue,
                    "ws-turn" if text.contains("stopReason") => {
                        let _ = outer.send(Message::text(text.clone())).await;
                        text
                    }
                    _ => text,
                };
                if outer.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        }
    }
}
