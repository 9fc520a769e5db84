//! Tests of an agent whose client is scripted.

mod calls;
mod clears;
mod conformance;
mod contexts;
mod gates;
mod handles;
mod messages;
mod open_calls;
mod order;
mod refusals;
mod serving;
mod sessions;
mod settings;
mod stuck;
