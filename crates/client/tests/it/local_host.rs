//! `LocalHost` through a real connection: what an agent can get at, and what it cannot.
#![cfg(target_os = "linux")]

mod desk;
mod files;
mod paths;
mod permissions;
mod race;
mod sessions;
mod terminals;
