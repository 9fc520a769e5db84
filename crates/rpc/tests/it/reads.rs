//! The order in which the reader works: other tasks have their turn, wake-ups come after the whole read, responses to
//! one read are written together.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use duologue_rpc::{
    Incoming, Limits, Peer, PeerBuilder, QueueSender, Responder, Service, Tap, TappedFrame, Transport,
};
use futures_util::Stream as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

use duologue_test_support::{Wire, in_time};

/// Answers at once, in a task, or not at all. Counts notifications.
#[derive(Clone, Default)]
struct Answers(Arc<AtomicUsize>);

impl Service for Answers {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_now" => responder.respond(Ok(1)),
            "_soon" => responder.spawn_with(|responder| async move { responder.respond(Ok(2)) }),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, _: Incoming<'_>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// An input that always has more, until it has been read `reads` times.
struct Endless {
    reads: usize,
    fills: bool,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads > 0 {
            self.reads -= 1;
            let count = if self.fills { buf.remaining() } else { 1 };
            buf.put_slice(&b"\n".repeat(count));
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the turns that another task has while an input is read that often.
async fn turns_beside(reads: usize, fills: bool) -> usize {
    let turns = Arc::new(AtomicUsize::new(0));
    let other = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let transport = Transport::new(Endless { reads, fills }, tokio::io::sink());
    PeerBuilder::new(transport).start(|_| Answers::default()).closed().await;
    other.abort();
    turns.load(Relaxed)
}

/// On one thread, so that the reader and the other task share it.
#[tokio::test]
async fn other_tasks_have_their_turn_beside_endless_input() {
    in_time(async {
        let turns = turns_beside(300, true).await;
        assert!(turns >= 300, "{turns} turns in 300 full reads");
        let turns = turns_beside(20_000, false).await;
        assert!(turns >= 50, "{turns} turns in 20,000 small reads");
    })
    .await;
}

/// Input that is read in these pieces. A piece may be an error.
struct Pieces(Vec<io::Result<&'static str>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.0.remove(0).map(|piece| buf.put_slice(piece.as_bytes())))
    }
}

/// An interrupted read is repeated. The last line counts without its line end if it is a message, and nothing else does.
#[tokio::test]
async fn the_last_line_may_have_no_end() {
    in_time(async {
        let note = "{\"jsonrpc\":\"2.0\",\"method\":\"_note\"}";
        for (last, messages) in [(note, 2), ("npm WARN", 1), ("{\"jsonrpc\":\"2.0\",\"met", 1), ("", 1)] {
            let interrupted = || Err(io::ErrorKind::Interrupted.into());
            let pieces = vec![interrupted(), Ok(note), interrupted(), Ok("\n"), Ok(last)];
            let service = Answers::default();
            let transport = Transport::new(Pieces(pieces), tokio::io::sink());
            let peer = PeerBuilder::new(transport).start(|_| service.clone());
            let reason = peer.closed().await;
            assert!(matches!(reason, duologue_rpc::Closed::EndOfInput), "{reason}");
            assert_eq!((service.0.load(Relaxed), peer.stats().noise), (messages, 0), "{last}");
        }
    })
    .await;
}

/// Queues every notification.
struct Queueing {
    sender: QueueSender<()>,
    pushed: Arc<AtomicUsize>,
}

impl Service for Queueing {
    fn request(&self, _: Incoming<'_>, _: Responder) {}

    fn notification(&self, notification: Incoming<'_>) {
        self.pushed.fetch_add(1, Relaxed);
        let _ = self.sender.push((), notification.wire_bytes);
    }
}

/// Notes how many items were queued when it was woken.
struct Bell {
    pushed: Arc<AtomicUsize>,
    at: Mutex<Vec<usize>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).push(self.pushed.load(Relaxed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_is_woken_once_for_all_lines_of_a_read() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let bell = Arc::new(Bell { pushed: Arc::default(), at: Mutex::default() });
        let mut queue = None;
        let _peer = PeerBuilder::new(transport).start(|peer| {
            let (sender, receiver) = peer.queue();
            queue = Some(receiver);
            Queueing { sender, pushed: bell.pushed.clone() }
        });
        let mut queue = queue.expect("a queue");
        let waker = bell.clone().into();
        assert!(Pin::new(&mut queue).poll_next(&mut Context::from_waker(&waker)).is_pending());
        script.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"_note\"}\n".repeat(20)).await;
        settle().await;
        assert_eq!(*bell.at.lock().unwrap_or_else(PoisonError::into_inner), [20]);
        for _ in 0..20 {
            assert!(matches!(queue.next().await, Some(Ok(()))));
        }
    })
    .await;
}

/// An output that keeps each write.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<Vec<String>>>);

impl Writes {
    /// Returns the number of lines of each write since the last call.
    fn take(&self) -> Vec<usize> {
        let writes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        writes.iter().map(|write| write.lines().count()).collect()
    }
}

impl AsyncWrite for Writes {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Returns a peer whose senders may write, its output and its input, and waits until its writer sleeps.
async fn writing() -> (Peer, Writes, DuplexStream) {
    let (input, other_end) = tokio::io::duplex(64 * 1024);
    let writes = Writes::default();
    let transport = Transport::new(input, writes.clone()).writes_at_once();
    let peer = PeerBuilder::new(transport).start(|_| Answers::default());
    settle().await;
    (peer, writes, other_end)
}

fn requests(method: &str, ids: std::ops::Range<u32>) -> Vec<u8> {
    ids.map(|id| format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method})))
        .collect::<String>()
        .into()
}

