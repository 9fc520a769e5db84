//! The output buffer of a connection. One writer writes everything that is in it at once.

use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::error::Closed;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex, Notify};

/// The output buffer of a connection.
///
/// It is not an [`EvictingQueue`](crate::EvictingQueue), because the writer needs the frames as contiguous bytes,
/// nothing may be evicted, and a frame can be written in part.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// The bytes that were pushed and not yet written. Waiting senders read it without the lock.
    unwritten: AtomicUsize,
    to_write: Notify,
    written: Notify,
    soft: usize,
    hard: usize,
    patience: Duration,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    pushed: u64,
    written: u64,
    /// The bytes of responses that were pushed since the outbox was last empty.
    answers: usize,
    /// The time since which more than `hard` is unwritten, and the value of `written` then.
    overrun: Option<(Instant, u64)>,
    /// No more frames are accepted. The writer ends when the buffer is empty.
    finished: bool,
    /// The pipe is broken. The reason of the end is not known yet.
    broken: bool,
    closed: Option<Closed>,
}

/// The capacity that is kept. Larger buffers are freed after a burst.
const KEEP: usize = 512 * 1024;

impl Outbox {
    pub(crate) fn new(limits: &Limits) -> Self {
        Outbox {
            state: Mutex::default(),
            unwritten: AtomicUsize::new(0),
            to_write: Notify::new(),
            written: Notify::new(),
            soft: limits.output_bytes,
            hard: limits.output_bytes_hard,
            patience: limits.stall_timeout,
        }
    }

    /// [`push_all`](Self::push_all) for one frame.
    #[cfg(test)]
    pub(crate) fn push(&self, frame: &mut Frame, waits: bool, seen: impl Fn(&Frame)) -> Result<bool, Closed> {
        self.push_all(std::slice::from_mut(frame), waits, seen)
    }

    /// Appends frames and calls `seen` for each of them under the lock. No other frame comes between
    /// them, and the writer takes all of them or none. Returns false if `waits` is true and there is no
    /// space.
    pub(crate) fn push_all(
        &self,
        frames: &mut [Frame],
        waits: bool,
        seen: impl Fn(&Frame),
    ) -> Result<bool, Closed> {
        let mut state = self.state.lock_unpoisoned();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        if state.finished {
            return Err(Closed::Local);
        }
        if waits && !self.has_room() {
            return Ok(false);
        }
        let idle = state.bytes.is_empty();
        let mut bytes = 0;
        for frame in frames {
            seen(frame);
            bytes += frame.bytes().len();
            if state.broken {
                continue;
            }
            if frame.is_answer() {
                state.answers += frame.bytes().len();
            }
            if state.bytes.is_empty() && frame.bytes().len() > state.bytes.capacity() {
                // A large frame becomes the buffer and is not copied.
                frame.swap(&mut state.bytes);
            } else {
                state.bytes.extend_from_slice(frame.bytes());
            }
        }
        state.pushed += bytes as u64;
        if state.broken {
            return Ok(true);
        }
        let unwritten = self.unwritten.fetch_add(bytes, Relaxed) + bytes;
        let stalled = self.is_stalled(&mut state, unwritten);
        drop(state);
        if idle {
            self.to_write.notify_one();
        }
        if stalled {
            let reason = Closed::OutputStalled { limit: self.hard };
            self.close(reason.clone());
            return Err(reason);
        }
        Ok(true)
    }

    /// Returns true if the peer is stuck: more than the hard limit is unwritten and nothing is written for
    /// a while, or more than four times the limit is unwritten. A slow peer may request several large
    /// responses at once.
    fn is_stalled(&self, state: &mut State, unwritten: usize) -> bool {
        if unwritten <= self.hard {
            state.overrun = None;
            return false;
        }
        let now = Instant::now();
        match state.overrun {
            Some((since, written)) if written == state.written => {
                unwritten > 4 * self.hard || now.duration_since(since) > self.patience
            }
            _ => {
                state.overrun = Some((now, state.written));
                unwritten > 4 * self.hard
            }
        }
    }

    /// Returns true while at most half of the hard limit is unwritten.
    pub(crate) fn has_answer_room(&self) -> bool {
        self.unwritten.load(Relaxed) <= self.hard / 2
    }

    /// Waits for space for another response.
    pub(crate) async fn answer_room(&self) -> Result<(), Closed> {
        self.wait(|outbox, _| outbox.has_answer_room()).await
    }

    /// Waits for space for another notification.
    pub(crate) async fn room(&self) -> Result<(), Closed> {
        self.wait(|outbox, _| outbox.has_room()).await
    }

    pub(crate) fn has_room(&self) -> bool {
        self.unwritten.load(Relaxed) < self.soft
    }

    /// Returns true while more than the hard limit is unwritten and that much may be responses.
    pub(crate) fn has_answer_backlog(&self) -> bool {
        self.unwritten.load(Relaxed) > self.hard && self.state.lock_unpoisoned().answers > self.hard
    }

