//! Tests of an agent whose client is scripted.

mod conformance;
mod contexts;
mod handles;
mod order;
mod sessions;
