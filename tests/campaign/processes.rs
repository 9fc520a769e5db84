//! Processes that are killed, stuck, flooded and abandoned, on both sides of the conversation. The
//! surviving side notices within a second, and no process stays behind.
//!
//! Death is proved by a connection that every process of a tree inherits: see `trees`.
#![cfg(target_os = "linux")]

mod agent_dies;
mod client_dies;
mod close;
mod launcher;
mod leaks;
mod raw_client;
mod replays;
mod start;
mod stdio;
mod trees;
