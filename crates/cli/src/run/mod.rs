//! Talking to an agent from a terminal or a script.
//!
//! [`session`] drives: it starts the agent and runs turns, and meanwhile looks after the user. What is
//! shown is up to [`output`]: a [`screen`] for a terminal, final text for a pipe, JSON for a script.
//! What the agent asks for is answered by [`host`], which puts questions to the user through a
//! [`desk`](desk::Desk).

mod blocks;
mod desk;
mod form;
mod host;
mod input;
mod json;
mod output;
mod permission;
mod rows;
mod screen;
mod session;

pub(crate) use session::run;
