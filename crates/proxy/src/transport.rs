//! A transport with a chain in it.
//!
//! The owner of the transport is the *near* side, and the wrapped transport leads to the *far* side. A read or a write of the
//! owner runs the chain in place. Output for the far side is written at once if its transport allows it. The task of the
//! chain writes the rest, polls the futures of stages that delay the connection, and runs the jobs of stages.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use duologue_rpc::{Limits, LineBuffer, Lock as _, Transport};
use duologue_transcript::Side;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::chain::Chain;
use crate::jobs::JobQueue;
use crate::stage::ProxyStage;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Wraps the transport to the side `far`.
pub(crate) fn chained(
    stages: Vec<Box<dyn ProxyStage>>,
    limits: Limits,
    inner: Transport,
    far: Side,
) -> Transport {
    let writes_at_once = inner.is_written_at_once();
    let (reader, writer) = inner.into_split();
    let jobs = Arc::new(JobQueue::new(limits.in_flight));
    let (output_bytes, output_bytes_hard) = (limits.output_bytes.max(1), limits.output_bytes_hard);
    let frame_bytes = limits.frame_bytes;
    let shared = Arc::new(ChainShared {
        far,
        writes_at_once,
        output_bytes,
        output_bytes_hard: output_bytes_hard.max(output_bytes),
        jobs: jobs.clone(),
        state: Mutex::new(ChainState {
            chain: Chain::new(stages, limits, jobs),
            writer: Some(writer),
            write_error: None,
            is_writing: false,
            wait: None,
            near_reader: None,
            near_writer: None,
            near: NearState::Open,
            is_read_to_end: false,
        }),
    });
    let task = shared.clone();
    tokio::spawn(poll_fn(move |cx| task.poll_task(cx)));
    let lines = || LineBuffer::new(frame_bytes);
    let near_writer = NearWriter { shared: shared.clone(), lines: lines(), has_ended: false };
    let near_reader = NearReader { shared, reader, lines: lines() };
    let transport = Transport::new(near_reader, near_writer);
    if writes_at_once { transport.writes_at_once() } else { transport }
}

struct ChainShared {
    far: Side,
    writes_at_once: bool,
    output_bytes: usize,
    output_bytes_hard: usize,
    jobs: Arc<JobQueue>,
    state: Mutex<ChainState>,
}

struct ChainState {
    chain: Chain,
    /// The writer to the far side, until it is closed.
    writer: Option<Writer>,
    write_error: Option<io::ErrorKind>,
    /// True while the task writes, so that the near side does not.
    is_writing: bool,
    /// Nothing is passed on before this future is ready.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    near_reader: Option<Waker>,
    near_writer: Option<Waker>,
    near: NearState,
    /// True if the output of the far side has ended or is not read any more.
    is_read_to_end: bool,
}

/// The output of the near side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NearState {
    Open,
    /// It has ended, and the task closes the writer behind the rest.
    Ended,
}

impl ChainState {
    fn wake_reader(&mut self) {
        if let Some(waker) = self.near_reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.near_writer.take() {
            waker.wake();
        }
    }

    /// Writes as much as possible to the far side. Returns true if nothing is left.
    fn poll_write_far(&mut self, far: Side, cx: &mut Context<'_>) -> bool {
        let Some(writer) = &mut self.writer else {
            self.chain.output(far).clear();
            return true;
        };
        loop {
            let output = self.chain.output(far);
            if output.unwritten().is_empty() {
                return true;
            }
            match Pin::new(&mut *writer).poll_write(cx, output.unwritten()) {
                Poll::Pending => return false,
                Poll::Ready(Ok(count @ 1..)) => output.consume(count),
                Poll::Ready(Ok(0)) => return self.fail(far, io::ErrorKind::WriteZero),
                Poll::Ready(Err(error)) => return self.fail(far, error.kind()),
            }
        }
    }

