//! The recorder: a handle of the queue and its thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Tap;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::format::{Header, LineEnd, ProcessExit, RecordedLine, Redacted, Side};
use crate::record::file::{FilePlace, ResumePoint, TranscriptFile};
use crate::record::proxy::StderrWriter;
use crate::record::queue::{QueuedEvent, RecordQueue};
use crate::record::tap::RecorderTap;
use crate::record::target::{MemoryTarget, RecordTarget};
use crate::record::writer::RecordWriter;
use crate::redact::Secrets;
use crate::transcript::Transcript;

/// The time that dropping the last handle waits for the disk.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Records a conversation to a file while it happens.
///
/// A recorder is a tap for either SDK; [`proxy`](crate::proxy) records other programs. A bounded queue leads to a
/// thread that writes whole records. A file that a crash cut short can be read up to its last whole record.
///
/// - If the disk is too slow and the queue is full, the connection waits. A
///   [`lossy`](RecorderBuilder::lossy) recorder drops lines instead and records their number.
/// - If the disk is full, recording stops with one error, which is logged and returned by
///   [`finish`](Self::finish). The conversation goes on.
/// - Secrets are removed before they are written, see [`Secrets`]. A secret that is split over pieces of a text (chunks
///   of a message, output of a task) loses only the pieces after the one in which it is recognised: of an API key, 16 to 35
///   characters stay. [`Transcript::redact`](crate::Transcript::redact) with
///   [`Redaction::secrets_only`](crate::Redaction::secrets_only) removes them afterwards.
///
/// Handles are cheap to clone. Dropping the last one, including taps, ends the recording and waits up to a second
/// for the queue. [`finish`](Self::finish) waits for all of it and returns errors.
///
/// ```
/// use duologue_rpc::{PeerBuilder, Incoming, Responder, Service, Transport};
/// use duologue_transcript::{Recorder, Side, Transcript};
///
/// struct Silent;
/// impl Service for Silent {
///     fn request(&self, _: Incoming<'_>, _: Responder) {}
///     fn notification(&self, _: Incoming<'_>) {}
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("talk.jsonl");
/// let recorder = Recorder::create(&path)?;
/// let (ours, theirs) = Transport::memory();
/// // `Client::tap` and `Server::tap` take the same.
/// let client = PeerBuilder::new(ours).tap(recorder.tap(Side::Client)).start(|_| Silent);
/// # let _agent = PeerBuilder::new(theirs).start(|_| Silent);
/// client.notify_raw("session/cancel", &serde_json::json!({"sessionId": "s"})).await?;
/// recorder.finish().await?;
///
/// let transcript = Transcript::load(&path)?;
/// assert_eq!(transcript.entries()[0].method(), Some("session/cancel"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    handle: Arc<RecorderHandle>,
}

