//! What waits for the disk: a bounded queue between the conversation and the thread that writes.
//!
//! Whoever records copies bytes and goes on. Redacting, formatting and writing are the thread's.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duologue_rpc::Lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::format::{LineEnd, ProcessExit, Side};

/// How long the thread waits for company after something came, unless somebody waits for it: a
/// wake-up for each line of a stream would cost more than the line.
const GATHER: Duration = Duration::from_millis(2);
/// So much is written without waiting for more.
const ENOUGH: usize = 128 * 1024;
/// What an item costs beside its bytes.
const OVERHEAD: usize = size_of::<QueuedRecord>();

/// What happened; the bytes of a line stand beside it.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueuedEvent {
    /// A line, and whether it is known to be a JSON object with nothing around it.
    Line {
        from: Side,
        end: LineEnd,
        object: bool,
    },
    /// A line of stderr.
    Stderr,
    Eof(Side),
    Exit(ProcessExit),
    Dropped {
        lines: u64,
        bytes: u64,
    },
}

/// What happened, when, and how many bytes of the batch belong to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRecord {
    pub(super) at: Duration,
    pub(super) what: QueuedEvent,
    pub(super) len: usize,
}

impl QueuedRecord {
    /// What it takes of the queue.
    pub(super) fn size(&self) -> usize {
        self.len + OVERHEAD
    }
}

/// Things that happened, in order, their bytes end to end.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    pub(super) items: Vec<QueuedRecord>,
    pub(super) bytes: Vec<u8>,
}

impl RecordBatch {
    fn push(&mut self, at: Duration, what: QueuedEvent, bytes: &[u8]) -> usize {
        let item = QueuedRecord { at, what, len: bytes.len() };
        self.items.push(item);
        self.bytes.extend_from_slice(bytes);
        item.size()
    }

    /// Empties it; after a burst the memory is given back.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.items.shrink_to(ENOUGH / OVERHEAD);
        self.bytes.clear();
        self.bytes.shrink_to(4 * ENOUGH);
    }
}

/// What the thread is to do next.
pub(super) enum WriterTask {
    /// Write the batch it was given.
    Write,
    /// See to it that what was written survives the machine.
    Sync,
    /// Leave.
    Leave,
}

pub(super) struct RecordQueue {
    state: Mutex<QueueState>,
    /// Wakes the thread.
    work: Condvar,
    /// Tells a handle that waits in `drop` that the thread has left.
    left: Condvar,
    /// Something was written, or nothing more will be.
    progress: Notify,
    /// Bytes that are not written; changed under the lock, read without it.
    unwritten: AtomicUsize,
    limit: usize,
    pub(super) lossy: bool,
    /// When the time of the records was `zero`.
    start: Instant,
    zero: Duration,
}

#[derive(Default)]
struct QueueState {
    batch: RecordBatch,
    /// Items so far.
    pushed: u64,
    written: u64,
    synced: u64,
    /// The time of the last item: times never go back.
    last: Duration,
    /// Lines and bytes that were left out since the last item.
    missing: (u64, u64),
    /// The thread waits: for anything at all, or for company.
    idle: bool,
    gathering: bool,
    /// Somebody waits for what is there.
    urgent: bool,
    sync: bool,
    closing: bool,
    left: bool,
    error: Option<Error>,
}

impl RecordQueue {
    pub(super) fn new(limit: usize, lossy: bool, zero: Duration) -> Self {
        RecordQueue {
            state: Mutex::default(),
            work: Condvar::new(),
            left: Condvar::new(),
            progress: Notify::new(),
            unwritten: AtomicUsize::new(0),
            limit,
            lossy,
            start: Instant::now(),
            zero,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock_unpoisoned()
    }

    /// Appends what happened. A lossy queue that is full counts it instead; any other takes it, and
    /// whoever brings more has to wait for [`room`](Self::room).
    pub(super) fn push(&self, at: Instant, what: QueuedEvent, bytes: &[u8]) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closing || state.left {
            return;
        }
        let is_line = matches!(what, QueuedEvent::Line { .. } | QueuedEvent::Stderr);
        let waiting = self.unwritten.load(Relaxed);
        if self.lossy && is_line && waiting > 0 && waiting + bytes.len() + OVERHEAD > self.limit {
            state.missing.0 += 1;
            state.missing.1 += bytes.len() as u64;
            return;
        }
        state.last = state.last.max(self.zero + at.saturating_duration_since(self.start));
        let size = state.note_missing() + state.batch.push(state.last, what, bytes);
        state.pushed += 1;
        let waiting = self.unwritten.fetch_add(size, Relaxed) + size;
        let enough = waiting >= ENOUGH.min(self.limit);
        if state.idle || (state.gathering && enough) {
            (state.idle, state.gathering) = (false, false);
            drop(guard);
            self.work.notify_one();
        }
    }

