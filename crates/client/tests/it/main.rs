//! Tests of a client whose agent is scripted, and of `LocalHost`.

mod advertise;
mod children;
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
mod steering;
#[cfg(feature = "unstable")]
mod unstable;
mod user;
#[cfg(feature = "protocol-v2")]
mod v2;
