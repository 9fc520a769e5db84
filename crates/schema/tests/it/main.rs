//! Tests of the wire types and of the fold through their public interface.

mod conversation;
mod conversation_properties;
mod cost;
mod dialogue;
mod envelope;
mod foreign_envelopes;
mod order;
mod schema;
mod wire;
mod work;
