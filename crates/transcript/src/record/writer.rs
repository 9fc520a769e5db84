//! The thread that writes: removes secrets from the entries of the queue and appends whole records.

use std::borrow::Cow;
use std::io::{ErrorKind, Write as _};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{LineEnd, Record, RecordEvent, Side, write_frame, write_line};
use crate::record::file::TranscriptFile;
use crate::record::queue::{QueuedEvent, QueuedRecord, RecordBatch, RecordQueue, WriterTask};
use crate::record::target::{CutRecords, RecordTarget};
use crate::redact::{Secrets, StreamSecrets};

/// The number of bytes that are written at once.
const WRITE: usize = 256 * 1024;

pub(super) struct RecordWriter {
    queue: Arc<RecordQueue>,
    target: RecordTarget,
    /// The secrets to remove, if any.
    secrets: Option<Secrets>,
    /// The state of each stream of lines, since a private key may span several lines.
    streams: [StreamSecrets; 3],
    /// Records that have not been written.
    text: Vec<u8>,
}

/// Notifies waiting callers that the thread has stopped, also after a panic.
struct ExitGuard<'a> {
    queue: &'a RecordQueue,
    error: Option<Error>,
}

impl Drop for ExitGuard<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.error.take());
    }
}

impl RecordWriter {
    pub(super) fn new(queue: Arc<RecordQueue>, target: RecordTarget, secrets: Option<Secrets>) -> Self {
        RecordWriter { queue, target, secrets, streams: Default::default(), text: Vec::new() }
    }

    /// Writes until the queue is closed and empty, or writing fails.
    pub(super) fn run(self) {
        let queue = self.queue.clone();
        let panicked = Error::from(std::io::Error::other("the thread that writes it panicked"));
        let mut leaving = ExitGuard { queue: &queue, error: Some(panicked) };
        // The file is closed before callers are notified.
        let mut writer = self;
        let done = writer.write_all();
        drop(writer);
        if let Err(error) = &done {
            tracing::error!(%error, "recording stops here, the conversation goes on");
        }
        leaving.error = done.err();
    }

    fn write_all(&mut self) -> Result<()> {
        let mut batch = RecordBatch::default();
        loop {
            match self.queue.next(&mut batch) {
                WriterTask::Leave if self.queue.is_finished() => return self.target.place(),
                WriterTask::Leave => return Ok(()),
                WriterTask::Sync => {
                    self.target.sync()?;
                    self.queue.synced();
                }
                WriterTask::Write => self.write(&batch)?,
            }
            batch.clear();
        }
    }

    /// Writes a batch in pieces, so that waiting callers see progress.
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (mut items, mut size) = (0, 0);
        let mut rest = batch.bytes.as_slice();
        for (index, item) in batch.items.iter().enumerate() {
            let (bytes, after) = rest.split_at_checked(item.len).unwrap_or((rest, &[]));
            rest = after;
            self.format(item, bytes);
            (items, size) = (items + 1, size + item.size());
            if self.text.len() >= WRITE || index + 1 == batch.items.len() {
                if let Err(CutRecords { whole, error }) = self.target.append(&self.text) {
                    let written = self.text.get(..whole).unwrap_or_default();
                    let records = memchr::memchr_iter(b'\n', written).count();
                    let rest = batch.items.get(index + 1 - items + records..);
                    self.queue.lose(rest.unwrap_or_default());
                    return Err(error);
                }
                self.text.clear();
                self.text.shrink_to(2 * WRITE);
                self.queue.written(std::mem::take(&mut items), std::mem::take(&mut size));
            }
        }
        Ok(())
    }

    fn format(&mut self, item: &QueuedRecord, bytes: &[u8]) {
        let [stderr, client, agent] = &mut self.streams;
        if self.secrets.is_some() && matches!(item.what, QueuedEvent::Line { from: Side::Client, .. }) {
            agent.other_side(bytes);
        }
        let stream = match item.what {
            QueuedEvent::Stderr => Some(stderr),
            QueuedEvent::Line { from: Side::Client, .. } => Some(client),
            QueuedEvent::Line { from: Side::Agent, .. } => Some(agent),
            _ => None,
        };
        let text = &mut self.text;
        let clean = match &self.secrets {
            Some(secrets) if !bytes.is_empty() => match stream {
                Some(lines) => lines.redact(secrets, bytes),
                None => secrets.redact(bytes),
            },
            _ => Cow::Borrowed(bytes),
        };
        let event = match item.what {
            QueuedEvent::Line { from, end: LineEnd::Lf, object: true }
                if matches!(clean, Cow::Borrowed(_)) =>
            {
                return write_frame(text, item.at, from, &clean);
            }
            QueuedEvent::Line { from, end, .. } => return write_line(text, item.at, from, &clean, end),
            QueuedEvent::Stderr => RecordEvent::Stderr(String::from_utf8_lossy(&clean).into_owned()),
            QueuedEvent::Eof(side) => RecordEvent::Eof(side),
            QueuedEvent::Exit(exit) => RecordEvent::Exit(exit),
            QueuedEvent::Dropped { lines, bytes } => RecordEvent::Dropped { lines, bytes },
        };
        Record::new(item.at, event).write(text);
    }
}

impl TranscriptFile {
    /// Appends whole records. If the disk is full, cuts off the part of a record that was written.
    pub(super) fn append(&mut self, records: &[u8]) -> std::result::Result<(), CutRecords> {
        let mut rest = records;
        while !rest.is_empty() {
            let error = match self.file.write(rest) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let cut = CutRecords::new(records, records.len() - rest.len(), Error::file(&self.path, error));
            if self.is_regular {
                // If this fails too, readers leave the incomplete record out.
                let _ = self.file.set_len(self.length + cut.whole as u64);
            }
            return Err(cut);
        }
        self.length += records.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        if !self.is_regular {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| Error::file(&self.path, error))
    }
}
