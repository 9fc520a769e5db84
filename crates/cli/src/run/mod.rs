//! Talking to an agent from a terminal or a script.
//!
//! A [`talk`] is what every such command needs: it starts the agent, looks after the user meanwhile, and
//! ends what it began. [`session`] runs turns, [`errand`] does one thing with an agent that speaks
//! envelopes, a [`delegation`] among them. What is shown is up to [`output`]: a [`screen`] for a terminal, final text for a pipe, JSON for a script.
//! What the agent asks for is answered by [`host`], which puts questions to the user through a
//! [`desk`](desk::Desk). A [`question`] shows the [`details`] of the tool call it is about. Writes, terminals
//! and answers are entered into the [`audit`] trail.

mod audit;
mod blocks;
mod delegation;
mod desk;
mod details;
pub(crate) mod errand;
mod form;
mod host;
mod input;
mod json;
mod output;
mod permission;
mod question;
mod rows;
mod screen;
mod session;
mod talk;

pub(crate) use session::run;
