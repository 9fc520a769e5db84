//! Talking to an agent from a terminal or a script.
//!
//! A [`talk`] is what every such command needs: it starts the agent, looks after the user meanwhile, and
//! ends what it began. [`session`] runs turns, [`errand`] does one thing with an agent that speaks
//! envelopes, a [`delegation`] among them. What is shown is up to [`output`]: a [`screen`] for a terminal, final text for a pipe, JSON for a script.
//! What the agent asks for is answered by [`host`], which puts questions to the user through a
//! [`desk`](desk::Desk).

mod blocks;
mod delegation;
mod desk;
pub(crate) mod errand;
mod form;
mod host;
mod input;
mod json;
mod output;
mod permission;
mod rows;
mod screen;
mod session;
mod talk;

pub(crate) use session::run;
