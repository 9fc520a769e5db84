#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Implement [`Agent`] and pass it to [`serve_stdio`]. A [`Server`] has the settings, and [`serve`](fn@serve) takes any
//! [`Transport`].
//!
//! [`Agent::prompt`] receives a [`Turn`]. The turn creates [`MessageWriter`]s, thoughts and tool calls, and sends
//! requests for permissions, files and terminals to the client. State that outlives a turn belongs to the
//! [`Session`].
#![forbid(unsafe_code)]

mod agent;
mod calls;
mod client;
mod context;
mod error;
mod history;
mod message;
mod plans;
mod prompt_answer;
mod request;
mod serve;
mod service;
mod session;
mod session_memory;
mod session_queue;
mod session_table;
mod settings;
mod steering;
mod subagents;
mod system_prompt;
mod tool_call;
mod turn;
mod unhandled;
#[cfg(feature = "unstable")]
mod unstable;
mod updates;
#[cfg(feature = "protocol-v2")]
mod v2;

pub use agent::{Agent, Prompt, SessionSetup};
pub use calls::RemoteTerminal;
pub use client::ClientHandle;
pub use context::Context;
#[cfg(feature = "exchange")]
pub use duologue_exchange as exchange;
#[cfg(feature = "exchange")]
pub use duologue_exchange::{Exchange, PeerAgent};
#[cfg(feature = "http")]
pub use duologue_http as http;
pub use duologue_rpc as rpc;
pub use duologue_rpc::{Extensions, Limits, NotificationContext, Transport};
pub use duologue_schema as schema;
pub use duologue_schema::{ContentBlock, PermissionOption, PermissionOptionKind, StopReason, ToolKind};
pub use error::{Error, Result};
pub use history::History;
pub use message::{ClearPolicy, MessageWriter};
pub use request::{AgentRequestBuilder, ElicitationCompleteBuilder};
#[cfg(feature = "http")]
pub use serve::serve_http;
pub use serve::{Server, serve, serve_stdio};
pub use session::Session;
pub use settings::SlashCommand;
pub use subagents::{NewSubagent, SessionMessageWriter, Subagent};
pub use tool_call::{NewToolCall, ToolCallHandle};
pub use turn::Turn;
#[cfg(feature = "protocol-v2")]
pub use v2::{DetachedToolCall, ForegroundWork, NewDisplayTerminal, TerminalWriter};
