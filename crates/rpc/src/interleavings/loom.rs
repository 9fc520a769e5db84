//! Small models whose interleavings are all explored.

mod answers;
pub(crate) mod notify;
mod outbox;
mod queue;
mod requests;
mod wake_batch;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::model::Builder;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use tokio::io::AsyncWrite;

use crate::connection::ConnectionState;
use crate::limits::Limits;
use crate::sync::Lock;

/// Runs a model in every order with up to three preemptions and prints their number. A deadlock fails the
/// model.
#[allow(clippy::print_stdout, reason = "what was measured")]
fn every_order(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let orders = Arc::new(AtomicU64::new(0));
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.max_branches = 20_000;
    builder.check({
        let orders = orders.clone();
        move || {
            orders.fetch_add(1, Relaxed);
            model();
        }
    });
    println!("measured: {name}: {} orders", orders.load(Relaxed));
}

/// Runs a future on this thread. The function of loom prints each wait to stderr.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        let mut rung = bell.rung.lock_unpoisoned();
        while !std::mem::take(&mut *rung) {
            rung = bell.changed.wait(rung).expect("a lock");
        }
    }
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock_unpoisoned() = true;
        self.changed.notify_one();
    }
}

/// Limits whose timeouts never expire.
fn patient() -> Limits {
    Limits { stall_timeout: Duration::from_secs(1 << 20), ..Limits::default() }
}

fn shared(limits: Limits) -> Arc<ConnectionState> {
    Arc::new(ConnectionState::new(limits, None))
}

/// The peer's end of the output. It accepts at most `most` bytes at once and passes each complete line to
/// `receive` on the writer's thread, before the writer knows that the line is written.
struct Wire<F> {
    line: Vec<u8>,
    most: usize,
    receive: F,
}

impl<F: FnMut(&str)> Wire<F> {
    fn new(most: usize, receive: F) -> Self {
        Wire { line: Vec::new(), most, receive }
    }
}

impl<F: FnMut(&str) + Unpin> AsyncWrite for Wire<F> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(self.most);
        for byte in &bytes[..count] {
            if *byte == b'\n' {
                let line = String::from_utf8(std::mem::take(&mut self.line)).expect("text");
                (self.receive)(&line);
            } else {
                self.line.push(*byte);
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Starts a thread that writes the output until it is finished or closed.
fn writer(
    shared: &Arc<ConnectionState>,
    receive: impl FnMut(&str) + Send + Unpin + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || {
        let _ = block_on(shared.outbox.write_to(Wire::new(usize::MAX, receive), || std::future::ready(())));
    })
}