    /// Whether whoever brings more has to wait. A lossy queue never asks for that.
    pub(super) fn is_full(&self) -> bool {
        !self.lossy && self.unwritten.load(Relaxed) >= self.limit
    }

    /// Waits until there is room.
    pub(super) async fn room(&self) {
        self.until(|_| !self.is_full()).await;
    }

    /// Waits until everything pushed before the call is with the system, or even on the disk.
    pub(super) async fn flush(&self, sync: bool) -> Result<()> {
        let mark = {
            let mut state = self.lock();
            if !state.left {
                // What was left out is part of what was recorded.
                let _ = self.unwritten.fetch_add(state.note_missing(), Relaxed);
            }
            state.sync |= sync;
            state.urgent = true;
            state.pushed
        };
        self.work.notify_one();
        self.until(|state| if sync { state.synced >= mark } else { state.written >= mark }).await;
        self.error().map_or(Ok(()), Err)
    }

    /// Takes nothing more; the thread writes what is there and leaves.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Waits until the thread has left.
    pub(super) async fn stopped(&self) -> Option<Error> {
        self.until(|_| false).await;
        self.error()
    }

    /// Blocks until the thread has left, or the time is up.
    pub(super) fn block_until_left(&self, longest: Duration) {
        let _ = self.left.wait_timeout_while(self.lock(), longest, |state| !state.left);
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.lock().error.clone()
    }

    async fn until(&self, done: impl Fn(&QueueState) -> bool) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let state = self.lock();
                if state.left || done(&state) {
                    return;
                }
            }
            progress.await;
        }
    }

    /// For the thread: waits for work and swaps what is there for the empty `batch`.
    pub(super) fn next(&self, batch: &mut RecordBatch) -> WriterTask {
        let mut gathered = false;
        let mut guard = self.lock();
        loop {
            let state = &mut *guard;
            if state.closing {
                let _ = self.unwritten.fetch_add(state.note_missing(), Relaxed);
            }
            if !state.batch.items.is_empty() {
                let enough = self.unwritten.load(Relaxed) >= ENOUGH.min(self.limit);
                if gathered || enough || state.urgent || state.closing {
                    state.urgent = false;
                    std::mem::swap(batch, &mut state.batch);
                    return WriterTask::Write;
                }
                state.gathering = true;
                let waited = self.work.wait_timeout(guard, GATHER).unwrap_or_else(PoisonError::into_inner);
                guard = waited.0;
                (guard.gathering, gathered) = (false, true);
                continue;
            }
            state.urgent = false;
            if std::mem::take(&mut state.sync) {
                return WriterTask::Sync;
            }
            if state.closing {
                return WriterTask::Leave;
            }
            state.idle = true;
            guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
            guard.idle = false;
        }
    }

    /// For the thread: so many items of this size together are with the system.
    pub(super) fn written(&self, items: usize, size: usize) {
        self.lock().written += items as u64;
        self.unwritten.fetch_sub(size, Relaxed);
        self.progress.notify_waiters();
    }

    /// For the thread: all that was written is on the disk.
    pub(super) fn synced(&self) {
        let mut state = self.lock();
        state.synced = state.written;
        drop(state);
        self.progress.notify_waiters();
    }

    /// For the thread: nothing more will be written.
    pub(super) fn leave(&self, error: Option<Error>) {
        let mut state = self.lock();
        state.left = true;
        state.error = error;
        state.batch = RecordBatch::default();
        drop(state);
        self.unwritten.store(0, Relaxed);
        self.progress.notify_waiters();
        self.left.notify_all();
    }
}

impl QueueState {
    /// Puts what was left out where it is missing.
    fn note_missing(&mut self) -> usize {
        let (lines, bytes) = std::mem::take(&mut self.missing);
        if lines == 0 {
            return 0;
        }
        self.pushed += 1;
        self.batch.push(self.last, QueuedEvent::Dropped { lines, bytes }, &[])
    }
}
