//! Tests of a client whose agent is scripted, and of `LocalHost`.

mod advertise;
mod conformance;
mod connections;
mod context;
mod gates;
mod handles;
mod host_requests;
mod loads;
mod local_host;
mod process;
mod requests;
mod user;
