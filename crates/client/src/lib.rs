#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Client`] has the settings and the [`Host`], which handles the agent's requests. Spawning an agent returns
//! a [`Connection`]. The connection opens [`Session`]s, a session runs [`Turn`]s, and a turn is a stream of
//! [`SessionUpdate`]s.
#![forbid(unsafe_code)]

#[cfg(feature = "protocol-v2")]
mod cancellable;
mod child;
mod children;
mod client;
mod command;
mod connection;
mod context;
mod error;
mod fair;
mod host;
mod idle_updates;
mod last_output;
pub mod limits;
mod listing;
#[cfg(feature = "local-host")]
mod local;
mod open_state;
mod process;
mod prompt;
#[cfg(feature = "protocol-v2")]
mod prompt_progress;
mod request;
mod router;
mod service;
mod session;
mod set_option;
mod system_prompt;
mod turn;
mod turn_events;
#[cfg(feature = "unstable")]
mod unstable;
#[cfg(feature = "protocol-v2")]
mod v2;

pub use child::{AgentProcess, Pipes};
pub use children::SubagentSession;
pub use client::Client;
pub use command::Command;
pub use connection::Connection;
pub use context::{ConnectionId, HostContext};
#[cfg(feature = "exchange")]
pub use duologue_exchange as exchange;
#[cfg(feature = "exchange")]
pub use duologue_exchange::{Exchange, PeerAgent};
#[cfg(feature = "http")]
pub use duologue_http as http;
pub use duologue_rpc as rpc;
pub use duologue_rpc::{Extensions, Limits, NotificationContext, RequestContext, Transport};
pub use duologue_schema as schema;
pub use duologue_schema::{Conversation, SessionId, SessionState, SessionUpdate, StopReason};
pub use error::{AgentExited, Error, Result};
pub use host::{Host, HostResult};
pub use idle_updates::Updates;
pub use listing::Listing;
#[cfg(all(fuzzing, feature = "local-host"))]
#[doc(hidden)]
pub use local::fuzzing;
#[cfg(feature = "local-host")]
pub use local::{LocalHost, Permissions};
pub use prompt::PromptBuilder;
pub use request::RequestBuilder;
pub use session::{Session, SessionBuilder, SessionReplay};
pub use turn::{Reply, Turn};
