//! Drive an Agent Client Protocol agent from an editor or a script.
//!
//! ```no_run
//! use duologue_client::schema::printable;
//! use duologue_client::{Client, Command, Result};
//!
//! #[tokio::main]
//! async fn main() -> Result<()> {
//!     let agent = Client::new(()).spawn(Command::new("echo-agent")).await?;
//!     let session = agent.new_session("/home/me/project").await?;
//!     let mut turn = session.prompt("hello").await?;
//!     while let Some(update) = turn.next().await {
//!         print!("{}", printable(&update?.to_string()));
//!     }
//!     println!("{:?}", turn.outcome().await?.stop_reason);
//!     Ok(())
//! }
//! ```
//!
//! A [`Client`] has the settings and the [`Host`], which is what the agent may ask for. Spawning an
//! agent gives a [`Connection`]; its [`Session`]s run [`Turn`]s, and a turn is a stream of updates.
#![forbid(unsafe_code)]

mod bounded;
mod calls;
mod child;
mod client;
mod command;
mod connection;
mod error;
mod fair;
mod host;
pub mod limits;
mod listing;
mod local;
mod process;
mod prompt;
mod router;
mod serialized_len;
mod service;
mod session;
mod state;
mod turn;
mod turn_events;

pub use child::{AgentProcess, Pipes};
pub use client::Client;
pub use command::Command;
pub use connection::Connection;
pub use duologue_exchange as exchange;
pub use duologue_exchange::{Exchange, PeerAgent};
pub use duologue_rpc as rpc;
pub use duologue_rpc::{Extensions, Limits, Transport};
pub use duologue_schema as schema;
pub use duologue_schema::{Conversation, SessionId, SessionUpdate, StopReason};
pub use error::{AgentExited, Error, Result};
pub use host::{Host, HostResult};
pub use listing::Listing;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use local::fuzzing;
pub use local::{LocalHost, Permissions};
pub use prompt::PromptBuilder;
pub use session::{Session, SessionBuilder, SessionReplay, Updates};
pub use state::SessionState;
pub use turn::{Reply, Turn};
