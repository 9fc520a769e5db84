#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
#[cfg(any(feature = "client", feature = "server"))]
mod frame_view;
#[cfg(any(feature = "client", feature = "server"))]
mod lines;
#[cfg(feature = "server")]
mod server;
#[cfg(all(test, feature = "client", feature = "server"))]
mod simulation;
#[cfg(any(feature = "client", feature = "server"))]
mod socket;
#[cfg(any(feature = "client", feature = "server"))]
mod wire;

#[cfg(feature = "client")]
pub use client::{ConnectOptions, Error, LinkState, RemoteLink, connect, reconnect};
#[cfg(feature = "server")]
pub use server::{
    AccessToken, AgentConnection, AgentEndpoint, AgentEndpointOptions, AgentSource, AllowedHosts,
    CloseReason, ConnectRequest, Endpoint, FrameSource, HttpRequestHead, OutgoingFrame, Rejection,
    ResumeRefused, ResumeRequest, Resumed, ServerConnection, ServerOptions, SourceEnd, StreamSelection,
    router, serve,
};
#[cfg(any(feature = "client", feature = "server"))]
pub use wire::{CONNECTION_ID, RemoteConnectionId, STREAM_ACK, StreamId, StreamPosition, close_code};
