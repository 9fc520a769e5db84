//! The server: an axum router in front of an [`Endpoint`].

mod accept;
mod access;
mod agent_connection;
mod agent_endpoint;
mod axum_socket;
mod client_certificate;
mod endpoint;
mod event_stream;
mod http_requests;
mod listeners;
mod options;
mod presence;
mod refusal_log;
mod router;
mod secret;
pub(crate) mod sent_ring;
pub(crate) mod serve_socket;
mod stalling_output;
mod stream_table;
#[cfg(feature = "tls")]
mod tls_listener;

use bytes::Bytes;

pub use accept::ConnectionStanding;
pub use access::bearer_token;
pub use agent_connection::{AgentConnection, AgentSource};
pub use agent_endpoint::AgentEndpoint;
#[cfg(feature = "tls")]
pub use client_certificate::ClientCertificate;
pub use endpoint::{
    CloseReason, ConnectRequest, ConnectionKind, Endpoint, FrameSource, HttpRequestHead, IncomingFrame,
    OutgoingFrame, Rejection, ResumeRefused, ResumeRequest, Resumed, ServerConnection, SourceEnd,
    StreamRequest,
};
pub use listeners::Listeners;
#[cfg(unix)]
pub use listeners::{FileId, LocalListener};
pub use options::{AgentEndpointOptions, AllowedHosts, ServerOptions};
pub use presence::ClientPresence;
pub use router::{endpoint_router, router, serve, serve_router};
#[cfg(feature = "tls")]
pub use tls_listener::ServerTls;

/// Writes a JSON-RPC error response. `id` is a JSON text.
pub(crate) fn error_body(id: &str, code: i64, message: &str) -> Bytes {
    let message = serde_json::Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#).into()
}
