//! A client under load: the memory and the time that an agent can take from it.
#![cfg(target_os = "linux")]

mod attacks;
#[path = "../it/local_host/desk.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod desk;
mod terminals;
