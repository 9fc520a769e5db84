//! The recorder: a handle on the queue and the thread behind it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Tap;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::format::{Header, ProcessExit, Redacted, Side};
use crate::record::file::{ResumePoint, TranscriptFile};
use crate::record::queue::{QueuedEvent, RecordQueue};
use crate::record::tap::RecorderTap;
use crate::record::writer::RecordWriter;
use crate::redact::Secrets;

/// How long the drop of the last handle waits for the disk.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Writes a conversation to a file while it happens.
///
/// As a tap it serves either SDK, for programs we do not own there is [`proxy`](crate::proxy). What is recorded
/// goes through a bounded queue to a thread of its own, in whole records; a file that a crash cut short
/// is read up to its last whole one.
///
/// - When the disk is slower than the conversation and the queue is full, the wire waits; a
///   [`lossy`](RecorderBuilder::lossy) recorder leaves lines out instead and says how many.
/// - When the disk is full, recording stops with one error, in the log and from
///   [`finish`](Self::finish); the conversation goes on.
/// - What looks like a secret is taken out before it is written, see [`Secrets`]. One that was cut over
///   chunks of a message needs [`Transcript::redact`](crate::Transcript::redact) with
///   [`Redaction::secrets_only`](crate::Redaction::secrets_only) afterwards.
///
/// Handles are cheap to clone. Dropping the last one, taps included, ends the recording and waits up
/// to a second for what is queued; [`finish`](Self::finish) waits for all of it and tells of errors.
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
    /// Records into a new file that only its owner may read.
    ///
    /// # Errors
    ///
    /// As [`RecorderBuilder::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Recorder::builder().create(path)
    }

    /// A recorder with settings.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder {
            name: concat!("duologue ", env!("CARGO_PKG_VERSION")).into(),
            program: Vec::new(),
            queue: RecorderBuilder::QUEUE_BYTES,
            lossy: false,
            secrets: Some(Secrets::default()),
        }
    }

    /// A tap for a connection of the side `ours`: `Client::tap(recorder.tap(Side::Client))`. One side
    /// of a conversation is enough, both would record it twice.
    ///
    /// Ends of lines are recorded as line feeds: a tap does not see them. What was recorded in the last
    /// milliseconds before the process is killed may be missing in the file; [`flush`](Self::flush) has it there.
    ///
    /// A connection that drops the last handle on the recorder, its tap, blocks its thread until the queue is
    /// written, for a second at most. Whoever keeps a handle for [`finish`](Self::finish) does not.
    #[must_use]
    pub fn tap(&self, ours: Side) -> Arc<dyn Tap> {
        Arc::new(RecorderTap { recorder: self.clone(), ours })
    }

    /// Records a line of the agent's stderr, without its end.
    pub fn stderr(&self, line: &[u8]) {
        self.push(QueuedEvent::Stderr, line);
    }

    /// Records that a side writes nothing more.
    pub fn eof(&self, side: Side) {
        self.push(QueuedEvent::Eof(side), &[]);
    }

    /// Records how the agent's process ended.
    pub fn exit(&self, exit: impl Into<ProcessExit>) {
        self.push(QueuedEvent::Exit(exit.into()), &[]);
    }

    /// Waits while the queue is full. Taps and proxies do it by themselves; for who records much of
    /// stderr. A lossy recorder never waits.
    pub async fn room(&self) {
        if self.is_full() {
            self.handle.queue.room().await;
        }
    }

    /// Waits until everything recorded so far is with the operating system: it survives the end of
    /// this process.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::File`] when recording has stopped.
    pub async fn flush(&self) -> Result<()> {
        self.handle.queue.flush(false).await
    }

    /// Waits until everything recorded so far is on the disk: it survives a power failure.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub async fn sync(&self) -> Result<()> {
        self.handle.queue.flush(true).await
    }

    /// Ends the recording: waits until all of it is written. What taps and other handles bring after
    /// this is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::File`] when something could not be written.
    ///
    /// # Cancel safety
    ///
    /// The recording ends also when the future is dropped.
    pub async fn finish(self) -> Result<()> {
        self.handle.queue.close();
        self.stopped().await.map_or(Ok(()), Err)
    }

    /// Waits until the recording ends, and says which error ended it; none after
    /// [`finish`](Self::finish).
    pub async fn stopped(&self) -> Option<Error> {
        self.handle.queue.stopped().await
    }

    /// The error that ended the recording, if one did.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.handle.queue.error()
    }

    /// For a proxy: what was recorded is with the system before the wire goes on. A lossy recorder
    /// does not keep the wire waiting, and one that has stopped does not either.
    pub(super) async fn ahead(&self) {
        if !self.handle.queue.lossy {
            let _ = self.flush().await;
        }
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

    /// Starts the thread. The header is written.
    fn start(queue: RecordQueue, target: TranscriptFile, secrets: Option<Secrets>) -> Result<Self> {
        let (queue, path) = (Arc::new(queue), target.path.clone());
        let writer = RecordWriter { queue: queue.clone(), target, secrets };
        std::thread::Builder::new()
            .name("duologue-record".into())
            .spawn(move || writer.run())
            .map_err(|error| Error::file(path, error))?;
        Ok(Recorder { handle: Arc::new(RecorderHandle { queue }) })
    }
}

