//! The output buffer of a connection. One writer writes everything that is in it at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::error::Closed;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex, Notify};
use crate::transport::SharedWriter;

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
    /// The pipe, if senders may write to it.
    pipe: Option<SharedWriter>,
    turn: WriteTurn,
}

/// The owner of the next write to the pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WriteTurn {
    /// The writer: it writes, or it was notified.
    #[default]
    Writer,
    /// Nobody. The buffer is empty and the writer sleeps.
    Nobody,
    /// A sender writes its frame.
    Sender,
}

/// The treatment of frames by [`Outbox::push_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushMode {
    /// Appends them even if there is no space.
    Always,
    /// Appends them if there is space.
    IfRoom,
    /// Appends them even if there is no space. A single small frame is written by the caller itself if the writer sleeps,
    /// since the caller does not send more before the peer has seen it.
    WriteNow,
}

/// The largest frame that a sender writes itself. A pipe takes it in one step.
const WRITE_NOW: usize = 32 * 1024;

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
    pub(crate) fn push(
        &self,
        frame: &mut Frame,
        mode: PushMode,
        seen: impl Fn(&Frame),
    ) -> Result<bool, Closed> {
        self.push_all(std::slice::from_mut(frame), mode, seen)
    }

    /// Appends frames and calls `seen` for each of them under the lock. No other frame comes between
    /// them, and the writer takes all of them or none. Returns false if there is no space and the mode demands it.
    pub(crate) fn push_all(
        &self,
        frames: &mut [Frame],
        mode: PushMode,
        seen: impl Fn(&Frame),
    ) -> Result<bool, Closed> {
        let mut state = self.state.lock_unpoisoned();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        if state.finished {
            return Err(Closed::Local);
        }
        if mode == PushMode::IfRoom && !self.has_room() {
            return Ok(false);
        }
        if let (PushMode::WriteNow, WriteTurn::Nobody, [frame]) = (mode, state.turn, &mut *frames)
            && frame.bytes().len() <= WRITE_NOW.min(self.hard)
            && !state.broken
            && let Some(pipe) = state.pipe.clone()
        {
            let bytes = frame.bytes();
            seen(frame);
            state.pushed += bytes.len() as u64;
            state.turn = WriteTurn::Sender;
            self.unwritten.fetch_add(bytes.len(), Relaxed);
            drop(state);
            self.write_now(pipe, bytes);
            return Ok(true);
        }
        let idle = state.bytes.is_empty();
        if state.turn == WriteTurn::Nobody {
            state.turn = WriteTurn::Writer;
        }
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

    /// Writes a frame for its sender. The writer writes what the pipe does not take at once, and reports errors.
    fn write_now(&self, mut pipe: SharedWriter, bytes: &[u8]) {
        let poll = || Pin::new(&mut pipe).poll_write(&mut Context::from_waker(Waker::noop()), bytes);
        let count = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Ready(Ok(count))) => count.min(bytes.len()),
            _ => 0,
        };
        let mut state = self.state.lock_unpoisoned();
        state.written += count as u64;
        if let Some(rest @ [_, ..]) = bytes.get(count..)
            && !state.broken
            && state.closed.is_none()
        {
            state.bytes.splice(..0, rest.iter().copied());
        }
        // At the end of the connection the writer was notified already, and writes nothing.
        let is_done = state.bytes.is_empty() && !state.finished;
        state.turn = if is_done { WriteTurn::Nobody } else { WriteTurn::Writer };
        drop(state);
        self.unwritten.fetch_sub(count, Relaxed);
        self.written.notify_waiters();
        if !is_done {
            self.to_write.notify_one();
        }
    }

    /// Returns true if the peer is stuck: more than the hard limit is unwritten and nothing is written for
    /// a while, or more than four times the limit is unwritten. A slow peer may request several large
    /// responses at once.
    fn is_stalled(&self, state: &mut State, unwritten: usize) -> bool {
        if unwritten <= self.hard {
            // An earlier overrun has ended: something was written since.
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

    /// [`write_to`](Self::write_to) a pipe to which senders may write while the writer sleeps.
    pub(crate) async fn write_with_senders<F: Future<Output = ()>>(
        &self,
        pipe: SharedWriter,
        may_write: impl Fn() -> F,
    ) -> Result<(), Closed> {
        /// Drops the pipe with the writer, so that the peer sees the end.
        struct Lent<'a>(&'a Outbox);
        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                let pipe = self.0.state.lock_unpoisoned().pipe.take();
                drop(pipe);
            }
        }
        self.state.lock_unpoisoned().pipe = Some(pipe.clone());
        let _lent = Lent(self);
        self.write_to(pipe, may_write).await
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
            let work = {
                let mut state = self.state.lock_unpoisoned();
                if let Some(reason) = &state.closed {
                    return Err(reason.clone());
                }
                if state.turn == WriteTurn::Sender {
                    // The sender notifies the writer if there is more to do.
                    None
                } else {
                    std::mem::swap(&mut batch, &mut state.bytes);
                    let is_idle = batch.is_empty() && !state.finished;
                    state.turn = if is_idle { WriteTurn::Nobody } else { WriteTurn::Writer };
                    (!is_idle).then_some(state.finished)
                }
            };
            let Some(finished) = work else {
                self.to_write.notified().await;
                continue;
            };
            if batch.is_empty() && finished {
                let _ = pipe.shutdown().await;
                return Ok(());
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

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use std::future::ready;
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;

    use super::*;

    mod limits;
    mod senders;

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
        assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
        assert_eq!(frame.bytes(), b"");
        for line in ["a\n", "b\n"] {
            let mut frame = Frame::raw(line);
            assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
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
            assert!(outbox.push_all(&mut frames, PushMode::Always, see).unwrap());
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
        assert!(outbox.push_all(&mut frames, PushMode::Always, locked).unwrap());
        assert_eq!(outbox.state.lock_unpoisoned().bytes, b"a\nb\n");
    }

    #[tokio::test]
    async fn a_frame_without_space_is_unchanged_and_sent_later() {
        let outbox = Outbox::new(&Limits { output_bytes: 1, ..Limits::default() });
        assert!(outbox.push(&mut Frame::raw("a\n"), PushMode::IfRoom, |_| {}).unwrap());
        let mut frame = Frame::raw("later\n");
        assert!(!outbox.push(&mut frame, PushMode::IfRoom, |_| panic!("it is not sent")).unwrap());
        assert_eq!(frame.bytes(), b"later\n");
        let retry = async {
            outbox.room().await.unwrap();
            assert!(outbox.push(&mut frame, PushMode::IfRoom, |_| {}).unwrap());
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
        assert!(outbox.push(&mut Frame::raw("a\n"), PushMode::Always, |_| {}).unwrap());
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
        assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
        assert!(outbox.has_answer_backlog());
        outbox.finish();
        written(&outbox).await;
        outbox.relieved().await.expect("everything is written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_without_progress_ends_the_connection() {
        let outbox = Outbox::new(&Limits { output_bytes_hard: 20, ..Limits::default() });
        let mut frame = Frame::result(&duologue_schema::RequestId::from(1), &"a long answer").unwrap();
        assert!(outbox.push(&mut frame, PushMode::Always, |_| {}).unwrap());
        let reason = outbox.relieved().await.expect_err("nothing is written");
        assert!(matches!(reason, Closed::OutputStalled { limit: 20 }), "{reason}");
    }

    /// A pipe that accepts `room` bytes, then nothing until there is more room.
    #[derive(Clone, Default)]
    struct Narrow(Arc<Mutex<NarrowState>>);

    #[derive(Default)]
    struct NarrowState {
        room: usize,
        bytes: Vec<u8>,
        is_broken: bool,
        is_shut: bool,
    }

    impl Narrow {
        fn with_room(room: usize) -> Self {
            let pipe = Narrow::default();
            pipe.0.lock_unpoisoned().room = room;
            pipe
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock_unpoisoned().bytes.clone()).unwrap()
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let mut state = self.0.lock_unpoisoned();
            if state.is_broken {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let count = bytes.len().min(state.room);
            if count == 0 {
                return Poll::Pending;
            }
            state.room -= count;
            state.bytes.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.lock_unpoisoned().is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    fn push(outbox: &Outbox, line: &str, mode: PushMode) {
        assert!(outbox.push(&mut Frame::raw(line), mode, |_| {}).unwrap());
    }

    #[tokio::test]
    async fn a_sender_writes_while_the_writer_sleeps() {
        let (outbox, pipe) = (Outbox::new(&Limits::default()), Narrow::with_room(100));
        let shared = SharedWriter::new(Box::new(pipe.clone()));
        let mut writer = Box::pin(outbox.write_with_senders(shared, || ready(())));
        push(&outbox, "first\n", PushMode::WriteNow);
        assert_eq!(pipe.text(), "", "the writer has not begun");
        assert!(writer.as_mut().now_or_never().is_none());
        push(&outbox, "now\n", PushMode::WriteNow);
        assert_eq!((pipe.text().as_str(), outbox.unwritten()), ("first\nnow\n", 0));
        assert!(outbox.flush().now_or_never().is_some());
        // Behind a frame that waits for the writer, a sender leaves its own to the writer too.
        push(&outbox, "later\n", PushMode::Always);
        push(&outbox, "last\n", PushMode::WriteNow);
        assert_eq!(pipe.text(), "first\nnow\n");
        outbox.finish();
        assert!(matches!(writer.as_mut().now_or_never(), Some(Ok(()))));
        assert_eq!(pipe.text(), "first\nnow\nlater\nlast\n");
        assert!(pipe.0.lock_unpoisoned().is_shut, "the peer does not see the end");
        assert_eq!(Arc::strong_count(&pipe.0), 1, "the pipe is dropped with the writer");
    }

    #[tokio::test]
    async fn the_writer_writes_the_rest_of_a_senders_frame() {
        let (outbox, pipe) = (Outbox::new(&Limits::default()), Narrow::with_room(3));
        let shared = SharedWriter::new(Box::new(pipe.clone()));
        let mut writer = Box::pin(outbox.write_with_senders(shared, || ready(())));
        assert!(writer.as_mut().now_or_never().is_none());
        push(&outbox, "large\n", PushMode::WriteNow);
        push(&outbox, "next\n", PushMode::WriteNow);
        assert_eq!((pipe.text().as_str(), outbox.unwritten()), ("lar", 8));
        assert!(writer.as_mut().now_or_never().is_none());
        pipe.0.lock_unpoisoned().room = 100;
        assert!(writer.as_mut().now_or_never().is_none());
        assert_eq!((pipe.text().as_str(), outbox.unwritten()), ("large\nnext\n", 0));
        // The writer reports the error that a sender finds.
        pipe.0.lock_unpoisoned().is_broken = true;
        push(&outbox, "lost\n", PushMode::WriteNow);
        assert!(matches!(writer.as_mut().now_or_never(), Some(Err(Closed::Io(_)))));
    }
}
