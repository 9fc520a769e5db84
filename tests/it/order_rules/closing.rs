//! The end of a connection: it comes once, however often and from wherever it is closed. A peer that
//! responds before the write has returned is handled too.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use duologue_rpc::{
    Closed, Direction, Error, Incoming, Peer, PeerBuilder, Responder, Service, Tap, TappedFrame, Transport,
};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt, DuplexStream};

use duologue_test_support::{Wire, in_time, over_every_wire};

over_every_wire!(closing_from_within_is_closing_once, many_close_at_once);

const ROUNDS: usize = 1000;

/// Closes its connection in every call, and counts the calls about the end.
struct Closer {
    peer: Peer,
    from: usize,
    told: Arc<AtomicUsize>,
}

impl Service for Closer {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        if self.from == 0 {
            self.peer.close();
            self.peer.close_because(Closed::EndOfInput);
        }
        responder.method_not_found(request.method);
    }

    fn notification(&self, _: Incoming<'_>) {
        if self.from == 1 {
            self.peer.close();
        }
    }

    fn closed(&self, _: &Closed) {
        self.told.fetch_add(1, SeqCst);
        self.peer.finish();
        self.peer.close();
        // Asking is pointless, and answered at once.
        drop(self.peer.call::<_, Value>("_late", &[0]));
    }
}

struct ClosingTap(OnceLock<Peer>);

impl Tap for ClosingTap {
    fn frame(&self, frame: TappedFrame<'_>) {
        if let (Some(peer), Direction::Incoming) = (self.0.get(), frame.direction) {
            peer.close();
        }
    }
}

async fn closing_from_within_is_closing_once(wire: Wire) {
    for round in 0..ROUNDS {
        let (transport, mut script) = wire.scripted();
        let (told, tap) = (Arc::new(AtomicUsize::new(0)), Arc::new(ClosingTap(OnceLock::new())));
        let mut connection = PeerBuilder::new(transport);
        if round % 5 == 2 {
            connection = connection.tap(tap.clone());
        }
        if round % 5 == 3 {
            connection = connection.explain_end(|reason, peer| async move {
                peer.close();
                reason
            });
        }
        let peer =
            connection.start(|peer| Closer { peer: peer.clone(), from: round % 5, told: told.clone() });
        let _ = tap.0.set(peer.clone());
        let call = peer.call::<_, Value>("_question", &[0]);
        script.expect("_question").await;
        match round % 5 {
            0 => drop(script.send_request("_close", json!({})).await),
            1 | 2 => script.notify("_close", json!({})).await,
            3 => script.close().await,
            _ => {
                // From a future that waits for the same end.
                let waiting = peer.clone();
                let closing = tokio::spawn(async move {
                    waiting.close();
                    waiting.closed().await
                });
                assert!(matches!(closing.await.expect("no panic"), Closed::Local));
            }
        }
        let error = call.await.expect_err("nobody answers");
        assert!(matches!(error, Error::Closed(_)), "{error}");
        peer.closed().await;
        peer.close();
        assert_eq!(told.load(SeqCst), 1, "round {round}");
        assert_eq!(peer.pending_requests(), 0);
    }
}

async fn many_close_at_once(wire: Wire) {
    for _ in 0..ROUNDS / 10 {
        let (transport, _script) = wire.scripted();
        let told = Arc::new(AtomicUsize::new(0));
        let peer = PeerBuilder::new(transport).start(|peer| Closer {
            peer: peer.clone(),
            from: 9,
            told: told.clone(),
        });
        let closers = (0..8).map(|number| {
            let peer = peer.clone();
            tokio::spawn(async move {
                if number % 2 == 0 {
                    peer.close()
                } else {
                    peer.finish()
                }
                peer.closed().await;
            })
        });
        for closer in futures::future::join_all(closers).await {
            closer.expect("no panic");
        }
        assert_eq!(told.load(SeqCst), 1);
    }
}

/// A wire whose other end answers every request before the write of it returns.
struct Instant {
    /// The stream of its responses: our reader's other end.
    answers: DuplexStream,
    written: Vec<u8>,
}

impl AsyncWrite for Instant {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        while let Some(end) = self.written.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.written.drain(..=end).collect();
            let request: Value = serde_json::from_slice(&line).expect("a message");
            let answer = format!("{}\n", json!({"jsonrpc": "2.0", "id": request["id"], "result": 1}));
            let sent = Pin::new(&mut self.answers).poll_write(cx, answer.as_bytes());
            assert!(matches!(sent, Poll::Ready(Ok(count)) if count == answer.len()), "{sent:?}");
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_inside_the_write_finds_its_request() {
    in_time(async {
        let (answers, input) = tokio::io::duplex(1 << 20);
        let peer = PeerBuilder::new(Transport::new(input, Instant { answers, written: Vec::new() }))
            .start(|peer| Closer { peer: peer.clone(), from: 9, told: Arc::default() });
        for _ in 0..ROUNDS {
            assert_eq!(peer.call::<_, u8>("_ask", &[0]).await.expect("an answer"), 1);
        }
        let stats = peer.stats();
        assert_eq!((stats.stray_responses, peer.pending_requests()), (0, 0));
    })
    .await;
}

/// Takes a byte at a time, is not ready or interrupted in between, and ends in the middle of a frame.
struct Grudging {
    inner: DuplexStream,
    turn: usize,
    left: usize,
}

impl AsyncWrite for Grudging {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.turn += 1;
        match self.turn % 4 {
            0 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            1 => Poll::Ready(Err(std::io::ErrorKind::Interrupted.into())),
            _ if self.left == 0 => Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into())),
            _ => {
                self.left -= 1;
                let byte = bytes.get(..1).unwrap_or_default();
                Pin::new(&mut self.inner).poll_write(cx, byte)
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// However little is taken at a time the frames stay whole; and behind half a frame nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_grudging_pipe_tears_no_frame() {
    in_time(async {
        for left in [usize::MAX, 5000, 777, 1, 0] {
            let (inner, mut other) = tokio::io::duplex(1 << 20);
            let (_open, input) = tokio::io::duplex(64);
            let peer = PeerBuilder::new(Transport::new(input, Grudging { inner, turn: 0, left }))
                .start(|peer| Closer { peer: peer.clone(), from: 9, told: Arc::default() });
            for number in 0..200 {
                // After the break there is nobody to tell.
                let _ = peer.notify_raw("_note", &[number]).await;
            }
            if left == usize::MAX {
                peer.flush().await.expect("all of it is written");
                peer.close();
            }
            let reason = peer.closed().await;
            assert_eq!(matches!(reason, Closed::Local), left == usize::MAX, "{reason}");
            let mut bytes = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut other, &mut bytes).await.expect("bytes");
            let lines = bytes.split_inclusive(|byte| *byte == b'\n');
            for (number, line) in lines.enumerate() {
                let whole = format!("{}\n", json!({"jsonrpc": "2.0", "method": "_note", "params": [number]}));
                assert!(whole.as_bytes().starts_with(line), "{:?}", String::from_utf8_lossy(line));
                assert!(line.len() == whole.len() || bytes.len() == left, "a frame was torn");
            }
            other.shutdown().await.expect("nobody reads");
        }
    })
    .await;
}