    /// Waits until at most the hard limit is unwritten.
    ///
    /// # Errors
    ///
    /// [`Closed::OutputStalled`] if nothing is written for `stall_timeout`, or the reason if the connection ends.
    pub(crate) async fn relieved(&self) -> Result<(), Closed> {
        let is_relieved = || self.unwritten.load(Relaxed) <= self.hard;
        while !is_relieved() {
            let written = self.state.lock_unpoisoned().written;
            // The bytes may have been written, and waiters notified, since the check above.
            let progress = self.wait(|_, state| is_relieved() || state.written != written);
            match tokio::time::timeout(self.patience, progress).await {
                Ok(progress) => progress?,
                Err(_) => return Err(Closed::OutputStalled { limit: self.hard }),
            }
        }
        Ok(())
    }

    /// Waits until everything that was pushed before this call is written.
    pub(crate) async fn flush(&self) -> Result<(), Closed> {
        let mark = self.state.lock_unpoisoned().pushed;
        self.wait(|_, state| state.written >= mark).await
    }

    async fn wait(&self, done: impl Fn(&Self, &State) -> bool) -> Result<(), Closed> {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            {
                let state = self.state.lock_unpoisoned();
                if done(self, &state) {
                    return Ok(());
                }
                if let Some(reason) = &state.closed {
                    return Err(reason.clone());
                }
            }
            written.await;
        }
    }

    #[cfg(test)]
    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.load(Relaxed)
    }

    /// Returns true if no more frames are accepted.
    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock_unpoisoned();
        state.finished || state.closed.is_some()
    }

    /// Accepts no more frames. The writer ends when the buffer is empty.
    pub(crate) fn finish(&self) {
        self.state.lock_unpoisoned().finished = true;
        self.to_write.notify_one();
    }

    /// Discards the buffer and later frames, because the pipe is broken. Senders that wait receive the
    /// reason of the end later, through [`close`](Self::close).
    pub(crate) fn break_off(&self) {
        let mut state = self.state.lock_unpoisoned();
        state.broken = true;
        state.bytes = Vec::new();
        self.unwritten.fetch_max(self.soft, Relaxed);
    }

    /// Ends the output at once. Nothing more is written, and all senders that wait fail.
    pub(crate) fn close(&self, reason: Closed) {
        let mut state = self.state.lock_unpoisoned();
        state.closed.get_or_insert(reason);
        state.bytes = Vec::new();
        drop(state);
        self.to_write.notify_one();
        self.written.notify_waiters();
    }

    /// Writes the frames until the outbox is finished and empty, is closed, or the pipe breaks. Waits for
    /// `may_write` before each batch.
    pub(crate) async fn write_to<F: Future<Output = ()>>(
        &self,
        mut pipe: impl AsyncWrite + Unpin,
        may_write: impl Fn() -> F,
    ) -> Result<(), Closed> {
        let mut batch = Vec::new();
        loop {
            may_write().await;
            let finished = {
                let mut state = self.state.lock_unpoisoned();
                if let Some(reason) = &state.closed {
                    return Err(reason.clone());
                }
                std::mem::swap(&mut batch, &mut state.bytes);
                state.finished
            };
            if batch.is_empty() {
                if finished {
                    let _ = pipe.shutdown().await;
                    return Ok(());
                }
                self.to_write.notified().await;
                continue;
            }
            // Each write is counted, so that waiting senders see that a slow peer makes progress. The last one is
            // counted after the pipe's own buffer is flushed, because `flush` promises that.
            let mut rest = batch.as_slice();
            while !rest.is_empty() {
                let count = match pipe.write(rest).await {
                    Ok(0) => return Err(broken(std::io::ErrorKind::WriteZero.into())),
                    Ok(count) => count,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(broken(error)),
                };
                rest = rest.get(count..).unwrap_or_default();
                while rest.is_empty()
                    && let Err(error) = pipe.flush().await
                {
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(broken(error));
                    }
                }
                let mut state = self.state.lock_unpoisoned();
                state.written += count as u64;
                if state.written == state.pushed {
                    state.answers = 0;
                }
                drop(state);
                self.unwritten.fetch_sub(count, Relaxed);
                self.written.notify_waiters();
            }
            batch.clear();
            // Keep the capacity that a steady stream needs, and free the rest.
            batch.shrink_to(KEEP.min(self.soft.saturating_mul(2)));
        }
    }
}

fn broken(error: std::io::Error) -> Closed {
    Closed::Io(std::sync::Arc::new(error))
}

#[cfg(all(test, not(any(duologue_loom, duologue_shuttle))))]
mod tests {
    use std::future::ready;
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;

    use super::*;

    /// Returns everything that an outbox writes until it is finished.
    async fn written(outbox: &Outbox) -> String {
        let mut pipe = Vec::new();
        outbox.write_to(&mut pipe, || ready(())).await.unwrap();
        String::from_utf8(pipe).unwrap()
    }

