//! Tests of a client whose agent is scripted, and of `LocalHost`.

mod advertise;
mod conformance;
mod context;
mod handles;
mod loads;
mod local_host;
mod requests;
mod user;
