//! A log in memory, which keeps the newest records.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use duologue_rpc::Lock as _;
use duologue_transcript::Header;

use crate::error::{CursorGoneReason, Error, Result};
use crate::line::LogLine;
use crate::log::{Log, LogPage};
use crate::position::{LogCursor, LogPosition};
use crate::tail::{LineBatch, Tail};

/// A log in memory that removes its oldest records beyond a limit. Nothing of it survives the process, so cursors of
/// another process are refused: its life is a random number.
#[derive(Debug)]
pub struct MemoryLog {
    header: Header,
    life: u32,
    opened_at: Duration,
    limit: usize,
    state: Mutex<MemoryState>,
}

#[derive(Debug)]
struct MemoryState {
    tail: Tail,
    /// The first record, if there is one, else the next.
    first: LogPosition,
    end: LogPosition,
}

/// The lines of a batch are removed together, so a long batch is split.
const BATCH_BYTES: usize = 64 * 1024;

impl MemoryLog {
    /// The limit of [`new`](Self::new), in bytes.
    pub const DEFAULT_BYTES: usize = 4 * 1024 * 1024;

    /// Creates a log that keeps about 4 MiB.
    #[must_use]
    pub fn new(header: Header) -> Self {
        MemoryLog::with_limit(header, MemoryLog::DEFAULT_BYTES)
    }

    /// Creates a log that keeps about `memory_bytes`.
    #[must_use]
    pub fn with_limit(header: Header, memory_bytes: usize) -> Self {
        let opened_at = SystemTime::now().duration_since(header.started).unwrap_or_default();
        // The state of the hasher is random.
        let life = (RandomState::new().hash_one(opened_at) >> 33) as u32 + 1;
        let start = LogPosition::new(1);
        let state = MemoryState { tail: Tail::default(), first: start, end: LogPosition::START };
        let log = MemoryLog { header, life, opened_at, limit: memory_bytes, state: Mutex::new(state) };
        log.state.lock_unpoisoned().push(&[LogLine::opened(opened_at, life)], memory_bytes);
        log
    }
}

impl MemoryState {
    fn push(&mut self, lines: &[LogLine], limit: usize) {
        let mut rest = lines;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|line| {
                bytes += line.written_len();
                bytes <= BATCH_BYTES
            });
            let (batch, after) = rest.split_at(fits.count().max(1));
            let first = LogPosition::new(self.end.number() + 1);
            self.end = LogPosition::new(self.end.number() + batch.len() as u64);
            self.tail.push(first, Arc::new(LineBatch::of(batch)));
            rest = after;
        }
        while self.tail.memory() > limit && self.tail.len() > 1 && self.tail.pop() {}
        self.first = self.tail.first().unwrap_or(LogPosition::new(self.end.number() + 1));
    }

    fn gone(&self, position: LogPosition) -> Option<Error> {
        let reason = if position > self.end {
            CursorGoneReason::BehindEnd { end: self.end }
        } else if position.number() + 1 < self.first.number() {
            CursorGoneReason::Removed { first: self.first }
        } else {
            return None;
        };
        Some(Error::CursorGone { position, reason })
    }
}

impl Log for MemoryLog {
    fn header(&self) -> &Header {
        &self.header
    }

    fn life(&self) -> u32 {
        self.life
    }

    fn opened_at(&self) -> Duration {
        self.opened_at
    }

    /// As in the trait. A line that is longer than the limit is [`Error::LogFull`].
    fn append(&self, lines: &[LogLine]) -> Result<LogPosition> {
        let mut state = self.state.lock_unpoisoned();
        if let Some(line) = lines.iter().find(|line| line.written_len() > self.limit) {
            return Err(Error::LogFull {
                size: state.tail.memory() as u64,
                more: line.written_len() as u64,
                limit: self.limit as u64,
                setting: "memory_bytes",
            });
        }
        state.push(lines, self.limit);
        Ok(state.end)
    }

    fn append_reserved(&self, lines: &[LogLine]) -> Result<LogPosition> {
        self.append(lines)
    }

    /// Does nothing: the records do not survive this process.
    fn sync(&self) -> Result<LogPosition> {
        Ok(self.end())
    }

    fn read(&self, after: LogPosition, max_bytes: usize) -> Result<LogPage> {
        let (end, page) = {
            let state = self.state.lock_unpoisoned();
            if let Some(gone) = state.gone(after) {
                return Err(gone);
            }
            (state.end, state.tail.page(after, max_bytes))
        };
        Ok(LogPage { records: page.map(|page| page.records(max_bytes)).unwrap_or_default(), end })
    }

    fn first(&self) -> LogPosition {
        self.state.lock_unpoisoned().first
    }

    fn end(&self) -> LogPosition {
        self.state.lock_unpoisoned().end
    }

    fn check(&self, cursor: LogCursor) -> Result<LogPosition> {
        let position = cursor.position;
        if cursor.life != self.life {
            return Err(Error::CursorGone { position, reason: CursorGoneReason::UnknownLife });
        }
        match self.state.lock_unpoisoned().gone(position) {
            Some(gone) => Err(gone),
            None => Ok(position),
        }
    }

    fn remove_before(&self, keep: LogPosition) -> Result<LogPosition> {
        let mut state = self.state.lock_unpoisoned();
        while state.tail.second().is_some_and(|second| second <= keep) && state.tail.pop() {}
        state.first = state.tail.first().unwrap_or(state.first);
        Ok(state.first)
    }
}
