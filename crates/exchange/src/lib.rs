//! What agents say to each other, on the connection they have anyway.
//!
//! Three schemes, each negotiated in `initialize` and each a module here and in the schema crate:
//! envelopes ([`envelope`]), signed dialogue ([`dialogue`]) and work orders ([`work`]). An [`Exchange`] says
//! what one side offers, a [`PeerAgent`] is the other side. Neither knows whether it belongs to an agent or
//! to a client: the schemes are the same in both directions.
#![forbid(unsafe_code)]

mod announcing;
pub mod dialogue;
pub mod envelope;
mod error;
mod exchange;
mod hops;
mod in_memory;
pub mod limits;
mod lock;
mod peer_agent;
mod service;
pub mod work;

pub use announcing::Announcing;
pub use error::{Error, Result};
pub use exchange::{Exchange, Wiring};
pub use hops::Hops;
pub use peer_agent::PeerAgent;
pub use service::ExchangeService;
