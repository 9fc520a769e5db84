//! The HTTP client for every address that came from outside.
//!
//! A client of the hub names the address of a callback, and the hub can reach networks that this client cannot. So the
//! client here resolves a name itself, checks all addresses, and connects to a checked one. It follows no redirect, uses no
//! proxy, and keeps the body of a response to itself.

mod address;
mod client;
mod error;
mod resolver;
mod url;

pub use address::RefusedAddress;
pub use client::{OutboundClient, OutboundResponse, OutboundSettings};
pub use error::OutboundError;
pub use resolver::{ResolveFuture, Resolver};
pub use url::OutboundUrl;
