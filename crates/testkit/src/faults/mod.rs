//! `--faults`: what can go wrong with an agent, on purpose, for people who test a client.
//!
//! The mock speaks as always, into a pipe of its own. Between that pipe and the real stdout stand the
//! faults: what adds messages ([`turns`]), what spoils the bytes of one ([`bytes`]), and what becomes of
//! the process ([`process`]). [`list`] is the one list of them.

mod bytes;
mod list;
mod process;
mod turns;
mod value;
mod wire;

pub(crate) use list::{Faults, help};
pub(crate) use process::wrap;
pub(crate) use wire::serve;
