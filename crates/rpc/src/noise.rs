//! The last lines that were no messages, kept for the error that explains them.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::sync::Lock;

const LINES: usize = 20;
const LINE_BYTES: usize = 1024;

#[derive(Default)]
pub(crate) struct NoiseLog(Mutex<VecDeque<String>>);

impl NoiseLog {
    pub(crate) fn keep(&self, line: &[u8]) {
        let start = line.get(..LINE_BYTES).unwrap_or(line);
        let shown = String::from_utf8_lossy(start).escape_debug().to_string();
        let mut lines = self.0.lock_unpoisoned();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(shown);
    }

    pub(crate) fn recent(&self) -> Vec<String> {
        self.0.lock_unpoisoned().iter().cloned().collect()
    }
}