#[tokio::test(start_paused = true)]
async fn responses_to_the_requests_of_one_read_are_one_write() {
    in_time(async {
        let (peer, writes, mut input) = writing().await;
        for method in ["_now", "_soon"] {
            input.write_all(&requests(method, 0..10)).await.expect("open");
            settle().await;
            assert_eq!(writes.take().iter().sum::<usize>(), 10);
            input.write_all(&requests(method, 10..13)).await.expect("open");
            settle().await;
            let lines = writes.take();
            assert!(lines.len() <= 2 && lines.iter().sum::<usize>() == 3, "{method}: {lines:?}");
        }
        // A response that nothing follows is written by its sender, before any other task runs.
        input.write_all(&requests("_now", 20..21)).await.expect("open");
        settle().await;
        assert_eq!(writes.take(), [1]);
        drop(peer);
    })
    .await;
}

/// The only request that waits is in the pipe when the call returns. Later ones are written together.
#[tokio::test(start_paused = true)]
async fn a_request_alone_is_written_by_its_sender() {
    in_time(async {
        let (peer, writes, _input) = writing().await;
        let first = peer.request_raw("_first", None);
        assert_eq!(writes.take(), [1]);
        let second = peer.request_raw("_second", None);
        let third = peer.request_raw("_third", None);
        assert_eq!(writes.take(), [0; 0]);
        settle().await;
        assert_eq!(writes.take(), [2]);
        drop((first, second, third));

        // An output that does not write at once is left to the writer.
        let (input, _other_end) = tokio::io::duplex(1024);
        let writes = Writes::default();
        let peer = PeerBuilder::new(Transport::new(input, writes.clone())).start(|_| Answers::default());
        settle().await;
        let call = peer.request_raw("_first", None);
        assert_eq!(writes.take(), [0; 0]);
        settle().await;
        assert_eq!(writes.take(), [1]);
        drop(call);
    })
    .await;
}

/// Keeps the times of the frames.
#[derive(Default)]
struct Times(Mutex<Vec<tokio::time::Instant>>);

impl Tap for Times {
    fn frame(&self, frame: TappedFrame<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(frame.at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tap_sees_the_times_of_the_frames() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let times = Arc::new(Times::default());
        let begun = tokio::time::Instant::now();
        let peer = PeerBuilder::new(transport).tap(times.clone()).start(|_| Answers::default());
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            script.notify("_note", json!({})).await;
            settle().await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        peer.notify_raw("_note", &json!({})).await.expect("open");
        let seconds = |time: &tokio::time::Instant| time.duration_since(begun).as_secs();
        let times = times.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(times.iter().map(seconds).collect::<Vec<_>>(), [5, 10, 15]);
    })
    .await;
}

/// Has no room until the test says so.
struct Full(tokio::sync::Semaphore);

impl Tap for Full {
    fn frame(&self, _: TappedFrame<'_>) {}

    fn wait(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async { drop(self.0.acquire().await) }))
    }
}

/// A sender must not write while the tap has no room, even if the writer sleeps.
#[tokio::test(start_paused = true)]
async fn a_tap_without_room_stops_the_sender_of_a_request() {
    in_time(async {
        let (input, _other_end) = tokio::io::duplex(1024);
        let writes = Writes::default();
        let tap = Arc::new(Full(tokio::sync::Semaphore::new(1)));
        let transport = Transport::new(input, writes.clone()).writes_at_once();
        let peer = PeerBuilder::new(transport).tap(tap.clone()).start(|_| Answers::default());
        settle().await;
        tap.0.acquire().await.expect("open").forget();
        let call = peer.request_raw("_ask", None);
        settle().await;
        assert_eq!(writes.take(), [0; 0]);
        tap.0.add_permits(1);
        settle().await;
        assert_eq!(writes.take(), [1]);
        drop(call);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tap_without_room_stops_the_reader_after_one_read() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let full = Arc::new(Full(tokio::sync::Semaphore::new(0)));
        let service = Answers::default();
        let peer = PeerBuilder::new(transport).tap(full.clone()).start(|_| service.clone());
        for _ in 0..3 {
            script.notify("_note", json!({})).await;
            settle().await;
            assert_eq!(service.0.load(Relaxed), 1);
        }
        full.0.add_permits(1);
        settle().await;
        assert_eq!(service.0.load(Relaxed), 3);
        assert!(!peer.is_closing());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_paused_while_the_queues_are_full_and_only_then() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let mut limits = Limits::default();
        (limits.queue_bytes, limits.stall_timeout) = (100, Duration::from_secs(10));
        let mut queue = None;
        let pushed = Arc::new(AtomicUsize::new(0));
        let peer = PeerBuilder::new(transport).limits(limits).start(|peer| {
            let (sender, receiver) = peer.queue();
            queue = Some(receiver);
            Queueing { sender, pushed: pushed.clone() }
        });
        let mut queue = queue.expect("a queue");
        let note = json!({"text": "x".repeat(100)});
        for _ in 0..3 {
            script.notify("_note", note.clone()).await;
        }
        settle().await;
        assert!(peer.is_paused());
        assert_eq!(pushed.load(Relaxed), 1, "the reader continued");
        for taken in 1..=3 {
            assert!(matches!(queue.next().await, Some(Ok(()))));
            settle().await;
            assert_eq!((pushed.load(Relaxed), peer.is_paused()), (3.min(taken + 1), taken < 3));
        }
        // The end of the connection ends a pause.
        script.notify("_note", note).await;
        script.notify("_note", json!({})).await;
        settle().await;
        assert!(peer.is_paused());
        peer.close();
        tokio::time::timeout(Duration::from_secs(1), peer.closed())
            .await
            .expect("the reader is still paused");
    })
    .await;
}
