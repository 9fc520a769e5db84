#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Client`] has the settings and the [`Host`], which handles the agent's requests. Spawning an agent returns
//! a [`Connection`]. The connection opens [`Session`]s, a session runs [`Turn`]s, and a turn is a stream of
//! [`SessionUpdate`]s.
#![forbid(unsafe_code)]

mod child;
mod client;
mod command;
mod connection;
mod context;
mod error;
mod fair;
mod host;
mod idle_updates;
pub mod limits;
mod listing;
#[cfg(feature = "local-host")]
mod local;
mod open_state;
mod output_tail;
mod process;
mod prompt;
mod request;
mod router;
mod service;
mod session;
mod turn;
mod turn_events;

pub use child::{AgentProcess, Pipes};
pub use client::Client;
pub use command::Command;
pub use connection::Connection;
pub use context::{ConnectionId, HostContext};
#[cfg(feature = "exchange")]
pub use duologue_exchange as exchange;
#[cfg(feature = "exchange")]
pub use duologue_exchange::{Exchange, PeerAgent};
pub use duologue_rpc as rpc;
pub use duologue_rpc::{Extensions, Limits, RequestContext, Transport};
pub use duologue_schema as schema;
pub use duologue_schema::{Conversation, SessionId, SessionState, SessionUpdate, StopReason};
pub use error::{AgentExited, Error, Result};
pub use host::{Host, HostResult};
pub use listing::Listing;
#[cfg(all(fuzzing, feature = "local-host"))]
#[doc(hidden)]
pub use local::fuzzing;
#[cfg(feature = "local-host")]
pub use local::{LocalHost, Permissions};
pub use prompt::PromptBuilder;
pub use request::RequestBuilder;
pub use session::{Session, SessionBuilder, SessionReplay, Updates};
pub use turn::{Reply, Turn};
