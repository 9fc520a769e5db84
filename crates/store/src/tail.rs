//! The newest records of a log in memory, in the batches in which they were appended.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::line::LogLine;
use crate::log::LogRecord;
use crate::position::LogPosition;

/// A batch of lines, each with its line feed.
#[derive(Debug)]
pub(crate) struct LineBatch {
    pub(crate) text: Bytes,
    /// The end of each line in the text, behind its line feed.
    ends: Box<[usize]>,
}

impl LineBatch {
    pub(crate) fn of(lines: &[LogLine]) -> Self {
        let mut text = Vec::with_capacity(lines.iter().map(LogLine::written_len).sum());
        let mut ends = Vec::with_capacity(lines.len());
        for line in lines {
            text.extend_from_slice(line.bytes());
            text.push(b'\n');
            ends.push(text.len());
        }
        LineBatch { text: text.into(), ends: ends.into() }
    }

    /// Creates a batch of text that consists of whole lines with these ends.
    pub(crate) fn of_text(text: Vec<u8>, ends: Vec<usize>) -> Self {
        LineBatch { text: text.into(), ends: ends.into() }
    }

    /// Returns the memory that the batch takes, about.
    fn memory(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends) + 128
    }

    /// Appends the records from a line of the batch on, as long as they fit into `room`. The first record of a page
    /// always fits. Returns false if the page is full.
    pub(crate) fn page(
        &self,
        first: LogPosition,
        from_line: usize,
        room: &mut usize,
        page: &mut Vec<LogRecord>,
    ) -> bool {
        let mut start = from_line.checked_sub(1).and_then(|line| self.ends.get(line)).copied().unwrap_or(0);
        for (line, &end) in self.ends.iter().enumerate().skip(from_line) {
            let length = end.saturating_sub(start);
            if length > *room && !page.is_empty() {
                return false;
            }
            *room = room.saturating_sub(length);
            let position = LogPosition::new(first.number() + line as u64);
            page.push(LogRecord { position, line: self.text.slice(start..end.saturating_sub(1)) });
            start = end;
        }
        true
    }
}

/// Batches from a position to the end of the log.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    batches: VecDeque<(LogPosition, Arc<LineBatch>)>,
    memory: usize,
}

/// The batches of a page. Its records are made without the lock of the tail.
#[derive(Debug)]
pub(crate) struct TailPage {
    batches: Vec<(LogPosition, Arc<LineBatch>)>,
    after: LogPosition,
}

impl Tail {
    /// Returns the memory that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the position of the first record, if there is one.
    pub(crate) fn first(&self) -> Option<LogPosition> {
        self.batches.front().map(|(first, _)| *first)
    }

    /// Returns the position of the first record of the second batch, if there is one.
    pub(crate) fn second(&self) -> Option<LogPosition> {
        self.batches.get(1).map(|(first, _)| *first)
    }

    /// Appends a batch that follows the others.
    pub(crate) fn push(&mut self, first: LogPosition, batch: Arc<LineBatch>) {
        self.memory += batch.memory();
        self.batches.push_back((first, batch));
    }

    /// Removes the oldest batch.
    pub(crate) fn pop(&mut self) -> bool {
        let Some((_, batch)) = self.batches.pop_front() else { return false };
        self.memory -= batch.memory();
        if self.batches.is_empty() {
            self.batches.shrink_to_fit();
        }
        true
    }

    /// Removes the oldest batches until the others fit.
    pub(crate) fn shrink(&mut self, most: usize) {
        while self.memory > most && self.pop() {}
    }

    /// Returns the number of batches.
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// Returns the batches of a page behind a position, unless the next record is older than the tail.
    pub(crate) fn page(&self, after: LogPosition, max_bytes: usize) -> Option<TailPage> {
        if self.first()? > LogPosition::new(after.number() + 1) {
            return None;
        }
        let begin = self.batches.partition_point(|(first, _)| *first <= LogPosition::new(after.number() + 1));
        let mut batches = Vec::new();
        let mut bytes = 0;
        for (first, batch) in self.batches.iter().skip(begin.saturating_sub(1)) {
            batches.push((*first, batch.clone()));
            // The first batch may have only one record of the page.
            if batches.len() > 1 {
                bytes += batch.text.len();
            }
            if bytes >= max_bytes {
                break;
            }
        }
        Some(TailPage { batches, after })
    }
}

impl TailPage {
    pub(crate) fn records(self, max_bytes: usize) -> Vec<LogRecord> {
        let (mut page, mut room) = (Vec::new(), max_bytes);
        for (first, batch) in self.batches {
            let line = (self.after.number() + 1).saturating_sub(first.number());
            if !batch.page(first, usize::try_from(line).unwrap_or(usize::MAX), &mut room, &mut page) {
                break;
            }
        }
        page
    }
}
