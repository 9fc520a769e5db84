//! The terminals that an agent runs, with the end of their output.

use std::collections::VecDeque;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::serialized_len::serialized_len;
use crate::v2::{
    TerminalCapabilities, TerminalExitStatus, TerminalOutputChunk, TerminalSize, TerminalUpdate,
};
use crate::{Meta, OutputTail, Patch, TerminalId};

/// Limit on the terminals of an agent that a conversation keeps. The one that was updated longest ago is dropped.
pub const DISPLAY_TERMINALS: usize = 64;
/// Limit on the bytes of output that a conversation keeps of each such terminal: the last ones. A longer description
/// of the terminal is ignored.
pub const DISPLAY_TERMINAL_BYTES: usize = 256 * 1024;

/// A terminal that an agent runs, as far as it has described it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DisplayTerminal {
    /// The id.
    pub id: TerminalId,
    /// The command.
    pub command: Option<String>,
    /// The working directory of the command.
    pub cwd: Option<PathBuf>,
    /// The exit status, once the command has ended.
    pub exit_status: Option<TerminalExitStatus>,
    /// The size of the terminal.
    pub size: Option<TerminalSize>,
    /// The controls that the agent offers to the client.
    pub capabilities: Option<TerminalCapabilities>,
    /// Extension data about the terminal.
    pub meta: Option<Meta>,
    output: OutputTail,
}

impl DisplayTerminal {
    fn new(id: TerminalId) -> Self {
        DisplayTerminal {
            id,
            command: None,
            cwd: None,
            exit_status: None,
            size: None,
            capabilities: None,
            meta: None,
            output: OutputTail::new(DISPLAY_TERMINAL_BYTES),
        }
    }

    /// Returns the end of the output, and true if output before it was dropped. Invalid UTF-8 is U+FFFD.
    ///
    /// Escape the text with [`printable`](crate::printable()) where the control characters of the program must not
    /// work.
    #[must_use]
    pub fn output(&self) -> (String, bool) {
        self.output.text()
    }

    /// Applies an update. Returns false if the output is not base64, or if the description is longer than the output
    /// may be.
    fn apply(&mut self, update: &TerminalUpdate) -> bool {
        let TerminalUpdate { command, cwd, exit_status, capabilities, .. } = update;
        let description = (command.value(), cwd.value(), exit_status.value(), capabilities.value());
        if serialized_len(&description, DISPLAY_TERMINAL_BYTES).is_none() {
            return false;
        }
        update.command.clone().apply(&mut self.command);
        update.cwd.clone().apply(&mut self.cwd);
        update.exit_status.clone().apply(&mut self.exit_status);
        update.size.clone().apply(&mut self.size);
        update.capabilities.clone().apply(&mut self.capabilities);
        Meta::patch(&mut self.meta, update.meta.clone());
        match &update.output {
            Patch::Keep => true,
            Patch::Clear => {
                self.output = OutputTail::new(DISPLAY_TERMINAL_BYTES);
                true
            }
            Patch::Set(output) => match STANDARD.decode(&output.data) {
                Ok(bytes) => {
                    self.output = OutputTail::new(DISPLAY_TERMINAL_BYTES);
                    self.output.push(&bytes);
                    true
                }
                Err(_) => false,
            },
        }
    }
}

/// The terminals of a conversation, the one updated last at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DisplayTerminals(VecDeque<DisplayTerminal>);

impl DisplayTerminals {
    pub(super) fn get(&self, id: &TerminalId) -> Option<&DisplayTerminal> {
        self.0.iter().rev().find(|terminal| terminal.id == *id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &DisplayTerminal> {
        self.0.iter()
    }

    /// Returns false if the output of the update is not base64, or the description too long. They then stay as they are.
    pub(super) fn update(&mut self, update: &TerminalUpdate) -> bool {
        self.change(&update.terminal_id, |terminal| terminal.apply(update))
    }

    /// Returns false if the output is not base64. It is then ignored.
    pub(super) fn append(&mut self, chunk: &TerminalOutputChunk) -> bool {
        let Ok(bytes) = STANDARD.decode(&chunk.data) else { return false };
        self.change(&chunk.terminal_id, |terminal| terminal.output.push(&bytes));
        true
    }

    fn change<T>(&mut self, id: &TerminalId, change: impl FnOnce(&mut DisplayTerminal) -> T) -> T {
        let known = self.0.iter().rposition(|terminal| terminal.id == *id);
        let mut terminal =
            known.and_then(|index| self.0.remove(index)).unwrap_or_else(|| DisplayTerminal::new(id.clone()));
        let result = change(&mut terminal);
        self.0.push_back(terminal);
        if self.0.len() > DISPLAY_TERMINALS {
            self.0.pop_front();
        }
        result
    }
}
