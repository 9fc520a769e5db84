//! A two-way JSON-RPC 2.0 peer over newline-delimited JSON.
//!
//! Both ends of a connection are the same thing: each may ask, notify and answer. Start with
//! [`PeerBuilder`]; what it returns is a [`Peer`], and what arrives goes to a [`Service`].
//!
//! The peer knows nothing of any protocol above it: methods come from the traits
//! [`Request`](duologue_schema::Request) and [`Notification`](duologue_schema::Notification), or as
//! plain names.
//!
//! # What is promised
//!
//! - One reader owns the input and never waits for a handler.
//! - Notifications reach the service in the order of the wire; nothing is spawned for them.
//! - An answer is delivered after everything that came before it.
//! - A bad line costs that line. Only a line over [`Limits::frame_bytes`] ends the connection.
//! - Memory is bounded by [`Limits`].
//! - Every request gets exactly one answer.
//! - A handler may await anything, a request to the same peer included.
#![forbid(unsafe_code)]

mod budget;
mod connection;
mod error;
mod extension;
mod frame;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(test, any(duologue_loom, duologue_shuttle)))]
mod interleavings;
mod json;
mod limits;
mod line;
mod message;
mod noise;
mod outbox;
mod peer;
mod pending;
mod queue;
mod service;
#[cfg(all(test, not(any(duologue_loom, duologue_shuttle))))]
mod simulation;
mod stats;
mod stdio;
mod sync;
mod tap;
mod transport;
mod wake_batch;

pub use connection::PeerBuilder;
pub use error::{Closed, Error};
pub use extension::Extensions;
#[cfg(feature = "jsonrpsee")]
pub use jsonrpsee;
pub use limits::Limits;
pub use message::{Malformed, ResponseOutcome, RpcMessage};
pub use peer::{Peer, RequestHandle, ResponseFuture};
pub use queue::{Queue, QueueSender, StreamId};
pub use service::{Incoming, NotificationBuffer, Responder, Service, with_cancel_grace};
pub use stats::Stats;
pub use stdio::{InputEnd, InputEnded, Stdio};
pub use tap::{Direction, Tap, TappedFrame};
pub use tokio_util::sync::CancellationToken;
pub use transport::Transport;
