#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`PeerBuilder`] has the settings and starts a peer on a [`Transport`]. It returns a [`Peer`], which sends
//! requests and notifications. Incoming ones go to a [`Service`], which answers a request with its [`Responder`].
//!
//! The crate is independent of the protocol above it. Methods come from the traits
//! [`Request`](duologue_schema::Request) and [`Notification`](duologue_schema::Notification), or as plain names.
#![forbid(unsafe_code)]

mod blocked;
mod budget;
mod byte_queue;
mod connection;
mod error;
mod extension;
mod frame;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod in_flight;
#[cfg(all(test, duologue_loom))]
mod interleavings;
mod json_scanner;
mod json_writer;
mod limits;
mod line_buffer;
mod message;
mod message_meta;
mod noise;
mod outbox;
mod peer;
mod pending;
mod pending_table;
mod queue;
pub mod raw_message;
#[cfg(feature = "secret")]
mod secret;
mod service;
#[cfg(all(test, not(duologue_loom)))]
mod simulation;
mod stats;
mod stdio;
mod surrogates;
mod sync;
mod tap;
mod transport;
mod wake_batch;

pub use byte_queue::{EvictingQueue, EvictionLimits};
pub use connection::PeerBuilder;
pub use error::{Closed, Error};
pub use extension::Extensions;
pub use json_scanner::{JsonScanner, JsonToken, JsonTokenKind};
#[cfg(feature = "jsonrpsee")]
pub use jsonrpsee;
pub use limits::Limits;
pub use line_buffer::{LineBuffer, LineTooLong};
pub use message::{Malformed, ResponseOutcome, RpcMessage};
pub use message_meta::MessageMeta;
pub use peer::{EncodedNotification, Peer, RequestHandle, ResponseFuture};
pub use pending_table::PendingTable;
pub use queue::{Queue, QueueId, QueueSender};
#[cfg(feature = "secret")]
pub use secret::{SecretText, is_equal_secret};
pub use service::{
    Incoming, NotificationBuffer, NotificationContext, RequestContext, Responder, Service, with_cancel_grace,
};
pub use stats::Stats;
pub use stdio::{InputEndReason, InputWatch, OutputWatch, Stdio};
#[doc(hidden)]
pub use sync::Lock;
pub use tap::{Direction, Tap, TappedFrame};
pub use tokio_util::sync::CancellationToken;
pub use transport::Transport;
