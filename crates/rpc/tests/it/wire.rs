//! Connections with a slow peer, a panicking tap, and a response without a result.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{
    Closed, Error, Incoming, Limits, Peer, PeerBuilder, Responder, Service, Tap, TappedFrame, Transport,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use duologue_test_support::{ScriptedPeer, Wire, in_time, in_time_tests};

in_time_tests!(
    six_large_answers_reach_a_peer_that_reads,
    a_panicking_tap_costs_nothing,
    a_panic_in_explain_end_still_ends_waiting_calls,
    a_call_is_withdrawn_once,
    an_answer_without_a_result_is_null,
    an_answer_without_a_result_may_come_late,
    an_id_that_was_never_ours_is_refused,
    a_value_that_panics_when_it_is_encoded_costs_its_message,
    large_requests_are_bounded_by_their_bytes_and_small_ones_pass,
);

const KIB: usize = 1024;

/// Answers everything with the same JSON.
struct Copies(Box<RawValue>);

impl Copies {
    fn of(bytes: usize) -> Self {
        let json = format!("\"{}\"", "c".repeat(bytes));
        Copies(RawValue::from_string(json).expect("JSON"))
    }
}

impl Service for Copies {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        responder.respond(Ok(&self.0));
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// Answers everything with the same JSON, each time from a handler of its own.
struct Handlers(Copies);

impl Service for Handlers {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        let copy = self.0.0.clone();
        responder.spawn(async move { Ok(copy) });
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// Refuses everything.
struct Nothing;

impl Service for Nothing {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// A value that cannot be encoded.
#[derive(serde::Deserialize)]
struct Unencodable;

impl serde::Serialize for Unencodable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("as intended");
    }
}

impl duologue_schema::Request for Unencodable {
    const METHOD: &'static str = "_unencodable";
    type Result = Value;
}

/// Answers `_at_once` on the reader and everything else in a task, with a value that cannot be encoded.
struct AnswersUnencodable;

impl Service for AnswersUnencodable {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_at_once" => responder.respond(Ok(Unencodable)),
            _ => responder.spawn(async { Ok(Unencodable) }),
        }
    }

    fn notification(&self, _: Incoming<'_>) {}
}