    /// Closes the writer after an error. The far side may still send.
    fn fail(&mut self, far: Side, error: io::ErrorKind) -> bool {
        self.writer = None;
        self.write_error = Some(error);
        self.chain.output(far).clear();
        self.wake_writer();
        true
    }
}

impl ChainShared {
    fn near(&self) -> Side {
        self.far.other()
    }

    fn state(&self) -> MutexGuard<'_, ChainState> {
        self.state.lock_unpoisoned()
    }

    /// Sends off the output of the chain after its stages have run.
    fn send(&self, state: &mut ChainState) {
        if state.wait.is_none() {
            state.wait = state.chain.wait();
        }
        if state.wait.is_some() {
            return self.jobs.task.wake();
        }
        if state.chain.unwritten(self.near()) > 0 {
            state.wake_reader();
        }
        if state.is_writing || state.chain.unwritten(self.far) == 0 {
            return;
        }
        let is_written =
            self.writes_at_once && state.poll_write_far(self.far, &mut Context::from_waker(Waker::noop()));
        if !is_written {
            state.is_writing = true;
            self.jobs.task.wake();
        }
    }

    /// Returns true if the stages have sent so much to a side that no input is read.
    fn is_full(&self, state: &ChainState) -> bool {
        let is_over = |side| state.chain.unwritten(side) > self.output_bytes_hard;
        is_over(Side::Client) || is_over(Side::Agent)
    }

    /// The task of the chain. Ends when the writer is closed and nothing is read any more.
    fn poll_task(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.jobs.task.register(cx.waker());
        loop {
            let mut state = self.state();
            if let Some(wait) = &mut state.wait {
                if wait.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // The stages may have seen a line in the meantime.
                state.wait = state.chain.wait();
                if state.wait.is_some() {
                    continue;
                }
                state.is_writing = true;
                state.wake_reader();
                state.wake_writer();
            }
            if state.is_writing {
                if !state.poll_write_far(self.far, cx) {
                    // More may be queued in the meantime, up to the limit.
                    if state.chain.unwritten(self.far) <= self.output_bytes {
                        state.wake_writer();
                    }
                } else if state
                    .writer
                    .as_mut()
                    .is_none_or(|writer| Pin::new(writer).poll_flush(cx).is_ready())
                {
                    state.is_writing = false;
                    state.wake_writer();
                    // The reader may have waited for room.
                    state.wake_reader();
                }
            }
            if let Some((stage, job)) = self.jobs.next() {
                state.chain.run_job(stage, job);
                self.send(&mut state);
                continue;
            }
            if state.near == NearState::Ended && !state.is_writing && state.wait.is_none() {
                let closed =
                    state.writer.as_mut().is_none_or(|writer| Pin::new(writer).poll_shutdown(cx).is_ready());
                if closed {
                    state.writer = None;
                    state.wake_writer();
                    if state.is_read_to_end {
                        drop(state);
                        self.jobs.close();
                        return Poll::Ready(());
                    }
                }
            }
            return Poll::Pending;
        }
    }

    /// Returns the error for a line that is too long.
    fn too_long(&self, from: Side, limit: usize) -> io::Error {
        let side = match from {
            Side::Client => "client",
            Side::Agent => "agent",
        };
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a line of the {side} is longer than {limit} bytes (`Limits::frame_bytes`)"),
        )
    }
}