impl Recorder {
    /// Records to a new file that only its owner may read.
    ///
    /// # Errors
    ///
    /// As [`RecorderBuilder::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Recorder::builder().create(path)
    }

    /// Records into memory, for a test or a report of an error. [`transcript`](Self::transcript) returns the recording.
    ///
    /// ```
    /// use duologue_transcript::{Recorder, Side};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> duologue_transcript::Result<()> {
    /// let recorder = Recorder::in_memory()?;
    /// // As the tap of a client or a server: `Client::tap(recorder.tap(Side::Client))`.
    /// recorder.stderr(b"the agent starts");
    /// assert_eq!(recorder.transcript().await?.records().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RecorderBuilder::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Recorder::builder().in_memory()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder {
            name: concat!("duologue ", env!("CARGO_PKG_VERSION")).into(),
            program: Vec::new(),
            queue: RecorderBuilder::QUEUE_BYTES,
            memory: RecorderBuilder::MEMORY_BYTES,
            lossy: false,
            secrets: Some(Secrets::default()),
        }
    }

    /// Returns a tap for a connection of the side `ours`: `Client::tap(recorder.tap(Side::Client))`. Tapping one side
    /// is enough; with both, each line is recorded twice.
    ///
    /// A tap does not see the ends of lines, so they are recorded as line feeds. If the process is killed, the last
    /// milliseconds may be missing; call [`flush`](Self::flush) to have them in the file.
    ///
    /// If a tap is the last handle, its connection blocks for up to a second when it is dropped. Keep a handle and
    /// call [`finish`](Self::finish) to avoid this.
    #[must_use]
    pub fn tap(&self, ours: Side) -> Arc<dyn Tap> {
        Arc::new(RecorderTap { recorder: self.clone(), ours })
    }

    /// Records a line of the agent's stderr, without its end. If the queue is full, a
    /// [`Dropped`](crate::RecordEvent::Dropped) record counts the line instead; await [`room`](Self::room) before to
    /// have each line.
    pub fn stderr(&self, line: &[u8]) {
        if self.is_full() {
            self.handle.queue.drop_line(line.len());
        } else {
            self.push(QueuedEvent::Stderr, line);
        }
    }

    /// Returns a writer that records the agent's stderr line by line, as [`stderr`](Self::stderr) does. A line over
    /// [`Limits::frame_bytes`](duologue_rpc::Limits::frame_bytes) is counted as dropped. The last line ends when the writer is
    /// dropped.
    #[must_use]
    pub fn stderr_writer(&self) -> StderrWriter {
        StderrWriter::new(self.clone())
    }

    /// Records that a side closed its output.
    pub fn eof(&self, side: Side) {
        self.push(QueuedEvent::Eof(side), &[]);
    }

    /// Records the end of the agent's process.
    pub fn exit(&self, exit: impl Into<ProcessExit>) {
        self.push(QueuedEvent::Exit(exit.into()), &[]);
    }

    /// Waits while the queue is full. Taps and proxies do this themselves. A lossy recorder never waits.
    pub async fn room(&self) {
        if self.is_full() {
            self.handle.queue.room().await;
        }
    }

    /// Waits until all records so far are with the operating system, so that they survive the end of this process.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::File`] if recording has stopped.
    pub async fn flush(&self) -> Result<()> {
        self.handle.queue.flush(false).await
    }

    /// Waits until all records so far are on the disk, so that they survive a power failure.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub async fn sync(&self) -> Result<()> {
        self.handle.queue.flush(true).await
    }

    /// Waits until all records so far are written, and returns the transcript. It is read in this task. A recording in
    /// memory is copied for it. If it has exceeded its memory, the last record counts the lines that are missing.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush) and [`Transcript::load`], except for [`Error::MemoryFull`].
    ///
    /// # Cancel safety
    ///
    /// The recording goes on if the future is dropped.
    pub async fn transcript(&self) -> Result<Transcript> {
        let flushed = self.flush().await;
        match (&self.handle.written_to, flushed) {
            (WrittenTo::Memory(memory), Err(Error::MemoryFull { .. })) => {
                let mut transcript = memory.read()?;
                self.handle.queue.lost().into_iter().for_each(|lost| transcript.push(lost));
                Ok(transcript)
            }
            (_, Err(error)) => Err(error),
            (WrittenTo::Memory(memory), Ok(())) => memory.read(),
            (WrittenTo::File(_, place), Ok(())) => place.read(),
        }
    }

    /// Ends the recording and waits until all of it is written. Later lines of taps and other handles are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::File`] if something could not be written.
    ///
    /// # Cancel safety
    ///
    /// The recording also ends if the future is dropped.
    pub async fn finish(self) -> Result<()> {
        self.handle.queue.finish();
        self.stopped().await.map_or(Ok(()), Err)
    }

    /// Waits until the recording ends. Returns the error that ended it, or `None` after [`finish`](Self::finish).
    pub async fn stopped(&self) -> Option<Error> {
        self.handle.queue.stopped().await
    }

    /// Returns the error that ended the recording, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.handle.queue.error()
    }

    /// Waits until all records are with the operating system, for a proxy that passes lines on only then. Returns at once
    /// if the recorder is lossy or has stopped.
    pub async fn ahead(&self) {
        if !self.handle.queue.lossy {
            let _ = self.flush().await;
        }
    }

    /// Records a line.
    pub(crate) fn line(&self, line: &RecordedLine) {
        self.push_line(line.from, line.bytes(), line.end);
    }

    /// Records a line of a side, without its end, for a proxy. Await [`ahead`](Self::ahead) before it is passed on.
    pub fn push_line(&self, from: Side, line: &[u8], end: LineEnd) {
        self.push(QueuedEvent::Line { from, end, object: false }, line);
    }

    pub(super) fn is_full(&self) -> bool {
        self.handle.queue.is_full()
    }

    pub(super) fn push(&self, what: QueuedEvent, bytes: &[u8]) {
        self.push_at(Instant::now(), what, bytes);
    }

    pub(super) fn push_at(&self, at: Instant, what: QueuedEvent, bytes: &[u8]) {
        self.handle.queue.push(at, what, bytes);
    }

    /// Starts the thread. The header must have been written.
    fn start(queue: RecordQueue, target: RecordTarget, secrets: Option<Secrets>) -> Result<Self> {
        let queue = Arc::new(queue);
        let written_to = match &target {
            RecordTarget::File(file) => WrittenTo::File(file.path.clone(), file.current.clone()),
            RecordTarget::Memory(memory) => WrittenTo::Memory(memory.clone()),
        };
        let writer = RecordWriter::new(queue.clone(), target, secrets);
        let thread = std::thread::Builder::new().name("duologue-record".into()).spawn(move || writer.run());
        thread.map_err(|error| match &written_to {
            WrittenTo::File(path, _) => Error::file(path, error),
            WrittenTo::Memory(_) => error.into(),
        })?;
        Ok(Recorder { handle: Arc::new(RecorderHandle { queue, written_to }) })
    }
}

