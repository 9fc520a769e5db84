//! A simulated network connection in memory. A seed determines the pieces of reads, their delays, and one fault.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duologue_rpc::Lock as _;
use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::campaign::EventCounts;

/// The fault of a connection, after a number of bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Both directions end. Bytes on their way are lost.
    Cut,
    /// One direction ends.
    HalfClose,
    /// Both directions end regularly, in the middle of a head or a frame. Bytes on their way arrive.
    Truncation,
    /// The bytes of one direction disappear.
    BlackHole,
    /// The bytes of both directions disappear.
    DeafAndMute,
    /// The client loses its end, and the server does not notice.
    Abandoned,
    /// The server's process dies, and another one takes its place.
    ServerDeath,
}

impl Fault {
    pub(super) fn random(rng: &mut Rng) -> Self {
        match rng.u8(0..12) {
            0 => Fault::HalfClose,
            1 => Fault::BlackHole,
            2 => Fault::DeafAndMute,
            3 | 4 => Fault::Abandoned,
            5 | 6 => Fault::Truncation,
            _ => Fault::Cut,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Cut => "cuts",
            Fault::HalfClose => "half-closes",
            Fault::Truncation => "truncations",
            Fault::BlackHole => "black holes",
            Fault::DeafAndMute => "dead links",
            Fault::Abandoned => "abandoned links",
            Fault::ServerDeath => "server deaths",
        }
    }
}

/// The most delays of one end, so that a schedule ends.
const MOST_DELAYS: usize = 300;

/// The most small pieces that one end reads or writes, so that a schedule is fast. They are enough for a split at every
/// byte of the first heads and frames.
const MOST_PIECES: usize = 400;
/// The size of the pieces behind them.
const PIECE: usize = 4096;

/// The state of a connection that its two ends share.
#[derive(Debug, Default)]
struct LinkFault {
    is_cut: bool,
    /// True if the client has lost its end.
    is_abandoned: bool,
    /// The end of a client that has lost it, so that the server does not see its end.
    kept: Option<DuplexStream>,
    /// By the side that writes.
    is_ended: [bool; 2],
    is_swallowed: [bool; 2],
    has_happened: bool,
}

/// The switch that arms the faults of all connections, and their count.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultSwitch {
    pub(super) is_armed: Arc<AtomicBool>,
    pub(super) happened: Arc<Mutex<Vec<Fault>>>,
    delays: Arc<AtomicU64>,
}

impl FaultSwitch {
    /// Returns true if the server has died.
    pub(super) fn has_died(&self) -> bool {
        self.happened.lock_unpoisoned().contains(&Fault::ServerDeath)
    }

    /// Returns the counts of the faults and delays that happened.
    pub(super) fn counts(&self) -> EventCounts {
        let mut counts = EventCounts::default();
        for fault in self.happened.lock_unpoisoned().iter() {
            counts.add(fault.name(), 1);
        }
        counts.add("delays", self.delays.load(Relaxed));
        counts
    }
}

/// One end of a connection.
pub(super) struct WireEnd {
    inner: Option<DuplexStream>,
    /// 0 for the client.
    side: usize,
    shared: Arc<Mutex<LinkFault>>,
    /// The bytes that this end may still write before the fault.
    fault: Option<(Fault, usize)>,
    faults: FaultSwitch,
    rng: Rng,
    piece: usize,
    pieces: usize,
    slowness: u8,
    delays: usize,
    delay: Option<Pin<Box<Sleep>>>,
}

/// Creates the two ends of a connection. `fault` happens after some bytes of one direction.
pub(super) fn wire(rng: &mut Rng, fault: Option<Fault>, faults: &FaultSwitch) -> (WireEnd, WireEnd) {
    let capacity = *rng.choice(&[100, 1000, 16 * 1024, 256 * 1024]).unwrap_or(&1000);
    let (left, right) = tokio::io::duplex(capacity);
    let shared = Arc::<Mutex<LinkFault>>::default();
    // The client notices the loss of its end when it writes or reads.
    let faulty = if fault == Some(Fault::Abandoned) { 0 } else { rng.usize(0..2) };
    let after = rng.usize(0..*rng.clone().choice(&[100, 1000, 8000]).unwrap_or(&1000));
    let slowness = rng.u8(0..4);
    let end = |inner, side, rng: &mut Rng| WireEnd {
        inner: Some(inner),
        side,
        shared: shared.clone(),
        fault: fault.filter(|_| side == faulty).map(|fault| (fault, after)),
        faults: faults.clone(),
        piece: *rng.choice(&[1, 7, 100, PIECE]).unwrap_or(&PIECE),
        pieces: 0,
        slowness,
        delays: 0,
        rng: rng.fork(),
        delay: None,
    };
    (end(left, 0, rng), end(right, 1, rng))
}

