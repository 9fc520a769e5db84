//! A bounded queue between the connection and the thread that writes the file.
//!
//! A caller copies bytes and returns. The thread redacts, formats and writes them.
//!
//! It is not the queue of `duologue_rpc`: the consumer is a thread that takes everything at once, a full
//! queue delays the connection or drops lines, and callers wait until an entry is on the disk.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use duologue_rpc::Lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::format::{LineEnd, ProcessExit, Record, RecordEvent, Side};

/// The time that the thread waits for more entries, unless a caller waits for it. Waking the thread for each
/// line would cost more than writing the line.
const GATHER: Duration = Duration::from_millis(2);
/// The number of bytes that are written without waiting for more.
const ENOUGH: usize = 128 * 1024;
/// The number of bytes for which an empty batch keeps memory. A thread that has to wait for the core finds several times
/// as much as it needs, and memory that was returned after each batch would be mapped again for the next.
const KEPT: usize = 8 * ENOUGH;
/// The size of an entry without its bytes.
const OVERHEAD: usize = size_of::<QueuedRecord>();

/// An event without the bytes of its line.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueuedEvent {
    /// A line. `object` is true if it is known to be a JSON object without anything around it.
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

/// An event, its time and the number of its bytes in the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRecord {
    pub(super) at: Duration,
    pub(super) what: QueuedEvent,
    pub(super) len: usize,
}

impl QueuedRecord {
    /// Returns the number of bytes that count against the limit of the queue.
    pub(super) fn size(&self) -> usize {
        self.len + OVERHEAD
    }
}

/// Entries in order, with their bytes in one buffer.
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

    /// Removes all entries, and frees the memory of a burst.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.items.shrink_to(KEPT / OVERHEAD);
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}

/// The next task of the thread.
pub(super) enum WriterTask {
    /// Write the batch.
    Write,
    /// Sync the file to the disk.
    Sync,
    /// Stop.
    Leave,
}

pub(super) struct RecordQueue {
    state: Mutex<QueueState>,
    /// Wakes the thread.
    work: Condvar,
    /// Wakes a handle that waits in `drop` for the thread.
    left: Condvar,
    /// Notified when entries were written and when the thread stops.
    progress: Notify,
    /// The unwritten bytes. Changed under the lock, read without it.
    unwritten: AtomicUsize,
    limit: usize,
    pub(super) lossy: bool,
    /// The instant at which the time of records was `zero`.
    start: Instant,
    zero: Duration,
}

#[derive(Default)]
struct QueueState {
    batch: RecordBatch,
    /// The number of entries so far.
    pushed: u64,
    written: u64,
    synced: u64,
    /// The time of the last entry. Times never decrease.
    last: Duration,
    /// The lines and bytes that were dropped since the last entry, or since recording stopped.
    missing: (u64, u64),
    /// True while the thread waits for the first entry, or for more.
    idle: bool,
    gathering: bool,
    /// True if a caller waits for the entries in the queue.
    urgent: bool,
    sync: bool,
    closing: bool,
    /// True if the recording was ended on purpose.
    finished: bool,
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

