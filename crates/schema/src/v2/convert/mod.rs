//! Conversions between the types of version 2 and those that agents and clients are written with.
//!
//! They have no state and do no I/O. A conversion that can fail is a `TryFrom`; the others are `From`, and may lose
//! what the other version cannot express:
//!
//! | from version 2 | result |
//! | --- | --- |
//! | a cleared title of a tool call | the id of the call, as for a call that never had a title |
//! | a command or an input of a command of an unknown kind, a first value of an unknown type | left out |
//! | a skill among the commands, and the capabilities for skills | left out: no skills are offered then |
//! | an absent or cleared status of a compaction | in progress; [`has_kept_status`](crate::CompactionUpdate::has_kept_status) marks an absent one |
//! | the `_meta` of a cancelled permission, of a subject and of a command of a permission | left out |
//! | the capability to run MCP servers as programs | assumed, as version 1 demands it |
//!
//! | to version 2 | result |
//! | --- | --- |
//! | the capabilities for files and terminals of the client | left out: version 2 has no such requests |
//! | missing `session/list`, `session/load`, `session/resume` and `session/close` of an agent | the agent fails them, as version 2 demands them of every agent with sessions |
//! | the capabilities of a client that version 2 demands: plans, notices, compactions, child sessions, cursors | left out |
//! | the text of a [`Diff`](crate::Diff) | a patch with one hunk |
//! | a program without name and version | a placeholder |
//! | modes | an option of the category `mode`, unless the agent has one; see [`options_with_modes`] |
//!
//! The fields of version 2 that have no place on the wire of version 1 are fields of the types that both share, such as
//! [`ToolCallUpdate::cleared`](crate::ToolCallUpdate::cleared).

mod capabilities;
mod config;
mod permission;
mod session;
mod tool_call;
mod update;

use std::borrow::Cow;
use std::fmt;

use crate::Error;

pub use config::{mode_option, mode_request, options_with_modes};
pub use session::SessionOpening;

/// The reason why one version cannot express a value of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionError(Cow<'static, str>);

impl ConversionError {
    fn new(message: impl Into<Cow<'static, str>>) -> Self {
        ConversionError(message.into())
    }

    /// Returns the error that answers a request that cannot be converted: `-32602` (invalid params).
    #[must_use]
    pub fn into_error(self) -> Error {
        Error::invalid_params(self.0)
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConversionError {}

/// Converts each item.
fn all<T, U: From<T>>(items: impl IntoIterator<Item = T>) -> Vec<U> {
    items.into_iter().map(U::from).collect()
}
