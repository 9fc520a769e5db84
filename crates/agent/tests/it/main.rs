//! Tests of an agent whose client is scripted.

mod calls;
mod clears;
mod commands;
mod conformance;
mod contexts;
mod delegation;
mod gates;
mod handles;
mod history;
mod messages;
mod open_calls;
mod order;
mod refusals;
mod serving;
mod sessions;
mod settings;
mod steering;
mod stuck;
#[cfg(feature = "unstable")]
mod unstable;
#[cfg(feature = "protocol-v2")]
mod v2;