impl WireEnd {
    /// Lets the fault happen.
    fn fail(&mut self, fault: Fault) {
        let mut shared = self.shared.lock_unpoisoned();
        if std::mem::replace(&mut shared.has_happened, true) {
            return;
        }
        match fault {
            Fault::Cut | Fault::ServerDeath => shared.is_cut = true,
            Fault::HalfClose => shared.is_ended[self.side] = true,
            Fault::Truncation => shared.is_ended = [true; 2],
            Fault::BlackHole => shared.is_swallowed[self.side] = true,
            Fault::DeafAndMute => shared.is_swallowed = [true; 2],
            Fault::Abandoned => shared.is_abandoned = true,
        }
        self.faults.happened.lock_unpoisoned().push(fault);
    }

    /// Returns true if this end is lost.
    fn loses_end(&mut self) -> bool {
        let mut shared = self.shared.lock_unpoisoned();
        if shared.is_abandoned && self.side == 0 {
            shared.kept = shared.kept.take().or(self.inner.take());
            return true;
        }
        if shared.is_cut {
            // Dropping the stream wakes the other end.
            self.inner = None;
        }
        shared.is_cut
    }

    /// Returns the most bytes of the next read or write.
    fn next_piece(&mut self) -> usize {
        self.pieces += 1;
        if self.pieces > MOST_PIECES {
            return PIECE;
        }
        self.rng.usize(1..=self.piece)
    }

    fn poll_delay(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_armed = self.faults.is_armed.load(Relaxed);
        if is_armed
            && self.delay.is_none()
            && self.delays < MOST_DELAYS
            && self.rng.u8(..) < 20 * self.slowness
        {
            let millis = match self.rng.u8(..) {
                0 => self.rng.u64(0..100_000),
                1..10 => self.rng.u64(0..2000),
                _ => self.rng.u64(0..20),
            };
            self.delays += 1;
            self.faults.delays.fetch_add(1, Relaxed);
            self.delay = Some(Box::pin(sleep_until(Instant::now() + Duration::from_millis(millis))));
        }
        if let Some(delay) = &mut self.delay {
            ready!(delay.as_mut().poll(cx));
            self.delay = None;
        }
        Poll::Ready(())
    }
}

fn reset<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for WireEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_delay(cx));
        if this.loses_end() {
            return reset();
        }
        let most = this.next_piece().min(buf.remaining());
        let Some(inner) = &mut this.inner else { return reset() };
        let mut piece = vec![0; most];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(Pin::new(inner).poll_read(cx, &mut piece))?;
        buf.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WireEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let is_armed = this.faults.is_armed.load(Relaxed);
        let mut most = this.next_piece().max(64).min(bytes.len());
        if is_armed && let Some((fault, left)) = this.fault {
            if left == 0 {
                this.fault = None;
                this.fail(fault);
            } else {
                most = most.min(left);
            }
        }
        if this.loses_end() {
            return reset();
        }
        let (is_ended, is_swallowed) = {
            let shared = this.shared.lock_unpoisoned();
            (shared.is_ended[this.side], shared.is_swallowed[this.side])
        };
        let Some(inner) = &mut this.inner else { return reset() };
        if is_ended {
            ready!(Pin::new(inner).poll_shutdown(cx))?;
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if is_swallowed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let count = ready!(Pin::new(inner).poll_write(cx, &bytes[..most]))?;
        if is_armed && let Some((_, left)) = &mut this.fault {
            *left -= count;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_flush(cx),
            None => reset(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_shutdown(cx),
            None => reset(),
        }
    }
}
