//! Keeps the last lines that were not messages, to explain errors.

use std::collections::VecDeque;

use crate::limits::Limits;
use crate::sync::{Lock, Mutex};

/// The most recent lines that were not messages.
#[derive(Default)]
pub(crate) struct NoiseLog(Mutex<VecDeque<Vec<u8>>>);

impl NoiseLog {
    /// Keeps the beginning of a line. The buffer of the oldest line is reused, so that floods are cheap.
    pub(crate) fn keep(&self, line: &[u8]) {
        let start = line.get(..Limits::NOISE_LINE_BYTES).unwrap_or(line);
        let mut lines = self.0.lock_unpoisoned();
        let mut oldest = if lines.len() == Limits::NOISE_LINES {
            lines.pop_front().unwrap_or_default()
        } else {
            Vec::new()
        };
        oldest.clear();
        oldest.extend_from_slice(start);
        lines.push_back(oldest);
    }

    pub(crate) fn recent(&self) -> Vec<String> {
        let lines = self.0.lock_unpoisoned();
        lines.iter().map(|line| String::from_utf8_lossy(line).escape_debug().to_string()).collect()
    }
}
