//! Processes, killed, stuck, flooded and left alone, on both sides of the conversation: whoever is
//! left learns of it within a second, and nobody stays behind.
//!
//! Death is proved by a connection that every process of a tree inherits: see `trees`.
#![cfg(target_os = "linux")]

mod agent_dies;
mod client_dies;
mod close;
mod launcher;
mod leaks;
mod raw_client;
mod start;
mod stdio;
mod trees;