/// Ends the recording when the last handle is dropped.
struct RecorderHandle {
    queue: Arc<RecordQueue>,
    written_to: WrittenTo,
}

/// The place of the recording.
enum WrittenTo {
    File(PathBuf, FilePlace),
    Memory(MemoryTarget),
}

impl std::fmt::Debug for RecorderHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecorderHandle").finish_non_exhaustive()
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        self.queue.close();
        self.queue.block_until_left(LAST_WORDS);
    }
}

/// The settings of a [`Recorder`].
#[derive(Debug)]
#[must_use = "a recording begins with create, replace, append or in_memory"]
pub struct RecorderBuilder {
    name: String,
    program: Vec<String>,
    queue: usize,
    memory: usize,
    lossy: bool,
    secrets: Option<Secrets>,
}

impl RecorderBuilder {
    /// The default of [`queue_bytes`](Self::queue_bytes): 8 MiB.
    pub const QUEUE_BYTES: usize = 8 << 20;

    /// The default of [`memory_bytes`](Self::memory_bytes): 64 MiB.
    pub const MEMORY_BYTES: usize = 64 << 20;

    /// Sets the program that records, with its version, for the header.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the agent's program and its arguments, for the header. Secrets are removed from them.
    pub fn program(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.program = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the number of bytes that may wait for the disk before the connection has to wait; 8 MiB by default. One
    /// read of the connection and the entries that the thread is writing come on top.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue = bytes.max(1);
        self
    }

    /// Sets the size of a recording [in memory](Self::in_memory); 64 MiB by default. It ends with
    /// [`Error::MemoryFull`] there, and the conversation goes on. [`Recorder::transcript`] returns the part before.
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Never lets the connection wait for the disk. Lines that do not fit are dropped, and a
    /// [`Dropped`](crate::RecordEvent::Dropped) record contains their number.
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Records everything unchanged, including keys and tokens. The header says so.
    pub fn keep_secrets(mut self) -> Self {
        self.secrets = None;
        self
    }

    /// Removes these secrets instead of the default ones.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }

