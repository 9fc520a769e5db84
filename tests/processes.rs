//! Processes, killed, stuck, flooded and left alone, on both sides of the conversation: whoever is
//! left learns of it within a second, and nobody stays behind.
//!
//! Death is proved by a connection that every process of a tree inherits: see `trees`.
#![cfg(target_os = "linux")]

#[path = "processes/agent_dies.rs"]
mod agent_dies;
#[path = "processes/client_dies.rs"]
mod client_dies;
#[path = "processes/close.rs"]
mod close;
#[path = "processes/launcher.rs"]
mod launcher;
#[path = "processes/leaks.rs"]
mod leaks;
#[path = "processes/raw_client.rs"]
mod raw_client;
#[path = "processes/start.rs"]
mod start;
#[path = "processes/stdio.rs"]
mod stdio;
mod support;
#[path = "processes/trees.rs"]
mod trees;
