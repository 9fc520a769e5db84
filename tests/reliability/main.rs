//! The reliability scenarios: how hard an agent and a client are to break, in numbers. `cargo test` plays them small;
//! `cargo xtask reliability` plays them in full size, with our SDK and with the official one.
#![cfg(target_os = "linux")]

mod agent;
mod client;
mod harness;
mod soak;
