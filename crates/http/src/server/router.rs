//! The router: checks of access, WebSocket upgrades, and the way to the requests of HTTP with SSE.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request};
use axum::http::header::{ALLOW, CONTENT_TYPE, UPGRADE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::accept::{ConnectionStanding, serve_connections};
use crate::server::access;
use crate::server::axum_socket::AxumSocket;
use crate::server::endpoint::{Endpoint, HttpRequestHead};
use crate::server::http_requests::{HttpRefusal, INVALID_REQUEST};
use crate::server::listeners::{Listeners, PlainListener};
use crate::server::options::ServerOptions;
use crate::server::secret::random_token;
use crate::server::serve_socket::{SocketContext, serve_socket};
#[cfg(feature = "tls")]
use crate::server::tls_listener::TlsListener;
use crate::socket::PingLimit;
use crate::wire::{CONNECTION_ID, RemoteConnectionId, STREAM_ACK, authorization};

/// The buffer for writing to a socket. A frame that fills it is written at once.
const WRITE_BUFFER: usize = 16 * 1024;

/// Creates a router with `/acp` (see [`ServerOptions::path`]) and `/health`.
///
/// It is for a program that serves other paths too; [`serve`] is shorter. Disable Nagle's algorithm on the listener, for
/// example with `axum::serve::ListenerExt::tap_io`: without that, small messages can wait for 40 ms.
pub fn router<E: Endpoint>(endpoint: E, options: ServerOptions) -> Router {
    let checked = options.clone();
    let health = move |request: Request| async move {
        match checked.foreign_request(request.headers()) {
            Some(reason) => {
                checked.note_refusal(request.method(), request.uri(), StatusCode::FORBIDDEN, &reason);
                error(StatusCode::FORBIDDEN, INVALID_REQUEST, &reason)
            }
            None => Response::new(Body::from("ok")),
        }
    };
    endpoint_router(endpoint, options).route("/health", get(health))
}

/// Creates a router with the path of an endpoint alone, for a program that merges several.
pub fn endpoint_router<E: Endpoint>(endpoint: E, options: ServerOptions) -> Router {
    let sockets = Arc::new(Semaphore::new(options.sockets.min(Semaphore::MAX_PERMITS)));
    let requests = Semaphore::new(options.requests.min(Semaphore::MAX_PERMITS));
    let path = options.path.clone();
    let (endpoint, options) = (Arc::new(endpoint), Arc::new(options));
    let shared = Arc::new(RouterShared { endpoint, options, sockets, requests });
    Router::new().route(&path, any(move |request: Request| async move { shared.handle(request).await }))
}

/// Serves an endpoint to the clients of a TCP listener and of a Unix socket, at `/acp` (see [`ServerOptions::path`]). With the feature `tls` and
/// `ServerOptions::tls` the connections are encrypted; [`router`] leaves that to the program.
///
/// # Errors
///
/// If the listener fails. [`io::ErrorKind::InvalidInput`] for an address that is not a loopback address without
/// [`ServerOptions::token`]: everybody who reaches it could use the agent.
///
/// # Cancel safety
///
/// Dropping the future closes the listener. Open connections go on until the runtime ends.
pub async fn serve<E: Endpoint>(
    listeners: impl Into<Listeners>,
    endpoint: E,
    options: ServerOptions,
) -> io::Result<()> {
    let listeners = listeners.into();
    let address = listeners.tcp.as_ref().map(TcpListener::local_addr).transpose()?;
    if let (None, Some(address)) = (&options.token, address)
        && !address.ip().is_loopback()
    {
        let why = format!("{address} can be reached by others; set `ServerOptions::token`");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let logged = options.clone();
    let unknown = move |request: Request| async move {
        let refused = logged.refused(request.method(), request.uri(), request.headers());
        refused.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
    };
    serve_router(listeners, router(endpoint, options.clone()).fallback(unknown), &options).await
}

/// Serves a router, on TCP with TLS if the options have it. The program has checked who may use it.
///
/// A request on the Unix socket without `Authorization` and `X-API-Key` gets the token of the options.
///
/// # Errors
///
/// If the listener fails.
///
/// # Cancel safety
///
/// As [`serve`].
pub async fn serve_router(
    listeners: impl Into<Listeners>,
    router: Router,
    options: &ServerOptions,
) -> io::Result<()> {
    let listeners = listeners.into();
    #[cfg(unix)]
    let local = async {
        match listeners.local {
            Some(local) => {
                let token = options.token.as_ref().and_then(|token| authorization(token).ok());
                match serve_connections(local, router.clone(), options, token).await {}
            }
            None => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let local = std::future::pending();
    let tcp = async {
        match listeners.tcp {
            Some(tcp) => serve_tcp(tcp, router.clone(), options).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = tcp => served,
        never = local => never,
    }
}

async fn serve_tcp(listener: TcpListener, router: Router, options: &ServerOptions) -> io::Result<()> {
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        let listener = TlsListener::new(listener, tls, options)?;
        match serve_connections(listener, router, options, None).await {}
    }
    match serve_connections(PlainListener(listener), router, options, None).await {}
}

/// The state of a router.
pub(crate) struct RouterShared<E> {
    pub(crate) endpoint: Arc<E>,
    pub(crate) options: Arc<ServerOptions>,
    sockets: Arc<Semaphore>,
    pub(crate) requests: Semaphore,
}

impl<E: Endpoint> RouterShared<E> {
    async fn handle(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        if let Some(refused) = self.options.refused(&parts.method, &parts.uri, &parts.headers) {
            return refused;
        }
        ConnectionStanding::accept(&parts.extensions);
        let response = match parts.method {
            Method::GET if is_upgrade(&parts.headers) => self.upgrade(parts).await,
            Method::GET => self.open_events(parts).await,
            Method::POST => self.post(parts, body).await,
            Method::DELETE => self.delete(parts).await,
            _ => {
                let reason = "send a GET with `Upgrade: websocket`, or a POST of `initialize`";
                let mut response = error(StatusCode::METHOD_NOT_ALLOWED, INVALID_REQUEST, reason);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
                return response;
            }
        };
        response.unwrap_or_else(HttpRefusal::into_response)
    }

    /// Takes one of [`ServerOptions::sockets`].
    pub(crate) fn socket_permit(&self) -> Result<OwnedSemaphorePermit, HttpRefusal> {
        self.sockets.clone().try_acquire_owned().map_err(|_| {
            let limit = self.options.sockets;
            let reason =
                format!("socket limit reached ({limit}); retry later or raise `ServerOptions::sockets`");
            HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, reason)
        })
    }

    async fn upgrade(&self, mut parts: Parts) -> Result<Response, HttpRefusal> {
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
            .await
            .map_err(|rejection| HttpRefusal::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
        let permit = self.socket_permit()?;
        let internal = |reason| HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason);
        let id = random_token().map_err(|_| internal("no random connection id"))?;
        let header = HeaderValue::try_from(&id).map_err(|_| internal("no valid connection id"))?;
        let wants_acks = has_true(&parts.headers);
        let place = ConnectionStanding::take_place(&parts.extensions);
        let context = SocketContext {
            endpoint: self.endpoint.clone(),
            options: self.options.clone(),
            id: RemoteConnectionId::new(id),
            head: request_head(parts),
            wants_acks,
        };
        let mut response = upgrade
            .read_buffer_size(self.options.read_buffer)
            .write_buffer_size(WRITE_BUFFER)
            .max_message_size(self.options.frame_bytes)
            .max_frame_size(self.options.frame_bytes)
            .on_failed_upgrade(|error| tracing::debug!(%error, "a socket was not upgraded"))
            .on_upgrade(move |socket| async move {
                let limit = context.options.waiting_pings;
                let socket = PingLimit::new(AxumSocket(socket), limit, "ServerOptions::waiting_pings");
                serve_socket(socket, context).await;
                drop((permit, place));
            });
        response.headers_mut().insert(CONNECTION_ID, header);
        Ok(response)
    }
}

impl ServerOptions {
    /// Returns the response to a request without access, which is logged.
    fn refused(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let (status, reason) = access::refusal(headers, self)?;
        self.note_refusal(method, uri, status, &reason);
        let mut response = error(status, INVALID_REQUEST, &reason);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Some(response)
    }

    fn note_refusal(&self, method: &Method, uri: &Uri, status: StatusCode, reason: &str) {
        self.refusals.note(method.as_str(), uri.path(), status.as_u16(), reason);
    }
}

/// Returns the head of a request for the endpoint.
pub(crate) fn request_head(parts: Parts) -> HttpRequestHead {
    HttpRequestHead { uri: parts.uri, headers: parts.headers, extensions: parts.extensions }
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn has_true(headers: &HeaderMap) -> bool {
    headers.get(STREAM_ACK).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Creates a response whose body is a JSON-RPC error.
pub(crate) fn error(status: StatusCode, code: i64, message: &str) -> Response {
    let mut response = Response::new(Body::from(crate::server::error_body("null", code, message)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
