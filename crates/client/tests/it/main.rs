//! Tests of a client whose agent is scripted, and of `LocalHost`.

mod conformance;
mod loads;
mod local_host;
mod user;