    #[tokio::test]
    async fn a_large_frame_becomes_the_buffer_and_keeps_its_place() {
        let outbox = Outbox::new(&Limits::default());
        let large = format!("{}\n", "x".repeat(100_000));
        let mut frame = Frame::raw(&large);
        assert!(outbox.push(&mut frame, false, |_| {}).unwrap());
        assert_eq!(frame.bytes(), b"");
        for line in ["a\n", "b\n"] {
            let mut frame = Frame::raw(line);
            assert!(outbox.push(&mut frame, false, |_| {}).unwrap());
            assert_eq!(frame.bytes(), line.as_bytes());
        }
        assert_eq!(outbox.unwritten(), large.len() + 4);
        outbox.finish();
        assert!(written(&outbox).await == large + "a\nb\n", "out of order");
        assert_eq!(outbox.unwritten(), 0);
    }

    /// Any of them may be larger than the buffer.
    #[tokio::test]
    async fn frames_of_one_push_keep_their_order() {
        let large = format!("{}\n", "x".repeat(100_000));
        for lines in [["a\n", &large, "b\n"], [&large, "a\n", &large], ["a\n", "b\n", "c\n"]] {
            let outbox = Outbox::new(&Limits::default());
            let seen = std::cell::RefCell::new(Vec::new());
            let mut frames = lines.map(Frame::raw);
            let see = |frame: &Frame| seen.borrow_mut().push(frame.bytes().len());
            assert!(outbox.push_all(&mut frames, false, see).unwrap());
            assert_eq!(*seen.borrow(), lines.map(str::len));
            assert_eq!(outbox.unwritten(), lines.concat().len());
            outbox.finish();
            assert!(written(&outbox).await == lines.concat(), "out of order");
            outbox.flush().await.unwrap();
        }
    }

    /// The writer cannot take any frame before all frames of a push are in the buffer.
    #[test]
    fn frames_of_one_push_are_appended_under_one_lock() {
        let outbox = Outbox::new(&Limits::default());
        let mut frames = ["a\n", "b\n"].map(Frame::raw);
        let locked = |_: &Frame| assert!(outbox.state.try_lock().is_err());
        assert!(outbox.push_all(&mut frames, false, locked).unwrap());
        assert_eq!(outbox.state.lock_unpoisoned().bytes, b"a\nb\n");
    }

    #[tokio::test]
    async fn a_frame_without_space_is_unchanged_and_sent_later() {
        let outbox = Outbox::new(&Limits { output_bytes: 1, ..Limits::default() });
        assert!(outbox.push(&mut Frame::raw("a\n"), true, |_| {}).unwrap());
        let mut frame = Frame::raw("later\n");
        assert!(!outbox.push(&mut frame, true, |_| panic!("it is not sent")).unwrap());
        assert_eq!(frame.bytes(), b"later\n");
        let retry = async {
            outbox.room().await.unwrap();
            assert!(outbox.push(&mut frame, true, |_| {}).unwrap());
            outbox.finish();
        };
        assert_eq!(tokio::join!(written(&outbox), retry).0, "a\nlater\n");
    }

    /// A pipe that buffers writes until it is flushed, as a file of tokio does.
    struct Buffering(Arc<AtomicBool>);

    impl AsyncWrite for Buffering {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.0.load(Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_flush_waits_until_the_pipe_is_flushed() {
        let (outbox, flushes) = (Outbox::new(&Limits::default()), Arc::new(AtomicBool::new(false)));
        assert!(outbox.push(&mut Frame::raw("a\n"), false, |_| {}).unwrap());
        let mut writer = std::pin::pin!(outbox.write_to(Buffering(flushes.clone()), || ready(())));
        assert!(writer.as_mut().now_or_never().is_none());
        assert!(outbox.flush().now_or_never().is_none(), "the pipe has the bytes in its buffer");
        flushes.store(true, Relaxed);
        assert!(writer.as_mut().now_or_never().is_none());
        assert!(outbox.flush().now_or_never().is_some());
    }

    /// The writer may finish between the check and the wait.
    #[tokio::test(start_paused = true)]
    async fn an_empty_backlog_is_not_awaited() {
        let outbox = Outbox::new(&Limits { output_bytes_hard: 20, ..Limits::default() });
        let mut frame = Frame::result(&duologue_schema::RequestId::from(1), &"a long answer").unwrap();
        assert!(outbox.push(&mut frame, false, |_| {}).unwrap());
        assert!(outbox.has_answer_backlog());
        outbox.finish();
        written(&outbox).await;
        outbox.relieved().await.expect("everything is written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_without_progress_ends_the_connection() {
        let outbox = Outbox::new(&Limits { output_bytes_hard: 20, ..Limits::default() });
        let mut frame = Frame::result(&duologue_schema::RequestId::from(1), &"a long answer").unwrap();
        assert!(outbox.push(&mut frame, false, |_| {}).unwrap());
        let reason = outbox.relieved().await.expect_err("nothing is written");
        assert!(matches!(reason, Closed::OutputStalled { limit: 20 }), "{reason}");
    }
}
