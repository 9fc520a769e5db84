#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! An [`Exchange`] configures one side: the schemes that it offers, and their handlers. A [`PeerAgent`] sends
//! messages to the other side. Both work the same way in an agent and in a client.
//!
//! Each scheme is a module here and in the schema crate: `envelope`, `dialogue` and `work`. Each is a feature.
#![forbid(unsafe_code)]

#[cfg(feature = "dialogue")]
pub mod dialogue;
#[cfg(not(feature = "envelope"))]
mod disabled;
#[cfg(feature = "envelope")]
pub mod envelope;
#[cfg(feature = "envelope")]
mod error;
#[cfg(feature = "envelope")]
mod exchange;
#[cfg(feature = "envelope")]
mod hops;
#[cfg(feature = "envelope")]
mod in_memory;
#[cfg(feature = "envelope")]
pub mod limits;
#[cfg(feature = "envelope")]
mod peer_agent;
#[cfg(feature = "envelope")]
mod pending_session;
#[cfg(feature = "envelope")]
mod service;
#[cfg(feature = "work")]
pub mod work;

#[cfg(not(feature = "envelope"))]
pub use disabled::{Exchange, ExchangeConnector, ExchangeService, PeerAgent, PendingSession};
#[cfg(feature = "envelope")]
pub use error::{AnswerError, Error, Result};
#[cfg(feature = "envelope")]
pub use exchange::{Exchange, ExchangeConnector};
#[cfg(feature = "envelope")]
pub use hops::Hops;
#[cfg(feature = "envelope")]
pub use peer_agent::PeerAgent;
#[cfg(feature = "envelope")]
pub use pending_session::PendingSession;
#[cfg(feature = "envelope")]
pub use service::ExchangeService;