/// Stores a waker if it is another one.
fn store(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

/// The reading half of the near side: the messages of the far side, after the chain.
struct NearReader {
    shared: Arc<ChainShared>,
    reader: Reader,
    lines: LineBuffer,
}

impl NearReader {
    /// Passes the buffered lines to the chain. At the end the last line may have no end.
    fn feed(&mut self, is_end: bool) -> io::Result<()> {
        let far = self.shared.far;
        let mut state = self.shared.state();
        let result = loop {
            match self.lines.next_line_with_end() {
                Ok(Some(line)) => state.chain.feed(far, line),
                Ok(None) => break Ok(()),
                Err(_) => break Err(self.shared.too_long(far, self.lines.limit())),
            }
        };
        if is_end || result.is_err() {
            let rest = self.lines.rest_with_end();
            if !rest.is_empty() && result.is_ok() {
                state.chain.feed(far, rest);
            }
            state.chain.ended(far);
            state.is_read_to_end = true;
            self.shared.jobs.task.wake();
        }
        // The caller reads the output next, so its task is not woken.
        state.near_reader = None;
        self.shared.send(&mut state);
        result
    }
}

impl AsyncRead for NearReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let near = this.shared.near();
        loop {
            {
                let mut state = this.shared.state();
                if state.wait.is_none() && state.chain.unwritten(near) > 0 {
                    let was_full = this.shared.is_full(&state);
                    let output = state.chain.output(near);
                    let unwritten = output.unwritten();
                    let count = unwritten.len().min(buf.remaining());
                    buf.put_slice(unwritten.get(..count).unwrap_or_default());
                    output.consume(count);
                    if was_full {
                        state.wake_writer();
                    }
                    return Poll::Ready(Ok(()));
                }
                // Before the read, so that no message is missed that a stage sends in between.
                store(&mut state.near_reader, cx);
                if state.wait.is_some() {
                    return Poll::Pending;
                }
                if state.is_read_to_end {
                    return Poll::Ready(Ok(()));
                }
                if this.shared.is_full(&state) {
                    return Poll::Pending;
                }
            }
            let mut space = ReadBuf::new(this.lines.space());
            match Pin::new(&mut this.reader).poll_read(cx, &mut space) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Poll::Ready(Err(error)) => {
                    this.feed(true)?;
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(())) => {}
            }
            let count = space.filled().len();
            this.lines.filled(count);
            this.feed(count == 0)?;
        }
    }
}

impl Drop for NearReader {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_read_to_end = true;
        let near = self.shared.near();
        state.chain.output(near).clear();
        self.shared.jobs.task.wake();
    }
}

/// The writing half of the near side: its messages go through the chain to the far side.
struct NearWriter {
    shared: Arc<ChainShared>,
    lines: LineBuffer,
    has_ended: bool,
}

impl NearWriter {
    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let near = self.shared.near();
        let mut state = self.shared.state();
        let rest = self.lines.rest_with_end();
        if !rest.is_empty() {
            state.chain.feed(near, rest);
        }
        state.chain.ended(near);
        state.near = NearState::Ended;
        self.shared.send(&mut state);
        self.shared.jobs.task.wake();
    }
}

impl AsyncWrite for NearWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let near = this.shared.near();
        let mut state = this.shared.state();
        if let Some(error) = state.write_error {
            return Poll::Ready(Err(error.into()));
        }
        let unwritten = state.chain.unwritten(this.shared.far);
        if state.wait.is_some() || unwritten > this.shared.output_bytes || this.shared.is_full(&state) {
            store(&mut state.near_writer, cx);
            return Poll::Pending;
        }
        let fed = this.lines.feed_with_ends(bytes, |line| state.chain.feed(near, line));
        this.shared.send(&mut state);
        if fed.is_err() {
            return Poll::Ready(Err(this.shared.too_long(near, this.lines.limit())));
        }
        match state.write_error {
            Some(error) => Poll::Ready(Err(error.into())),
            None => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.state();
        if let Some(error) = state.write_error {
            return Poll::Ready(Err(error.into()));
        }
        if state.is_writing || state.wait.is_some() {
            store(&mut state.near_writer, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.end();
        let mut state = this.shared.state();
        if state.writer.is_none() {
            return Poll::Ready(Ok(()));
        }
        store(&mut state.near_writer, cx);
        Poll::Pending
    }
}

impl Drop for NearWriter {
    fn drop(&mut self) {
        self.end();
    }
}
