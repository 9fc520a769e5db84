//! The commands that connect to an agent: `run` for a user or a script, and those that send envelopes.
//!
//! [`agent_session`] starts the agent, waits for it and for the user, and ends both. [`session`] runs
//! turns; [`envelope_command`] sends one envelope, and [`delegation`] follows a delegated task.
//!
//! [`output`] shows the session: on a [`screen`] for a terminal, as final text for a pipe, as JSON
//! for a script. [`input`] reads lines, or keys that edit a line on the screen. [`host`] serves the agent's requests and sends questions to the user through the
//! [`ui_queue`]. A [`question`] shows the [`details`] of its tool call. Writes, terminals and answers
//! are logged in the [`audit`] trail.

mod agent_session;
mod audit;
mod blocks;
mod children;
mod delegation;
mod details;
pub(crate) mod envelope_command;
mod form;
mod host;
mod input;
mod json;
#[cfg(unix)]
mod key_input;
#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod line_editor;
mod login;
mod output;
mod permission;
mod question;
mod rows;
mod screen;
mod session;
mod settings;
#[cfg(unix)]
mod terminal_modes;
mod terminals;
mod text_output;
mod ui_queue;

pub(crate) use session::run;
