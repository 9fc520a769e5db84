//! Tests of an agent whose client is scripted.

mod conformance;
mod order;
mod sessions;
