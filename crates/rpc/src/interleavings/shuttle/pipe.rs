//! A pipe of a few bytes with short reads and writes. It wakes the task at its other end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sync::Lock;

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    ended: bool,
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

pub(super) struct ModelReader(Arc<Mutex<State>>);
pub(super) struct ModelWriter(Arc<Mutex<State>>, usize);

pub(super) fn pipe(capacity: usize) -> (ModelReader, ModelWriter) {
    let state = Arc::new(Mutex::default());
    (ModelReader(Arc::clone(&state)), ModelWriter(state, capacity))
}

fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

/// Returns a random part of `most`, often all of it.
fn some(most: usize) -> usize {
    if thread_rng().gen_bool(0.5) { most } else { thread_rng().gen_range(1..=most) }
}

impl AsyncRead for ModelReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock_unpoisoned();
        if state.bytes.is_empty() {
            if state.ended {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = some(state.bytes.len().min(buf.remaining()));
        buf.put_slice(&state.bytes.drain(..count).collect::<Vec<u8>>());
        wake(state.writer.take());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ModelWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock_unpoisoned();
        if state.abandoned {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.1 - state.bytes.len();
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = some(room.min(bytes.len()));
        state.bytes.extend(bytes.iter().take(count));
        wake(state.reader.take());
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock_unpoisoned();
        state.ended = true;
        wake(state.reader.take());
        Poll::Ready(Ok(()))
    }
}

impl Drop for ModelReader {
    fn drop(&mut self) {
        let mut state = self.0.lock_unpoisoned();
        state.abandoned = true;
        wake(state.writer.take());
    }
}

impl Drop for ModelWriter {
    fn drop(&mut self) {
        let mut state = self.0.lock_unpoisoned();
        state.ended = true;
        wake(state.reader.take());
    }
}
