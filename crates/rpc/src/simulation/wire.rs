//! A simulated wire. A seed determines the bytes and the readiness of each poll, and the end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Transport;
use super::random_delay::RandomDelay;

/// One direction.
#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    room: usize,
    /// The number of last bytes that the writer has not flushed, if this pipe buffers.
    unflushed: usize,
    /// The writer has ended the pipe. The reader sees the end after the remaining bytes.
    ended: bool,
    reader_gone: bool,
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The number of polls. A task that spins never lets the time pass.
    polls: u64,
}

impl State {
    fn wake_both(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn end(&mut self) {
        self.ended = true;
        self.unflushed = 0;
        self.wake_both();
    }

    fn polled(&mut self) {
        self.polls += 1;
        assert!(self.polls < 3_000_000, "somebody spins");
    }
}

/// Returns a random size: mostly large, sometimes a few bytes, rarely one.
fn sizes(rng: &mut Rng) -> usize {
    let few = if rng.u8(0..8) == 0 { 1 } else { 30 };
    *rng.choice(&[few, 200, 1000, 4096, 64 * 1024]).unwrap_or(&few)
}

#[derive(Clone)]
pub(super) struct SimulatedPipe(Arc<Mutex<State>>);

impl SimulatedPipe {
    pub(super) fn new(rng: &mut Rng, least: usize) -> Self {
        let room = sizes(rng).max(least);
        SimulatedPipe(Arc::new(Mutex::new(State { room, ..State::default() })))
    }

    pub(super) fn reader(&self, mut rng: Rng, least: usize) -> PipeReader {
        let piece = sizes(&mut rng).max(least);
        PipeReader { pipe: self.clone(), whim: RandomDelay::new(rng), piece }
    }

    pub(super) fn writer(&self, mut rng: Rng, least: usize) -> PipeWriter {
        let piece = sizes(&mut rng).max(least);
        PipeWriter { pipe: self.clone(), buffers: rng.bool(), whim: RandomDelay::new(rng), piece }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes both ends fail.
    pub(super) fn cut(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.wake_both();
    }

    /// Returns true if all written bytes were read.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().bytes.is_empty()
    }
}

/// Creates two connected transports and their pipes. A random number of bytes, at least `least`, limits each
/// read and write.
pub(super) fn wire(rng: &mut Rng, least: usize) -> (Transport, Transport, [SimulatedPipe; 2]) {
    let (there, back) = (SimulatedPipe::new(rng, least), SimulatedPipe::new(rng, least));
    let left = transport(back.reader(rng.fork(), least), there.writer(rng.fork(), least));
    let right = transport(there.reader(rng.fork(), least), back.writer(rng.fork(), least));
    (left, right, [there, back])
}

/// Lets senders write if the pipe does not buffer.
fn transport(reader: PipeReader, writer: PipeWriter) -> Transport {
    let buffers = writer.buffers;
    let transport = Transport::new(reader, writer);
    if buffers { transport } else { transport.writes_at_once() }
}

pub(super) struct PipeReader {
    pipe: SimulatedPipe,
    whim: RandomDelay,
    piece: usize,
}

impl AsyncRead for PipeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pipe.lock().polled();
        ready!(self.whim.poll(cx));
        let this = &mut *self;
        if this.whim.rng().u8(..) == 0 {
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
        let mut state = this.pipe.lock();
        if state.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let there = state.bytes.len() - state.unflushed;
        if there == 0 {
            if state.ended {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let most = this.piece.min(there).min(buf.remaining());
        let count = this.whim.rng().usize(1..=most);
        let (head, tail) = state.bytes.as_slices();
        let first = count.min(head.len());
        buf.put_slice(&head[..first]);
        buf.put_slice(&tail[..count - first]);
        state.bytes.drain(..count);
        state.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        state.reader_gone = true;
        state.bytes.clear();
        state.unflushed = 0;
        state.wake_both();
    }
}

pub(super) struct PipeWriter {
    pipe: SimulatedPipe,
    whim: RandomDelay,
    piece: usize,
    buffers: bool,
}

impl AsyncWrite for PipeWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pipe.lock().polled();
        ready!(self.whim.poll(cx));
        let this = &mut *self;
        if this.whim.rng().u8(..) == 0 {
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
        let mut state = this.pipe.lock();
        if state.broken || state.reader_gone || state.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = state.room - state.bytes.len();
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = this.whim.rng().usize(1..=room.min(this.piece).min(bytes.len()));
        state.bytes.extend(&bytes[..count]);
        // A full buffer flushes itself.
        let is_buffered = this.buffers && state.bytes.len() < state.room;
        state.unflushed = if is_buffered { state.unflushed + count } else { 0 };
        state.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.whim.poll(cx));
        let mut state = self.pipe.lock();
        state.unflushed = 0;
        state.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.lock().end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.pipe.lock().end();
    }
}
