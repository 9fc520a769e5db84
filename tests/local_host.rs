//! `LocalHost` through a real connection: what an agent can get at, and what it cannot.
#![cfg(target_os = "linux")]

#[path = "local_host/attacks.rs"]
mod attacks;
#[path = "local_host/desk.rs"]
mod desk;
#[path = "local_host/files.rs"]
mod files;
#[path = "local_host/paths.rs"]
mod paths;
#[path = "local_host/permissions.rs"]
mod permissions;
#[path = "local_host/race.rs"]
mod race;
#[path = "local_host/sessions.rs"]
mod sessions;
mod support;
#[path = "local_host/terminals.rs"]
mod terminals;
