//! Write an Agent Client Protocol agent.
//!
//! Implement [`Agent`], hand it to [`serve_stdio`], and an editor can spawn the program:
//!
//! ```no_run
//! use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve_stdio};
//!
//! struct Echo;
//!
//! impl Agent for Echo {
//!     async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
//!         let mut message = turn.message();
//!         message.push("Drafting…").await?;
//!         message.clear().await?;
//!         message.push(prompt.text()).await?;
//!         Ok(StopReason::EndTurn)
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<()> {
//!     serve_stdio(Echo).await
//! }
//! ```
//!
//! A [`Turn`] is where an agent lives: it makes [`MessageWriter`]s, thoughts and tool calls, and asks the
//! client for permission, files and terminals. What holds between turns is in the [`Session`].
#![forbid(unsafe_code)]

mod agent;
mod calls;
mod client;
mod error;
mod message;
mod serve;
mod service;
mod session;
mod tool_call;
mod turn;
mod updates;

pub use agent::{Agent, Prompt, SessionSetup};
pub use calls::Terminal;
pub use client::ClientHandle;
pub use duologue_exchange as exchange;
pub use duologue_exchange::{Exchange, PeerAgent};
pub use duologue_rpc as rpc;
pub use duologue_rpc::{Extensions, Limits, Transport};
pub use duologue_schema as schema;
pub use duologue_schema::{ContentBlock, PermissionOption, PermissionOptionKind, StopReason, ToolKind};
pub use error::{Error, Result};
pub use message::{ClearPolicy, MessageWriter};
pub use serve::{Server, serve, serve_stdio};
pub use session::Session;
pub use tool_call::{NewToolCall, ToolCallHandle};
pub use turn::Turn;
