//! Tests of the wire types and of the fold through their public interface.

mod conversation;
mod conversation_properties;
mod cost;
mod delegation;
mod dialogue;
mod envelope;
mod foreign_envelopes;
#[cfg(feature = "protocol-v2")]
mod later_unstable;
#[cfg(feature = "protocol-v2")]
mod later_updates;
mod order;
mod published;
mod schema;
#[cfg(feature = "protocol-v2")]
mod v2;
mod wire;
mod work;
