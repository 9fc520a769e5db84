//! Our requests: registration, writing, responses, withdrawal, drop and the end.
//!
//! The peer responds as soon as a line is complete, before the writer knows that it is written, which is the
//! earliest possible time. `ResponseFuture` waits on a `oneshot`, which is a single step for loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loom::thread;
use serde_json::value::RawValue;

use super::{block_on, every_order, patient, shared, writer};
use crate::connection::ConnectionState;
use crate::error::{Closed, Error};
use crate::peer::{Peer, ResponseFuture};
use crate::pending::RawResponse;

/// The counters of the peer.
#[derive(Default)]
struct PeerCounts {
    requests: AtomicU64,
    withdrawals: AtomicU64,
    /// The responses that resolved a request.
    answers: AtomicU64,
}

fn peer(shared: &Arc<ConnectionState>) -> Peer {
    Peer { shared: shared.clone() }
}

fn ask(shared: &Arc<ConnectionState>) -> ResponseFuture<()> {
    peer(shared).call("_ask", &())
}

/// Starts a peer that responds to every request at once.
fn answering(shared: &Arc<ConnectionState>) -> (Arc<PeerCounts>, thread::JoinHandle<()>) {
    let counts = Arc::new(PeerCounts::default());
    let writer = writer(shared, {
        let (shared, counts) = (shared.clone(), counts.clone());
        move |line| {
            if line.contains("$/cancel_request") {
                counts.withdrawals.fetch_add(1, Relaxed);
                return;
            }
            counts.requests.fetch_add(1, Relaxed);
            answer(&shared, counts.requests.load(Relaxed), &counts);
        }
    });
    (counts, writer)
}

fn answer(shared: &ConnectionState, id: u64, counts: &PeerCounts) {
    let id = RawValue::from_string(id.to_string()).expect("a number");
    if shared.pending.resolve(&id, RawResponse::Result(RawValue::NULL)) {
        counts.answers.fetch_add(1, Relaxed);
    }
}

/// Ends a connection in the order of `EndGuard`.
fn close(shared: &ConnectionState) {
    shared.close(Closed::EndOfInput);
    shared.pending.close(&Closed::EndOfInput);
    shared.budget.close_all(&Closed::EndOfInput);
    shared.outbox.close(Closed::EndOfInput);
}

#[test]
fn a_response_never_arrives_before_its_request_is_registered() {
    every_order("two requests, answered at once", || {
        let shared = shared(patient());
        let (counts, writer) = answering(&shared);
        let other = thread::spawn({
            let shared = shared.clone();
            move || block_on(ask(&shared))
        });
        assert!(block_on(ask(&shared)).is_ok());
        assert!(other.join().expect("no panic").is_ok());
        assert_eq!(shared.pending.len(), 0);
        shared.outbox.finish();
        writer.join().expect("no panic");
        assert_eq!(counts.answers.load(Relaxed), 2);
    });
}

#[test]
fn a_request_is_answered_or_closed() {
    every_order("a request against its answer and the end", || {
        let shared = shared(patient());
        let (counts, writer) = answering(&shared);
        let ending = thread::spawn({
            let shared = shared.clone();
            move || close(&shared)
        });
        let outcome = block_on(ask(&shared));
        let answered = counts.answers.load(Relaxed);
        match outcome {
            Ok(()) => assert_eq!(answered, 1),
            Err(Error::Closed(Closed::EndOfInput)) => assert_eq!(answered, 0),
            Err(other) => panic!("{other}"),
        }
        ending.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(shared.pending.len(), 0);
    });
}

/// Dropping a call before its response notifies the peer once. After the response it does not.
#[test]
fn a_dropped_call_is_withdrawn_once() {
    every_order("drop of a call against its answer", || {
        let shared = shared(patient());
        let (counts, writer) = answering(&shared);
        let call = ask(&shared);
        let dropping = thread::spawn(move || {
            call.cancel();
            drop(call);
        });
        dropping.join().expect("no panic");
        shared.outbox.finish();
        writer.join().expect("no panic");
        let [asked, withdrawn, answered] =
            [&counts.requests, &counts.withdrawals, &counts.answers].map(|count| count.load(Relaxed));
        assert_eq!(asked, 1);
        // A withdrawal and a response can cross on the wire, but one of them must happen.
        assert!(withdrawn <= 1 && withdrawn + answered >= 1, "{withdrawn} {answered}");
        assert_eq!(shared.pending.len(), 0);
    });
}

#[test]
fn two_threads_withdraw_a_request_once() {
    every_order("two withdrawals of one request against its answer", || {
        let shared = shared(patient());
        let delivered = Arc::new(AtomicU64::new(0));
        let asked = {
            let delivered = delivered.clone();
            let deliver = move |_| {
                delivered.fetch_add(1, Relaxed);
            };
            Arc::new(peer(&shared).request_into(&Ask, None, deliver).expect("open"))
        };
        let (counts, writer) = answering(&shared);
        let other = thread::spawn({
            let asked = asked.clone();
            move || asked.cancel()
        });
        asked.cancel();
        other.join().expect("no panic");
        shared.outbox.finish();
        writer.join().expect("no panic");
        assert_eq!(counts.answers.load(Relaxed), 1);
        assert_eq!(delivered.load(Relaxed), 1);
        assert!(counts.withdrawals.load(Relaxed) <= 1);
    });
}

/// `deliver` is called once if the request was accepted, and never if it was rejected.
#[test]
fn a_delivery_is_made_once() {
    every_order("request_into against its answer and the end", || {
        let shared = shared(patient());
        let (_heard, writer) = answering(&shared);
        let ending = thread::spawn({
            let shared = shared.clone();
            move || close(&shared)
        });
        let delivered = Arc::new(AtomicU64::new(0));
        let deliver = {
            let delivered = delivered.clone();
            move |_| {
                delivered.fetch_add(1, Relaxed);
            }
        };
        let asked = peer(&shared).request_into(&Ask, None, deliver);
        ending.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(delivered.load(Relaxed), u64::from(asked.is_ok()));
        assert_eq!(shared.pending.len(), 0);
    });
}

/// A call is dropped while the connection ends and while its response arrives.
#[test]
fn a_dropped_call_leaves_nothing() {
    every_order("drop of a call against its answer and the end", || {
        let shared = shared(patient());
        let (counts, writer) = answering(&shared);
        let ending = thread::spawn({
            let shared = shared.clone();
            move || close(&shared)
        });
        drop(ask(&shared));
        ending.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(shared.pending.len(), 0);
        assert!(counts.withdrawals.load(Relaxed) <= counts.requests.load(Relaxed));
    });
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Ask;

impl duologue_schema::Request for Ask {
    const METHOD: &'static str = "_ask";
    type Result = ();
}
