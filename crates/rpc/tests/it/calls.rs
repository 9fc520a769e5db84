//! Our own requests: their timeouts, their cancellations, and the responses that arrive late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use duologue_rpc::{
    Closed, Error, Incoming, Limits, Peer, PeerBuilder, Queue, QueueSender, Responder, Service, Transport,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Queues notifications by their length. Answers `_slow` only when the connection or the request ends, and `_stuck`
/// never.
struct Slow(QueueSender<usize>);

impl Service for Slow {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_stuck" => responder.spawn::<(), _>(std::future::pending()),
            "_huge_error" => {
                responder
                    .respond_or(Ok("x".repeat(2000)), |_| duologue_schema::Error::internal("y".repeat(2000)));
            }
            "_ready" => responder.spawn(async { Ok("ready") }),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        let _ = self.0.push(notification.wire_bytes, notification.wire_bytes);
    }
}

fn start(transport: Transport, limits: Limits) -> (Peer, Queue<usize>) {
    let mut queue = None;
    let peer = PeerBuilder::new(transport).limits(limits).start(|peer| {
        let (sender, receiver) = peer.queue();
        queue = Some(receiver);
        Slow(sender)
    });
    (peer, queue.expect("a queue"))
}

fn connected(limits: Limits) -> (Peer, ScriptedPeer, Queue<usize>) {
    let (transport, script) = Wire::Memory.scripted();
    let (peer, queue) = start(transport, limits);
    (peer, script, queue)
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_withdrawn_and_forgotten() {
    in_time(async {
        let (peer, mut script, _queue) = connected(Limits::default());
        let begun = Instant::now();
        let call = peer.request_raw("_ask", None).timeout(Duration::from_secs(10));
        let request = script.expect("_ask").await;
        assert_eq!(request["params"], json!({}), "some peers reject absent or null params");
        let error = call.await.expect_err("no answer");
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        let is_named = matches!(&error, Error::Timeout { method, after }
            if &**method == "_ask" && *after == Duration::from_secs(10));
        assert!(is_named, "{error:?}");
        assert_eq!(peer.pending_requests(), 0);
        assert_eq!(script.expect("$/cancel_request").await["params"]["requestId"], request["id"]);
        script.respond(&request, json!(1)).await;
        script.probe().await;
        assert_eq!(peer.stats().stray_responses, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_detached_request_is_not_withdrawn() {
    in_time(async {
        let (peer, mut script, _queue) = connected(Limits::default());
        drop(peer.request_raw("_detached", None).detach());
        drop(peer.request_raw("_dropped", None));
        assert_eq!(peer.pending_requests(), 0);
        let detached = script.expect("_detached").await;
        let dropped = script.expect("_dropped").await;
        assert_eq!(script.expect("$/cancel_request").await["params"]["requestId"], dropped["id"]);
        script.respond(&detached, json!(1)).await;
        script.respond(&dropped, json!(1)).await;
        script.probe().await;
        assert_eq!(peer.stats().stray_responses, 2);
    })
    .await;
}

/// A cancelled request may have a result all the same, and its caller gets it.
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_still_awaited() {
    in_time(async {
        let (peer, mut script, _queue) = connected(Limits::default());
        let call = peer.call::<_, u32>("_ask", &json!({}));
        let request = script.expect("_ask").await;
        call.cancel();
        call.cancel();
        script.expect("$/cancel_request").await;
        script.respond(&request, json!(7)).await;
        assert_eq!(call.await.expect("a result"), 7);
        script.probe().await;
    })
    .await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Ask {}

impl duologue_schema::Request for Ask {
    const METHOD: &'static str = "_ask";
    type Result = Value;
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_request_calls_nobody() {
    in_time(async {
        let (peer, mut script, _queue) = connected(Limits::default());
        let called = Arc::new(AtomicUsize::new(0));
        let deliver = |called: &Arc<AtomicUsize>| {
            let called = called.clone();
            move |_| {
                called.fetch_add(1, Relaxed);
            }
        };
        let forgotten = peer.request_into(&Ask {}, None, deliver(&called)).expect("open");
        forgotten.forget();
        assert_eq!(peer.pending_requests(), 0);
        let request = script.expect("_ask").await;
        script.respond(&request, json!(1)).await;
        script.probe().await;
        assert_eq!((called.load(Relaxed), peer.stats().stray_responses), (0, 1));
        // A cancellation is sent once, and the response still arrives.
        let cancelled = peer.request_into(&Ask {}, None, deliver(&called)).expect("open");
        cancelled.cancel();
        cancelled.cancel();
        let request = script.expect("_ask").await;
        script.expect("$/cancel_request").await;
        script.respond(&request, json!(1)).await;
        script.probe().await;
        assert_eq!((called.load(Relaxed), peer.stats().stray_responses), (1, 1));
        cancelled.cancel();
        script.probe().await;
    })
    .await;
}

/// The consumer of the full queue may wait for a response of the same peer. Nobody waits for a cancelled request of
/// [`Peer::request_into`].
#[tokio::test(start_paused = true)]
async fn a_paused_reader_continues_for_a_request_that_is_awaited() {
    in_time(async {
        let mut limits = Limits::default();
        (limits.queue_bytes, limits.stall_timeout) = (100, Duration::from_secs(3600));
        let (peer, mut script, queue) = connected(limits);
        let note = json!({"text": "x".repeat(200)});
        script.notify("_note", note.clone()).await;
        script.notify("_note", note.clone()).await;
        settle().await;
        assert!(peer.is_paused());

        let unwanted = peer.request_into(&Ask {}, None, |_| {}).expect("open");
        settle().await;
        assert!(!peer.is_paused(), "a request is awaited");
        unwanted.cancel();
        script.notify("_note", note.clone()).await;
        settle().await;
        assert!(peer.is_paused(), "nobody waits for a cancelled request");

        let call = peer.call::<_, u32>("_other", &json!({}));
        call.cancel();
        script.expect("_ask").await;
        script.expect("$/cancel_request").await;
        let request = script.expect("_other").await;
        script.notify("_note", note).await;
        script.respond(&request, json!(7)).await;
        assert_eq!(call.await.expect("an answer"), 7);
        drop(queue);
    })
    .await;
}

/// A full queue ends in time even if nothing more arrives, also while the reader continues for a request.
#[tokio::test(start_paused = true)]
async fn a_full_queue_ends_without_more_input() {
    in_time(async {
        let mut limits = Limits::default();
        (limits.queue_bytes, limits.stall_timeout) = (100, Duration::from_secs(10));
        for is_awaited in [true, false] {
            let (peer, mut script, mut queue) = connected(limits.clone());
            let call = is_awaited.then(|| peer.request_raw("_ask", None));
            script.notify("_note", json!({"text": "x".repeat(200)})).await;
            settle().await;
            assert_eq!(peer.is_paused(), !is_awaited);
            tokio::time::sleep(Duration::from_secs(11)).await;
            assert!(!peer.is_paused());
            let end = queue.next().now_or_never();
            assert!(matches!(end, Some(Some(Err(Error::Stalled { .. })))), "{is_awaited}: {end:?}");
            drop(call);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_its_cancellation_is_dropped_after_the_grace_period() {
    in_time(async {
        let (peer, mut script, _queue) = connected(Limits::default());
        let id = script.send_request("_stuck", json!({})).await;
        script.probe().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let begun = Instant::now();
        script.notify("$/cancel_request", json!({"requestId": id})).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32800)), "{answer}");
        assert_eq!(begun.elapsed(), peer.limits().cancel_grace);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_too_long_is_replaced() {
    in_time(async {
        let mut limits = Limits::default();
        limits.frame_bytes = 1000;
        let (_peer, mut script, _queue) = connected(limits);
        let answer = script.request("_huge_error", json!({})).await;
        assert_eq!(answer["error"]["code"], -32603);
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("Limits::frame_bytes is 1000"), "{message}");
    })
    .await;
}

/// A response waits until at most half of the hard limit is unwritten, but not at the end of the connection.
#[tokio::test(start_paused = true)]
async fn a_response_does_not_wait_for_space_at_the_end() {
    in_time(async {
        let (ours, theirs) = Transport::memory_with_capacity(1);
        let mut limits = Limits::default();
        (limits.output_bytes, limits.output_bytes_hard) = (100, 1000);
        let (peer, _queue) = start(ours, limits);
        let mut script = ScriptedPeer::over(theirs);
        peer.notify_raw("_note", &"x".repeat(900)).await.expect("open");
        script.send_request("_ready", json!({})).await;
        settle().await;
        let begun = Instant::now();
        peer.close();
        assert!(matches!(peer.closed().await, Closed::Local));
        assert_eq!(begun.elapsed(), peer.limits().cancel_grace / 4, "the handler waited for space");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_sender_waits_for_space_and_lets_other_tasks_run() {
    in_time(async {
        let (ours, theirs) = Transport::memory_with_capacity(1);
        let mut limits = Limits::default();
        limits.output_bytes = 100;
        let (peer, _queue) = start(ours, limits);
        let mut script = ScriptedPeer::over(theirs);
        peer.ready().await.expect("open");
        peer.notify_raw("_first", &"x".repeat(100)).await.expect("there is space");
        assert!(peer.ready().now_or_never().is_none());
        let params = json!({});
        let mut second = Box::pin(peer.notify_raw("_second", &params));
        assert!((&mut second).now_or_never().is_none());
        script.expect("_first").await;
        second.await.expect("there is space again");
        script.expect("_second").await;

        // There is always space, and the other task still has its turns.
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
        for _ in 0..10_000 {
            peer.ready().await.expect("open");
        }
        other.abort();
        assert!(turns.load(Relaxed) >= 10, "{turns:?} turns");
    })
    .await;
}
