#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! An [`Exchange`] configures one side: the schemes that it offers, and their handlers. A [`PeerAgent`] sends
//! messages to the other side. Both work the same way in an agent and in a client.
//!
//! Each scheme is a module here and in the schema crate: [`envelope`], [`dialogue`] and [`work`].
#![forbid(unsafe_code)]

pub mod dialogue;
pub mod envelope;
mod error;
mod exchange;
mod hops;
mod in_memory;
pub mod limits;
mod lock;
mod peer_agent;
mod pending_session;
mod service;
pub mod work;

pub use error::{Error, Result};
pub use exchange::{Exchange, ExchangeConnector};
pub use hops::Hops;
pub use peer_agent::PeerAgent;
pub use pending_session::PendingSession;
pub use service::ExchangeService;
