//! R9 without a process: both pipes are full, and nobody reads before everything is sent.
//!
//! `processes/leaks.rs` has the same with an agent of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use duologue_rpc::{Incoming, Peer, PeerBuilder, Responder, Service, Transport};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::pipes::narrow;
use duologue_test_support::{in_time, measured};

const FRAMES: usize = 100;
const BYTES: usize = 100_000;
/// The scenario of R9 asks for 5 s, of a release build; this is a debug build on a machine that is busy.
const AT_MOST: Duration = Duration::from_secs(15);

#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl Service for Counts {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match request.method {
            "_heard" => responder.respond(Ok(self.0.load(Relaxed))),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, _: Incoming<'_>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn text() -> serde_json::Value {
    json!({"text": "x".repeat(BYTES)})
}

/// Uses one thread, so that neither side reads a byte before both have sent 10 MB.
#[tokio::test]
async fn both_of_ours() {
    let (there, from_here) = narrow();
    let (here, from_there) = narrow();
    let peers = [(here, from_here), (there, from_there)]
        .map(|(input, output)| PeerBuilder::new(Transport::new(input, output)).start(|_| Counts::default()));
    let begun = Instant::now();
    let frame = serde_json::value::to_raw_value(&text()).expect("JSON");
    for peer in &peers {
        for _ in 0..FRAMES {
            peer.notify_now(&Said(frame.clone())).expect("open");
        }
    }
    let heard = |peer: &Peer| peer.call::<_, usize>("_heard", &());
    let (left, right) = in_time(async { tokio::join!(heard(&peers[0]), heard(&peers[1])) }).await;
    assert_eq!((left.expect("an answer"), right.expect("an answer")), (FRAMES, FRAMES));
    within(begun, "both sides ours");
}

/// A peer that says 10 MB before it reads, to one of ours that has 10 MB to say and waits for room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_speaks_before_it_reads() {
    let (input, mut theirs) = narrow();
    let (heard, output) = narrow();
    let counts = Counts::default();
    let peer = PeerBuilder::new(Transport::new(input, output)).start(|_| counts.clone());
    let begun = Instant::now();
    let speaking = tokio::spawn({
        let peer = peer.clone();
        async move {
            for _ in 0..FRAMES {
                peer.notify_raw("_said", &text()).await.expect("open");
            }
            peer.flush().await.expect("open");
        }
    });
    let line = format!("{}\n", json!({"jsonrpc": "2.0", "method": "_said", "params": text()}));
    in_time(async {
        for _ in 0..FRAMES {
            theirs.write_all(line.as_bytes()).await.expect("ours reads");
        }
        let (mut heard, mut line) = (BufReader::new(heard), Vec::new());
        for _ in 0..FRAMES {
            line.clear();
            heard.read_until(b'\n', &mut line).await.expect("a pipe");
            assert!(line.len() > BYTES && line.ends_with(b"}\n"));
        }
        speaking.await.expect("no panic");
    })
    .await;
    assert_eq!(counts.0.load(Relaxed), FRAMES);
    drop(theirs);
    within(begun, "a peer that reads last");
}

fn within(begun: Instant, what: &str) {
    let took = begun.elapsed();
    assert!(took <= AT_MOST, "{what}: {took:?}");
    measured(format_args!("{what}: 10 MB each way in {:.2} s", took.as_secs_f32()));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Said(Box<serde_json::value::RawValue>);

impl duologue_schema::Notification for Said {
    const METHOD: &'static str = "_said";
}