    /// Appends an entry. If the queue is full, a lossy one counts the line instead. Any other one accepts it, and
    /// the caller has to wait for [`room`](Self::room) before the next.
    pub(super) fn push(&self, at: Instant, what: QueuedEvent, bytes: &[u8]) {
        let mut guard = self.state.lock_unpoisoned();
        let state = &mut *guard;
        if state.closing {
            return;
        }
        let is_line = matches!(what, QueuedEvent::Line { .. } | QueuedEvent::Stderr);
        if state.left {
            if is_line {
                state.drop_line(bytes.len());
            }
            return;
        }
        let waiting = self.unwritten.load(Relaxed);
        if self.lossy && is_line && waiting > 0 && waiting + bytes.len() + OVERHEAD > self.limit {
            state.drop_line(bytes.len());
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

    /// Counts a line that is not recorded.
    pub(super) fn drop_line(&self, bytes: usize) {
        let mut state = self.state.lock_unpoisoned();
        if !state.closing {
            state.drop_line(bytes);
        }
    }

    /// For the thread: counts entries that cannot be written.
    pub(super) fn lose(&self, items: &[QueuedRecord]) {
        self.state.lock_unpoisoned().lose(items);
    }

    /// Returns the record of the lines that came after the error that ended the recording.
    pub(super) fn lost(&self) -> Option<Record> {
        let state = self.state.lock_unpoisoned();
        let (lines, bytes) = state.missing;
        (lines > 0).then(|| Record::new(state.last, RecordEvent::Dropped { lines, bytes }))
    }

    /// Returns true if callers have to wait for room. They never have to with a lossy queue.
    pub(super) fn is_full(&self) -> bool {
        !self.lossy && self.unwritten.load(Relaxed) >= self.limit
    }

    /// Waits until there is room.
    pub(super) async fn room(&self) {
        self.until(|_| !self.is_full()).await;
    }

    /// Waits until everything pushed before is with the operating system or, with `sync`, on the disk.
    pub(super) async fn flush(&self, sync: bool) -> Result<()> {
        let mark = {
            let mut state = self.state.lock_unpoisoned();
            if !state.left {
                // Dropped lines are part of the recording.
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

    /// Rejects further entries; the thread writes the rest and stops.
    pub(super) fn close(&self) {
        self.state.lock_unpoisoned().closing = true;
        self.work.notify_one();
    }

    /// Does the same for a recording that is complete.
    pub(super) fn finish(&self) {
        self.state.lock_unpoisoned().finished = true;
        self.close();
    }

    /// Returns true if the recording is complete.
    pub(super) fn is_finished(&self) -> bool {
        self.state.lock_unpoisoned().finished
    }

    /// Waits until the thread has stopped.
    pub(super) async fn stopped(&self) -> Option<Error> {
        self.until(|_| false).await;
        self.error()
    }

    /// Blocks until the thread has stopped, or the time is over.
    pub(super) fn block_until_left(&self, longest: Duration) {
        let _ = self.left.wait_timeout_while(self.state.lock_unpoisoned(), longest, |state| !state.left);
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.state.lock_unpoisoned().error.clone()
    }

    async fn until(&self, done: impl Fn(&QueueState) -> bool) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let state = self.state.lock_unpoisoned();
                if state.left || done(&state) {
                    return;
                }
            }
            progress.await;
        }
    }

    /// For the thread: waits for a task and swaps the entries with the empty `batch`.
    pub(super) fn next(&self, batch: &mut RecordBatch) -> WriterTask {
        let mut gathered = false;
        let mut guard = self.state.lock_unpoisoned();
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

    /// For the thread: counts entries that are with the operating system, and their total size.
    pub(super) fn written(&self, items: usize, size: usize) {
        self.state.lock_unpoisoned().written += items as u64;
        self.unwritten.fetch_sub(size, Relaxed);
        self.progress.notify_waiters();
    }

    /// For the thread: everything written is on the disk.
    pub(super) fn synced(&self) {
        let mut state = self.state.lock_unpoisoned();
        state.synced = state.written;
        drop(state);
        self.progress.notify_waiters();
    }

    /// For the thread: no more entries will be written.
    pub(super) fn leave(&self, error: Option<Error>) {
        let mut state = self.state.lock_unpoisoned();
        state.left = true;
        state.error = error;
        let rest = std::mem::take(&mut state.batch);
        state.lose(&rest.items);
        drop(state);
        self.unwritten.store(0, Relaxed);
        self.progress.notify_waiters();
        self.left.notify_all();
    }
}

impl QueueState {
    fn drop_line(&mut self, bytes: usize) {
        self.missing.0 += 1;
        self.missing.1 += bytes as u64;
    }

    /// Counts the lines among entries that are not written.
    fn lose(&mut self, items: &[QueuedRecord]) {
        for item in items {
            match item.what {
                QueuedEvent::Line { .. } | QueuedEvent::Stderr => self.drop_line(item.len),
                QueuedEvent::Dropped { lines, bytes } => {
                    self.missing.0 += lines;
                    self.missing.1 += bytes;
                }
                QueuedEvent::Eof(_) | QueuedEvent::Exit(_) => {}
            }
        }
    }

    /// Adds an entry for the dropped lines.
    fn note_missing(&mut self) -> usize {
        let (lines, bytes) = std::mem::take(&mut self.missing);
        if lines == 0 {
            return 0;
        }
        self.pushed += 1;
        self.batch.push(self.last, QueuedEvent::Dropped { lines, bytes }, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(batch: &RecordBatch) -> Vec<QueuedEvent> {
        batch.items.iter().map(|item| item.what).collect()
    }

    #[test]
    fn lines_that_were_dropped_last_are_counted_at_the_end() {
        let queue = RecordQueue::new(1, true, Duration::ZERO);
        queue.push(Instant::now(), QueuedEvent::Stderr, b"one");
        queue.push(Instant::now(), QueuedEvent::Stderr, b"no room");
        queue.close();
        let mut batch = RecordBatch::default();
        assert!(matches!(queue.next(&mut batch), WriterTask::Write));
        let found = events(&batch);
        assert!(
            matches!(found.as_slice(), [QueuedEvent::Stderr, QueuedEvent::Dropped { lines: 1, bytes: 7 }]),
            "{found:?}"
        );
        queue.written(2, batch.items.iter().map(QueuedRecord::size).sum());
        assert_eq!(queue.unwritten.load(Relaxed), 0);
        batch.clear();
        assert!(matches!(queue.next(&mut batch), WriterTask::Leave));
    }

    /// A queue is full at its limit. A lossy queue is never full, but drops lines above it.
    #[test]
    fn the_limit_of_a_queue_is_exact() {
        let line = |queue: &RecordQueue| queue.push(Instant::now(), QueuedEvent::Stderr, b"one");
        let limit = 2 * (3 + OVERHEAD);
        let queue = RecordQueue::new(limit, false, Duration::ZERO);
        for is_full in [false, true, true] {
            line(&queue);
            assert_eq!(queue.is_full(), is_full);
        }
        assert_eq!(queue.state.lock_unpoisoned().batch.items.len(), 3, "only its users wait");
        let queue = RecordQueue::new(limit, true, Duration::ZERO);
        for lines in [1, 2, 2] {
            line(&queue);
            assert_eq!(queue.state.lock_unpoisoned().batch.items.len(), lines);
            assert!(!queue.is_full());
        }
        // An entry counts with more than its bytes.
        let tight = RecordQueue::new(limit - 1, true, Duration::ZERO);
        for _ in 0..2 {
            line(&tight);
            assert_eq!(tight.state.lock_unpoisoned().batch.items.len(), 1);
        }
        queue.push(Instant::now(), QueuedEvent::Eof(Side::Agent), &[]);
        assert_eq!(queue.state.lock_unpoisoned().batch.items.len(), 4, "the gap, then the event");
    }

    /// The times of records never decrease, and nothing follows the end.
    #[test]
    fn records_are_in_order_until_the_end() {
        let queue = RecordQueue::new(1 << 20, false, Duration::from_secs(1));
        let now = Instant::now();
        for at in
            [now + Duration::from_secs(5), now, now + Duration::from_secs(3), now + Duration::from_secs(9)]
        {
            queue.push(at, QueuedEvent::Stderr, b"line");
        }
        queue.close();
        queue.push(now, QueuedEvent::Stderr, b"late");
        queue.drop_line(4);
        let mut batch = RecordBatch::default();
        assert!(matches!(queue.next(&mut batch), WriterTask::Write));
        let times: Vec<_> = batch.items.iter().map(|item| item.at).collect();
        assert_eq!(times.len(), 4);
        assert!(times.is_sorted() && times[0] > Duration::from_secs(5) && times[0] == times[2], "{times:?}");
    }

    /// Records that the thread leaves behind are lost, and are counted with the lines that come later.
    #[test]
    fn what_is_not_written_is_counted() {
        let queue = RecordQueue::new(1 << 20, false, Duration::ZERO);
        assert!(queue.lost().is_none(), "no line is lost");
        queue.push(Instant::now(), QueuedEvent::Stderr, b"one");
        queue.push(Instant::now(), QueuedEvent::Eof(Side::Agent), &[]);
        queue.push(Instant::now(), QueuedEvent::Dropped { lines: 3, bytes: 30 }, &[]);
        queue.leave(None);
        queue.push(Instant::now(), QueuedEvent::Stderr, b"later");
        queue.push(Instant::now(), QueuedEvent::Eof(Side::Agent), &[]);
        assert_eq!(queue.unwritten.load(Relaxed), 0);
        let lost = queue.lost().map(|record| record.event);
        assert!(matches!(lost, Some(RecordEvent::Dropped { lines: 5, bytes: 38 })), "{lost:?}");
    }

    /// A flush waits until the records before it are written, and a sync until they are on the disk.
    #[test]
    fn a_sync_waits_for_the_disk() {
        let queue = RecordQueue::new(1 << 20, false, Duration::ZERO);
        let line = || queue.push(Instant::now(), QueuedEvent::Stderr, b"line");
        let write = || {
            let mut batch = RecordBatch::default();
            assert!(matches!(queue.next(&mut batch), WriterTask::Write));
            queue.written(batch.items.len(), batch.items.iter().map(QueuedRecord::size).sum());
        };
        let sync = || {
            // Otherwise the next call would wait for ever.
            assert!(queue.state.lock_unpoisoned().sync, "no sync is requested");
            assert!(matches!(queue.next(&mut RecordBatch::default()), WriterTask::Sync));
        };
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let (mut first, mut flushed, mut second) =
            (Box::pin(queue.flush(true)), Box::pin(queue.flush(false)), Box::pin(queue.flush(true)));
        line();
        assert!(first.as_mut().poll(&mut cx).is_pending() && flushed.as_mut().poll(&mut cx).is_pending());
        write();
        assert!(flushed.as_mut().poll(&mut cx).is_ready() && first.as_mut().poll(&mut cx).is_pending());
        sync();
        line();
        assert!(second.as_mut().poll(&mut cx).is_pending());
        queue.synced();
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_pending(), "its record came after the sync");
        write();
        assert!(second.as_mut().poll(&mut cx).is_pending());
        sync();
        queue.synced();
        assert!(second.as_mut().poll(&mut cx).is_ready());
    }

    /// The record of dropped lines counts like any other one.
    #[test]
    fn a_record_of_dropped_lines_is_awaited_too() {
        let queue = RecordQueue::new(1 << 20, false, Duration::ZERO);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let write = || {
            let mut batch = RecordBatch::default();
            assert!(matches!(queue.next(&mut batch), WriterTask::Write));
            queue.written(batch.items.len(), batch.items.iter().map(QueuedRecord::size).sum());
            assert_eq!(queue.unwritten.load(Relaxed), 0);
        };
        queue.drop_line(5);
        queue.push(Instant::now(), QueuedEvent::Stderr, b"one");
        write();
        queue.push(Instant::now(), QueuedEvent::Stderr, b"two");
        let mut flushed = Box::pin(queue.flush(false));
        assert!(flushed.as_mut().poll(&mut cx).is_pending());
        write();
        assert!(flushed.as_mut().poll(&mut cx).is_ready());
        queue.drop_line(5);
        let mut flushed = Box::pin(queue.flush(false));
        assert!(flushed.as_mut().poll(&mut cx).is_pending());
        write();
        assert!(flushed.as_mut().poll(&mut cx).is_ready());
    }

    /// A handle that waits for the thread goes on as soon as it has stopped.
    #[test]
    fn the_end_of_the_thread_ends_a_wait() {
        let queue = RecordQueue::new(1, false, Duration::ZERO);
        let longest = Duration::from_secs(60);
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.block_until_left(longest));
            std::thread::sleep(Duration::from_millis(50));
            queue.leave(None);
        });
        assert!(start.elapsed() < longest);
    }

    #[test]
    fn lines_that_were_dropped_come_before_the_next_record() {
        let queue = RecordQueue::new(1, true, Duration::from_secs(1));
        queue.push(Instant::now(), QueuedEvent::Stderr, b"one");
        queue.drop_line(5);
        queue.push(Instant::now(), QueuedEvent::Eof(Side::Agent), &[]);
        queue.close();
        let mut batch = RecordBatch::default();
        assert!(matches!(queue.next(&mut batch), WriterTask::Write));
        let found = events(&batch);
        assert!(
            matches!(
                found.as_slice(),
                [QueuedEvent::Stderr, QueuedEvent::Dropped { lines: 1, bytes: 5 }, QueuedEvent::Eof(_)]
            ),
            "{found:?}"
        );
        assert!(batch.items.is_sorted_by_key(|item| item.at), "the time goes on");
    }
}
