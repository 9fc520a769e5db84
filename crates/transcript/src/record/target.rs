//! The place that a recorder writes to: a file, or memory.

use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;

use crate::error::{Error, Result};
use crate::record::file::TranscriptFile;
use crate::transcript::Transcript;

#[derive(Debug)]
pub(super) enum RecordTarget {
    File(TranscriptFile),
    Memory(MemoryTarget),
}

/// A transcript in memory, shared by the thread that writes and the recorder that reads.
#[derive(Clone, Debug)]
pub(super) struct MemoryTarget {
    text: Arc<Mutex<Vec<u8>>>,
    limit: usize,
}

/// An error after a part of the records.
#[derive(Debug)]
pub(super) struct CutRecords {
    /// The bytes of the whole records before it.
    pub(super) whole: usize,
    pub(super) error: Error,
}

impl CutRecords {
    /// `fits` is the number of bytes that could be appended.
    pub(super) fn new(records: &[u8], fits: usize, error: Error) -> Self {
        let appended = records.get(..fits).unwrap_or_default();
        CutRecords { whole: memchr::memrchr(b'\n', appended).map_or(0, |end| end + 1), error }
    }
}

impl From<CutRecords> for Error {
    fn from(cut: CutRecords) -> Self {
        cut.error
    }
}

impl RecordTarget {
    /// Appends whole records.
    pub(super) fn append(&mut self, records: &[u8]) -> std::result::Result<(), CutRecords> {
        match self {
            RecordTarget::File(file) => file.append(records),
            RecordTarget::Memory(memory) => memory.append(records),
        }
    }

    /// Renames a new file to the one that it replaces, unless that has been done.
    pub(super) fn place(&mut self) -> Result<()> {
        match self {
            RecordTarget::File(file) => file.place(),
            RecordTarget::Memory(_) => Ok(()),
        }
    }

    /// Waits until everything written is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            RecordTarget::File(file) => file.sync(),
            RecordTarget::Memory(_) => Ok(()),
        }
    }
}

impl MemoryTarget {
    pub(super) fn new(limit: usize) -> Self {
        MemoryTarget { text: Arc::default(), limit }
    }

    fn append(&self, records: &[u8]) -> std::result::Result<(), CutRecords> {
        let mut text = self.text.lock_unpoisoned();
        let room = self.limit.saturating_sub(text.len());
        if records.len() <= room {
            text.extend_from_slice(records);
            return Ok(());
        }
        let cut = CutRecords::new(records, room, Error::MemoryFull { limit: self.limit });
        text.extend_from_slice(records.get(..cut.whole).unwrap_or_default());
        Err(cut)
    }

    /// Reads the transcript so far.
    pub(super) fn read(&self) -> Result<Transcript> {
        // The thread that writes would wait while a copy is parsed under the lock.
        let text = self.text.lock_unpoisoned().clone();
        Transcript::read(text.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_used_up_to_its_limit() {
        let memory = MemoryTarget::new(8);
        assert!(memory.append(b"one\n").is_ok() && memory.append(b"two\n").is_ok());
        assert!(memory.append(b"\n").is_err());
    }
}