    /// Records to a new file.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if the file exists, and [`Error::DiskFull`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Recorder> {
        self.begin_file(TranscriptFile::create(path.as_ref())?, true)
    }

    /// Records to a new file that replaces an old one, once it has its header. A pipe or a device is written to. A
    /// symbolic link is rejected, since it could lead to any file.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also if another recorder is writing the old file, and [`Error::DiskFull`].
    pub fn replace(self, path: impl AsRef<Path>) -> Result<Recorder> {
        self.begin_file(TranscriptFile::replace(path.as_ref())?, true)
    }

    /// Does the same, but the old file stays until [`Recorder::finish`] has written all. If the recorder is dropped or
    /// fails before, the new file is deleted.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub fn replace_at_end(self, path: impl AsRef<Path>) -> Result<Recorder> {
        self.begin_file(TranscriptFile::replace(path.as_ref())?, false)
    }

    /// Records into memory. [`Recorder::transcript`] returns the recording.
    ///
    /// # Errors
    ///
    /// [`Error::MemoryFull`] if not even the header fits, and [`Error::Io`] if no thread can be started.
    pub fn in_memory(self) -> Result<Recorder> {
        let mut target = RecordTarget::Memory(MemoryTarget::new(self.memory));
        target.append(&self.header()?)?;
        self.begin(target, Duration::ZERO)
    }

    /// Appends to a transcript, or creates one. An incomplete record at the end is cut off first, and a missing line
    /// feed is added to a complete one. The file becomes readable by its owner only. The header is kept, and times
    /// go on from its start.
    ///
    /// # Errors
    ///
    /// [`Error::NoHeader`] and [`Error::Version`] if the file is not a recording; it is not changed.
    /// [`Error::File`], also if another recorder is writing it, if it is a symbolic link, if its header promises
    /// more redaction than this recorder does, and if its last record is centuries after the first.
    /// [`Error::DiskFull`].
    pub fn append(self, path: impl AsRef<Path>) -> Result<Recorder> {
        let path = path.as_ref();
        let (target, resumed) = TranscriptFile::resume(path)?;
        let Some(ResumePoint { header, at }) = resumed else {
            return self.begin_file(target, true);
        };
        if header.redacted != Redacted::Nothing && self.redacted() != header.redacted {
            let error = "its header promises more redaction than this recorder does; append to another file";
            return Err(Error::file(path, std::io::Error::new(std::io::ErrorKind::InvalidInput, error)));
        }
        self.begin(RecordTarget::File(target), at)
    }

    fn redacted(&self) -> Redacted {
        if self.secrets.is_some() { Redacted::Secrets } else { Redacted::Nothing }
    }

    /// Returns the first line of a new transcript.
    fn header(&self) -> Result<Vec<u8>> {
        let mut header = Header::new(self.name.clone());
        header.redacted = self.redacted();
        header.program = match &self.secrets {
            Some(secrets) => secrets.redact_words(&self.program),
            None => self.program.clone(),
        };
        let mut line = serde_json::to_vec(&header).map_err(std::io::Error::from)?;
        line.push(b'\n');
        Ok(line)
    }

    fn begin_file(self, mut target: TranscriptFile, replace_now: bool) -> Result<Recorder> {
        target.append(&self.header()?)?;
        if replace_now {
            target.place()?;
        }
        self.begin(RecordTarget::File(target), Duration::ZERO)
    }

    fn begin(self, target: RecordTarget, at: Duration) -> Result<Recorder> {
        Recorder::start(RecordQueue::new(self.queue, self.lossy, at), target, self.secrets)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_fills_up_ends_the_recording_and_nothing_else() {
        let full = TranscriptFile::replace(Path::new("/dev/full")).expect("it opens");
        let recorder =
            Recorder::start(RecordQueue::new(1000, false, Duration::ZERO), RecordTarget::File(full), None)
                .expect("a thread");
        recorder.stderr(b"one line");
        assert!(matches!(recorder.flush().await, Err(Error::DiskFull { .. })));
        // No caller waits for a disk that has failed.
        for _ in 0..1000 {
            recorder.stderr(b"one more line");
            recorder.room().await;
        }
        assert!(matches!(recorder.stopped().await, Some(Error::DiskFull { .. })));
        assert!(matches!(recorder.finish().await, Err(Error::DiskFull { .. })));
    }
}
