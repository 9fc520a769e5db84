#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
#[cfg(any(feature = "client", feature = "server"))]
mod frame_view;
#[cfg(all(fuzzing, feature = "client", feature = "server"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(feature = "client", feature = "server"))]
mod lines;
#[cfg(any(feature = "client", feature = "server"))]
mod request_sessions;
#[cfg(feature = "server")]
mod server;
#[cfg(all(test, feature = "client", feature = "server"))]
mod simulation;
#[cfg(any(feature = "client", feature = "server"))]
mod socket;
#[cfg(all(unix, any(feature = "client", feature = "server")))]
mod socket_user;
#[cfg(any(feature = "client", feature = "server"))]
mod wire;

#[cfg(feature = "client")]
#[doc(hidden)]
pub use client::raw;
#[cfg(all(feature = "client", feature = "tls"))]
pub use client::system_tls;
#[cfg(feature = "client")]
pub use client::{
    ConnectOptions, Error, LinkState, RemoteLink, RemoteTransport, RetryNotice, ServerCheck, connect,
};
pub use duologue_rpc::SecretText;
#[cfg(all(unix, feature = "server"))]
#[doc(hidden)]
pub use server::FileId;
#[cfg(all(unix, feature = "server"))]
pub use server::LocalListener;
#[cfg(feature = "server")]
pub use server::{
    AgentConnection, AgentEndpoint, AgentEndpointOptions, AgentSource, AllowedHosts, ClientPresence,
    CloseReason, ConnectRequest, ConnectionKind, ConnectionStanding, Endpoint, FrameSource, HttpRequestHead,
    IncomingFrame, Listeners, OutgoingFrame, Rejection, ResumeRefused, ResumeRequest, Resumed,
    ServerConnection, ServerOptions, SourceEnd, StreamRequest, bearer_token, endpoint_router, router, serve,
    serve_router,
};
#[cfg(all(feature = "server", feature = "tls"))]
pub use server::{ClientCertificate, ServerTls};
#[cfg(any(feature = "client", feature = "server"))]
pub use wire::{
    CONNECTION_ID, FRAME_NUMBER, RESUME_SECRET, RemoteConnectionId, SESSION_ID, STREAM_ACK, StreamId,
    StreamPosition, close_code, root_session,
};
