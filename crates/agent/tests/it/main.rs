//! Tests of an agent whose client is scripted.

mod clears;
mod conformance;
mod contexts;
mod handles;
mod open_calls;
mod order;
mod refusals;
mod sessions;
mod settings;
mod stuck;