/// Ends the recording when the last one who records is gone.
struct RecorderHandle {
    queue: Arc<RecordQueue>,
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

/// Settings of a [`Recorder`]; ends with the file.
#[derive(Debug)]
#[must_use = "a recording begins with create, replace or append"]
pub struct RecorderBuilder {
    name: String,
    program: Vec<String>,
    queue: usize,
    lossy: bool,
    secrets: Option<Secrets>,
}

impl RecorderBuilder {
    /// How many bytes may wait for the disk if [`queue_bytes`](Self::queue_bytes) does not say.
    pub const QUEUE_BYTES: usize = 8 << 20;

    /// The program that records, with its version, for the header.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The agent's program and its arguments, for the header. Secrets in it are taken out like all others.
    pub fn program(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.program = words.into_iter().map(Into::into).collect();
        self
    }

    /// How many bytes may wait for the disk before the wire has to; 8 MiB if not set. What is read in
    /// one go still comes on top, and what the thread holds of it.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue = bytes.max(1);
        self
    }

    /// Never lets the wire wait for the disk: lines that find no room are left out, and a
    /// [`Dropped`](crate::RecordEvent::Dropped) record says how many.
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Writes everything as it is, keys and tokens included. The header says so.
    pub fn keep_secrets(mut self) -> Self {
        self.secrets = None;
        self
    }

    /// Takes these secrets out instead of the usual ones.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }

    /// Records into a new file.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also when the file exists, and [`Error::DiskFull`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Recorder> {
        self.begin(TranscriptFile::create(path.as_ref())?)
    }

    /// Records into a new file in the place of an old one, which stays until the new one is there. A pipe or
    /// a device is written to; a symbolic link is refused, since it may lead to anybody's file.
    ///
    /// # Errors
    ///
    /// [`Error::File`], also when another recorder is writing the old file, and [`Error::DiskFull`].
    pub fn replace(self, path: impl AsRef<Path>) -> Result<Recorder> {
        self.begin(TranscriptFile::replace(path.as_ref())?)
    }

    /// Goes on with a transcript, or begins one where there is none. What a crash left of a record at its
    /// end is cut off first; a whole record without the end of its line gets it. From then on only its owner
    /// may read the file. The header stays as it is, and times go on from its start.
    ///
    /// # Errors
    ///
    /// [`Error::NoHeader`] and [`Error::Version`] when the file is something else, which stays as it is;
    /// [`Error::File`], also when another recorder is writing it, when it is a symbolic link, when
    /// its header promises more redaction than this recorder does, and when its last record claims to be
    /// centuries after the first; [`Error::DiskFull`].
    pub fn append(self, path: impl AsRef<Path>) -> Result<Recorder> {
        let path = path.as_ref();
        let (target, resumed) = TranscriptFile::resume(path)?;
        let Some(ResumePoint { header, at }) = resumed else {
            return self.begin(target);
        };
        if header.redacted != Redacted::Nothing && self.redacted() != header.redacted {
            let error = "its header promises that more is taken out than would be; append to another file";
            return Err(Error::file(path, std::io::Error::new(std::io::ErrorKind::InvalidInput, error)));
        }
        Recorder::start(RecordQueue::new(self.queue, self.lossy, at), target, self.secrets)
    }

    fn redacted(&self) -> Redacted {
        if self.secrets.is_some() { Redacted::Secrets } else { Redacted::Nothing }
    }

    fn begin(self, mut target: TranscriptFile) -> Result<Recorder> {
        let redacted = self.redacted();
        let mut header = Header::new(self.name);
        header.redacted = redacted;
        header.program = match &self.secrets {
            Some(secrets) => secrets.redact_words(&self.program),
            None => self.program,
        };
        let mut line = serde_json::to_vec(&header).map_err(std::io::Error::from)?;
        line.push(b'\n');
        target.append(&line)?;
        target.place()?;
        Recorder::start(RecordQueue::new(self.queue, self.lossy, Duration::ZERO), target, self.secrets)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_fills_up_ends_the_recording_and_nothing_else() {
        let full = TranscriptFile::replace(Path::new("/dev/full")).expect("it opens");
        let recorder =
            Recorder::start(RecordQueue::new(1000, false, Duration::ZERO), full, None).expect("a thread");
        recorder.stderr(b"one line");
        assert!(matches!(recorder.flush().await, Err(Error::DiskFull { .. })));
        // Nobody waits for a disk that takes nothing.
        for _ in 0..1000 {
            recorder.stderr(b"one more line");
            recorder.room().await;
        }
        assert!(matches!(recorder.stopped().await, Some(Error::DiskFull { .. })));
        assert!(matches!(recorder.finish().await, Err(Error::DiskFull { .. })));
    }
}
