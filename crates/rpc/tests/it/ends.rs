//! The end of a connection: its reason, its order and its times. The time is paused, so the times are exact.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_rpc::{Closed, Error, Incoming, Limits, Peer, PeerBuilder, Responder, Service, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use duologue_test_support::{Wire, in_time};

/// The grace period of a cancelled handler. The times below are parts of it.
const GRACE: Duration = Duration::from_secs(1);

fn builder(transport: Transport) -> PeerBuilder {
    let mut limits = Limits::default();
    limits.cancel_grace = GRACE;
    PeerBuilder::new(transport).limits(limits)
}

/// Never ends a request.
struct Endless;

impl Service for Endless {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_endless" => responder.spawn_with(|responder| async move {
                std::future::pending::<()>().await;
                drop(responder);
            }),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// A pipe that fails or accepts nothing, and reports its drop.
struct Output {
    fails: bool,
    dropped: Arc<AtomicBool>,
}

impl Drop for Output {
    fn drop(&mut self) {
        self.dropped.store(true, Relaxed);
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        if self.fails { Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) } else { Poll::Pending }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns a peer with this output and an input that stays open, the input, and true once the output is dropped.
fn with_output(fails: bool) -> (Peer, tokio::io::DuplexStream, Arc<AtomicBool>) {
    let (input, other_end) = tokio::io::duplex(1024);
    let dropped = Arc::new(AtomicBool::new(false));
    let transport = Transport::new(input, Output { fails, dropped: dropped.clone() });
    (builder(transport).start(|_| Endless), other_end, dropped)
}

#[tokio::test(start_paused = true)]
async fn the_first_reason_of_the_end_is_kept() {
    in_time(async {
        let (transport, _script) = Wire::Memory.scripted();
        let peer = builder(transport).start(|_| Endless);
        let call = peer.request_raw("_ask", None);
        let first: Arc<dyn std::error::Error + Send + Sync> = Arc::from(Box::from("the first"));
        peer.close_because(Closed::Cause(first));
        peer.close();
        assert_eq!(peer.closed().await.to_string(), "the first");
        let error = call.await.expect_err("nobody answers");
        assert!(matches!(error, Error::Closed(Closed::Cause(_))), "{error}");
    })
    .await;
}

/// The reader may still find the end of the input, which is the better reason. Meanwhile nothing is accepted that
/// would never be written.
#[tokio::test(start_paused = true)]
async fn a_broken_output_ends_the_connection_after_half_of_the_grace_period() {
    in_time(async {
        let (peer, _input, _) = with_output(true);
        let begun = Instant::now();
        let call = peer.request_raw("_ask", None);
        tokio::time::sleep(GRACE / 4).await;
        assert!(!peer.is_closing());
        let told = tokio::time::timeout(GRACE / 8, peer.notify_raw("_note", &json!({}))).await;
        assert!(told.is_err(), "a message was accepted behind the error: {told:?}");
        let reason = peer.closed().await;
        assert!(
            matches!(&reason, Closed::Io(error) if error.kind() == io::ErrorKind::BrokenPipe),
            "{reason}"
        );
        assert_eq!(begun.elapsed(), GRACE / 2);
        assert!(matches!(call.await, Err(Error::Closed(Closed::Io(_)))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_explanation_that_takes_too_long_is_not_awaited() {
    in_time(async {
        let (transport, script) = Wire::Memory.scripted();
        let peer = builder(transport).explain_end(|_, _| std::future::pending()).start(|_| Endless);
        let call = peer.request_raw("_ask", None);
        let begun = Instant::now();
        drop(script);
        assert!(matches!(call.await, Err(Error::Closed(Closed::EndOfInput))));
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        assert!(matches!(peer.closed().await, Closed::EndOfInput));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_delays_the_end_by_at_most_five_quarters_of_the_grace_period() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let peer = builder(transport).start(|_| Endless);
        script.send_request("_endless", json!({})).await;
        script.probe().await;
        let begun = Instant::now();
        script.close().await;
        peer.closed().await;
        assert_eq!(begun.elapsed(), GRACE + GRACE / 4);
    })
    .await;
}

/// A task of the connection is awaited like a handler.
#[tokio::test(start_paused = true)]
async fn a_task_of_the_connection_delays_its_end() {
    in_time(async {
        let (transport, _script) = Wire::Memory.scripted();
        let peer = builder(transport).start(|_| Endless);
        let (closing, begun) = (peer.closing(), Instant::now());
        peer.spawn(async move {
            closing.cancelled().await;
            tokio::time::sleep(GRACE / 2).await;
        });
        // A token that was given away does not close the connection.
        peer.closing().cancel();
        tokio::time::sleep(GRACE).await;
        assert!(!peer.is_closing());
        peer.close();
        peer.closed().await;
        assert_eq!(begun.elapsed(), GRACE + GRACE / 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_that_nobody_reads_delays_the_end_by_a_quarter_of_the_grace_period() {
    in_time(async {
        let (peer, _input, dropped) = with_output(false);
        peer.notify_raw("_note", &json!({})).await.expect("open");
        let flushed = tokio::spawn({
            let peer = peer.clone();
            async move { peer.flush().await }
        });
        tokio::time::sleep(GRACE).await;
        let begun = Instant::now();
        peer.close();
        assert!(matches!(peer.closed().await, Closed::Local));
        assert_eq!(begun.elapsed(), GRACE / 4);
        assert!(matches!(flushed.await, Ok(Err(Error::Closed(Closed::Local)))));
        // The peer sees the end of its input.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(dropped.load(Relaxed), "the pipe is still open");
    })
    .await;
}

/// The responses of handlers that obey the cancellation are written, and only then the peer sees the end.
#[tokio::test(start_paused = true)]
async fn a_peer_gets_the_last_responses_and_then_the_end() {
    struct Obedient;

    impl Service for Obedient {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            responder.spawn_with(|responder| async move {
                responder.cancellation().cancelled().await;
                tokio::time::sleep(GRACE / 2).await;
                responder.respond(Ok("the last"));
            });
        }

        fn notification(&self, _: Incoming<'_>) {}
    }

    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let peer = builder(transport).start(|_| Obedient);
        let id = script.send_request("_work", json!({})).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        peer.close();
        let answers: Vec<Value> = script.read_to_end().await;
        assert_eq!(answers, [json!({"jsonrpc": "2.0", "id": id, "result": "the last"})]);
    })
    .await;
}

/// Our half ends behind everything that was sent, and the peer's half continues.
#[tokio::test(start_paused = true)]
async fn the_end_of_our_half_leaves_the_other_half_open() {
    in_time(async {
        let (transport, mut script) = Wire::Memory.scripted();
        let peer = builder(transport).start(|_| Endless);
        let call = peer.call::<_, u32>("_ask", &json!({}));
        peer.finish();
        let late = peer.notify_raw("_late", &json!({})).await;
        assert!(matches!(late, Err(Error::Closed(Closed::Local))), "{late:?}");
        let request = script.expect("_ask").await;
        assert!(script.next_line().await.is_none(), "the half is still open");
        script.respond(&request, json!(7)).await;
        assert_eq!(call.await.expect("an answer"), 7);
        assert!(!peer.is_closing());
    })
    .await;
}

/// A line over the limit ends the connection. An agent says why, a client does not.
#[tokio::test(start_paused = true)]
async fn a_line_over_the_limit_ends_the_connection() {
    in_time(async {
        for answers in [true, false] {
            let (ours, theirs) = Transport::memory();
            let mut limits = Limits::default();
            limits.frame_bytes = 1000;
            let peer = PeerBuilder::new(ours).limits(limits).answer_noise(answers).start(|_| Endless);
            let (mut input, mut output) = theirs.into_split();
            output.write_all(&[b'x'; 1001]).await.expect("written");
            output.flush().await.expect("written");
            assert!(matches!(peer.closed().await, Closed::FrameTooLarge { limit: 1000 }));
            assert_eq!(peer.stats().bytes_read, 1001);
            let mut text = String::new();
            input.read_to_string(&mut text).await.expect("the end");
            if answers {
                let answer: Value = serde_json::from_str(&text).expect("one answer");
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
                let message = answer["error"]["message"].as_str().expect("a message");
                assert!(message.contains("1000 bytes"), "{message}");
            } else {
                assert_eq!(text, "");
            }
        }
    })
    .await;
}

/// Everything that waits learns the reason: a request, a queue, a flush and the handler of the connection.
#[tokio::test(start_paused = true)]
async fn everything_that_waits_learns_the_reason() {
    struct Reports(Arc<AtomicBool>);

    impl Service for Reports {
        fn request(&self, _: Incoming<'_>, _: Responder) {}
        fn notification(&self, _: Incoming<'_>) {}

        fn closed(&self, reason: &Closed) {
            self.0.store(matches!(reason, Closed::EndOfInput), Relaxed);
        }
    }

    in_time(async {
        let (transport, script) = Wire::Memory.scripted();
        let reported = Arc::new(AtomicBool::new(false));
        let peer = builder(transport).start(|_| Reports(reported.clone()));
        let (sender, mut queue) = peer.queue::<u8>();
        sender.push(1, 1).expect("open");
        let call = peer.request_raw("_ask", None);
        let token = peer.closing();
        drop(script);
        assert!(matches!(call.await, Err(Error::Closed(Closed::EndOfInput))));
        assert!(matches!(queue.next().await, Some(Ok(1))), "what came before the end is kept");
        assert!(matches!(queue.next().await, Some(Err(Error::Closed(Closed::EndOfInput)))));
        assert!(queue.next().await.is_none());
        peer.closed().await;
        assert!(token.is_cancelled() && peer.is_closing());
        assert!(reported.load(Relaxed), "the service was not told");
        assert!(matches!(peer.flush().await, Ok(()) | Err(Error::Closed(Closed::EndOfInput))));
        let late = peer.notify_raw("_late", &json!({})).await;
        assert!(matches!(late, Err(Error::Closed(_))), "{late:?}");
        let (late, mut queue) = peer.queue::<u8>();
        assert_eq!(late.push(1, 1), Err(1), "a queue that is created later has ended");
        assert!(matches!(queue.next().await, Some(Err(Error::Closed(Closed::EndOfInput)))));
    })
    .await;
}