async fn a_value_that_panics_when_it_is_encoded_costs_its_message() {
    let (transport, mut script) = Wire::Memory.scripted();
    let mut limits = Limits::default();
    limits.in_flight = 2;
    let peer = PeerBuilder::new(transport).limits(limits).start(|_| AnswersUnencodable);
    for method in ["_at_once", "_in_a_task", "_at_once", "_in_a_task"] {
        let answer = script.request(method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_ne!(answer["error"]["message"], "request limit reached", "{answer}");
    }

    let request = std::panic::AssertUnwindSafe(|| drop(peer.request(&Unencodable)));
    assert!(std::panic::catch_unwind(request).is_err());
    assert_eq!(peer.pending_requests(), 0);
}

async fn six_large_answers_reach_a_peer_that_reads() {
    let (transport, mut script) = Wire::Memory.scripted();
    let size = 14 * KIB * KIB;
    let peer = PeerBuilder::new(transport).start(|_| Copies::of(size));
    assert!(6 * size > peer.limits().output_bytes_hard);
    for _ in 0..6 {
        script.send_request("_copy", json!({})).await;
    }
    for _ in 0..6 {
        assert!(script.next_line().await.expect("an answer").len() > size);
    }
    assert!(!peer.is_closing());
}

/// A peer whose answers hardly fit, with the other end of its wire, which holds next to nothing.
fn hardly_fits() -> (Peer, ScriptedPeer) {
    hardly_fits_for(Copies::of(9 * KIB))
}

fn hardly_fits_for(service: impl Service) -> (Peer, ScriptedPeer) {
    let (ours, theirs) = tokio::io::duplex(KIB);
    let ((reader, writer), (script_reader, script_writer)) =
        (tokio::io::split(ours), tokio::io::split(theirs));
    let mut limits = Limits::default();
    (limits.output_bytes, limits.output_bytes_hard) = (4 * KIB, 16 * KIB);
    limits.stall_timeout = Duration::from_secs(10);
    let peer = PeerBuilder::new(Transport::new(reader, writer)).limits(limits).start(|_| service);
    (peer, ScriptedPeer::new(script_reader, script_writer))
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_is_kept() {
    let (peer, mut script) = hardly_fits();
    for _ in 0..4 {
        script.send_request("_copy", json!({})).await;
    }
    // Always more unread than the limit, for far longer than the patience, but it moves.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(script.next_message().await["result"].is_string());
        script.send_request("_copy", json!({})).await;
    }
    assert!(!peer.is_closing());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_is_given_up() {
    let (peer, mut script) = hardly_fits();
    for _ in 0..4 {
        script.send_request("_copy", json!({})).await;
        // Bytes in the pipe may leave first.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    script.send_request("_copy", json!({})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!peer.is_closing());
    let reason = in_time(peer.closed()).await;
    assert!(matches!(reason, Closed::OutputStalled { .. }), "{reason}");
}

/// Asks for far more than the output may hold, all at once, and reads one answer every eight seconds.
async fn every_answer_arrives(service: impl Service) {
    const REQUESTS: u64 = 60;
    let (peer, script) = hardly_fits_for(service);
    let (reader, writer) = script.into_parts();
    let mut writer = writer.expect("a writer");
    let mut script = ScriptedPeer::new(reader, tokio::io::sink());
    let asks = async {
        for id in 0..REQUESTS {
            let request = json!({"jsonrpc": "2.0", "id": id, "method": "_copy"});
            writer.write_all(format!("{request}\n").as_bytes()).await.expect("it reads");
        }
        writer
    };
    let reads = async {
        let mut seen = Vec::new();
        for _ in 0..REQUESTS {
            tokio::time::sleep(Duration::from_secs(8)).await;
            let answer = script.next_message().await;
            assert!(answer["result"].is_string());
            seen.push(answer["id"].as_u64().expect("a number"));
        }
        seen
    };
    let (_writer, mut seen) = tokio::join!(asks, reads);
    seen.sort_unstable();
    assert_eq!(seen, (0..REQUESTS).collect::<Vec<_>>());
    assert!(!peer.is_closing());
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_reader_wait_for_a_slow_peer() {
    every_answer_arrives(Copies::of(9 * KIB)).await;
}

#[tokio::test(start_paused = true)]
async fn answers_of_handlers_wait_for_a_slow_peer() {
    every_answer_arrives(Handlers(Copies::of(9 * KIB))).await;
}

struct Clumsy;

impl Tap for Clumsy {
    fn frame(&self, _: TappedFrame<'_>) {
        panic!("what was it?")
    }

    fn wait(&self) -> Option<BoxFuture<'_, ()>> {
        panic!("wait for whom?")
    }
}

/// Makes the wire wait until it may go on.
struct Gate(tokio::sync::Semaphore);

impl Tap for Gate {
    fn frame(&self, _: TappedFrame<'_>) {}

    fn wait(&self) -> Option<BoxFuture<'_, ()>> {
        let open = self.0.available_permits() > 0;
        (!open).then(|| async { drop(self.0.acquire().await) }.boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn a_tap_without_room_holds_up_both_directions() {
    let (transport, mut script) = Wire::Memory.scripted();
    let gate = Arc::new(Gate(tokio::sync::Semaphore::new(0)));
    let peer = PeerBuilder::new(transport).tap(gate.clone()).start(|_| Copies::of(3));
    script.send_request("_copy", json!({})).await;
    peer.notify_raw("_told", &json!({})).await.expect("open");
    let silence = tokio::time::timeout(Duration::from_secs(5), script.next_line()).await;
    assert!(silence.is_err(), "nothing is written while the tap has no room: {silence:?}");
    gate.0.add_permits(1);
    let (first, second) = (script.next_message().await, script.next_message().await);
    assert!([&first, &second].iter().any(|said| said["method"] == "_told"), "{first} {second}");
    assert!([&first, &second].iter().any(|said| said["result"] == "ccc"), "{first} {second}");
    assert!(!peer.is_closing());
}

async fn a_panicking_tap_costs_nothing() {
    let (transport, mut script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).tap(Arc::new(Clumsy)).start(|_| Copies::of(3));
    for number in 0..20 {
        assert_eq!(script.request("_copy", json!({})).await["result"], "ccc");
        let (answer, ()) = tokio::join!(peer.call::<_, u64>("_number", &number), async {
            let request = script.expect("_number").await;
            script.respond(&request, request["params"].clone()).await;
        });
        assert_eq!(answer.expect("an answer"), number);
    }
    let stats = peer.stats();
    assert_eq!((stats.dropped, stats.stray_responses, stats.noise), (0, 0, 0));
}

async fn no_idea(_: Closed, _: Peer) -> Closed {
    panic!("no idea")
}

fn no_idea_at_once(_: Closed, _: Peer) -> std::future::Ready<Closed> {
    panic!("no idea at all")
}

async fn a_panic_in_explain_end_still_ends_waiting_calls() {
    for at_once in [false, true] {
        let (transport, mut script) = Wire::Memory.scripted();
        let connection = PeerBuilder::new(transport);
        let connection = match at_once {
            true => connection.explain_end(no_idea_at_once),
            false => connection.explain_end(no_idea),
        };
        let peer = connection.start(|_| Nothing);
        let (_sender, mut queue) = peer.queue::<u8>();
        let call = peer.call::<_, Value>("_wait", &[0]);
        script.expect("_wait").await;
        script.close().await;
        let error = call.await.expect_err("nobody answers");
        assert!(matches!(error, Error::Closed(Closed::EndOfInput)), "{error}");
        assert!(matches!(queue.next().await, Some(Err(Error::Closed(Closed::EndOfInput)))));
        assert!(queue.next().await.is_none());
        assert!(matches!(peer.closed().await, Closed::EndOfInput));
        let late = peer.call::<_, Value>("_wait", &[0]).await.expect_err("it is over");
        assert!(matches!(late, Error::Closed(Closed::EndOfInput)), "{late}");
    }
}

/// A response with neither a result nor an error.
fn bare(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into()})
}

async fn an_answer_without_a_result_is_null() {
    let (transport, mut script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).start(|_| Nothing);
    for _ in 0..20 {
        let call = peer.call::<_, Value>("_ask", &[0]);
        let request = script.expect("_ask").await;
        script.send(bare(request["id"].clone())).await;
        assert_eq!(call.await.expect("an answer"), Value::Null);
        // A result with nothing in it that has to be there.
        let call = peer.call::<_, serde_json::Map<String, Value>>("_ask", &[0]);
        let request = script.expect("_ask").await;
        script.send(bare(request["id"].clone())).await;
        assert!(call.await.expect("an answer").is_empty());
    }
    assert_eq!(peer.stats().stray_responses, 0);
}

async fn an_answer_without_a_result_may_come_late() {
    let (transport, mut script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).answer_noise(true).start(|_| Nothing);
    for round in 1..=20 {
        let call = peer.call::<_, Value>("_ask", &[0]);
        let request = script.expect("_ask").await;
        script.respond(&request, json!(1)).await;
        assert_eq!(call.await.expect("an answer"), json!(1));
        script.send(bare(request["id"].clone())).await;
        // And one that was withdrawn.
        drop(peer.call::<_, Value>("_ask", &[0]));
        let request = script.expect("_ask").await;
        script.expect("$/cancel_request").await;
        script.send(bare(request["id"].clone())).await;
        // Neither gets a response.
        script.probe().await;
        assert_eq!(peer.stats().stray_responses, 2 * round);
    }
}

async fn an_id_that_was_never_ours_is_refused() {
    let (transport, mut script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).start(|_| Nothing);
    let call = peer.call::<_, Value>("_ask", &[0]);
    let request = script.expect("_ask").await;
    for id in [json!(77), json!(0), json!("1"), json!("mine"), json!(-1)] {
        script.send(bare(id.clone())).await;
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
    }
    script.respond(&request, json!(1)).await;
    assert_eq!(call.await.expect("an answer"), json!(1));
    assert_eq!(peer.stats().stray_responses, 0);
}

/// Keeps the large ones until they are let go, and answers the rest.
struct Keeper(mpsc::UnboundedSender<Responder>);

impl Service for Keeper {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_keep" => drop(self.0.send(responder)),
            _ => responder.respond(Ok(true)),
        }
    }

    fn notification(&self, _: Incoming<'_>) {}
}

async fn large_requests_are_bounded_by_their_bytes_and_small_ones_pass() {
    let (transport, mut script) = Wire::Memory.scripted();
    let mut limits = Limits::default();
    limits.in_flight_bytes = 512 * KIB;
    let (sender, mut kept) = mpsc::unbounded_channel();
    let peer = PeerBuilder::new(transport).limits(limits).start(|_| Keeper(sender));
    for round in 1..=10 {
        // One that is alone may be larger than all of them together.
        let large = json!(["l".repeat(if round % 2 == 0 { 600 * KIB } else { 400 * KIB })]);
        let first = script.send_request("_keep", large.clone()).await;
        let refused = script.request("_keep", large.clone()).await;
        assert_eq!(refused["error"]["code"], -32603, "{refused}");
        let message = refused["error"]["message"].as_str().expect("a message");
        assert!(message.contains("in flight"), "{message}");
        assert_eq!(peer.stats().refused, round);
        for _ in 0..20 {
            assert_eq!(script.request("_small", json!([0])).await["result"], true);
        }
        kept.recv().await.expect("the first one").respond(Ok(round));
        let answer = script.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]), (&json!(first), &json!(round)));
    }
    assert!(kept.try_recv().is_err());
}

/// Cancelled twice and dropped: the peer hears of it once.
async fn a_call_is_withdrawn_once() {
    let (transport, mut script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).start(|_| Nothing);
    let call = peer.request_raw("_slow", None);
    call.cancel();
    call.cancel();
    drop(call);
    let id = script.expect("_slow").await["id"].clone();
    let withdrawn = script.expect("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], id);
    script.probe().await;
    assert_eq!(peer.pending_requests(), 0);
}

/// A peer that is gone on both pipes: the writer that found it out does not keep the end waiting.
#[tokio::test(start_paused = true)]
async fn a_broken_pipe_does_not_hold_up_the_end() {
    let (transport, script) = Wire::Memory.scripted();
    let peer = PeerBuilder::new(transport).start(|_| Nothing);
    drop(script);
    let call = peer.request_raw("_lost", None);
    let begun = tokio::time::Instant::now();
    peer.closed().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(matches!(call.await, Err(Error::Closed(Closed::EndOfInput))));
}
