//! Our requests: registered, written, answered, withdrawn, dropped, closed.
//!
//! The peer answers as soon as the line is whole, before the writer knows that it is written: nobody is
//! faster. `ResponseFuture` waits on a `oneshot`, which loom sees as one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loom::thread;
use serde_json::value::RawValue;

use super::{block_on, every_order, patient, shared, writer};
use crate::connection::ConnectionState;
use crate::error::{Closed, Error};
use crate::peer::{Peer, ResponseFuture};
use crate::pending::RawResponse;

/// What the other side of the wire saw and did.
#[derive(Default)]
struct PeerCounts {
    requests: AtomicU64,
    withdrawals: AtomicU64,
    /// Answers that found their request.
    answers: AtomicU64,
}

fn peer(shared: &Arc<ConnectionState>) -> Peer {
    Peer { shared: shared.clone() }
}

fn ask(shared: &Arc<ConnectionState>) -> ResponseFuture<()> {
    peer(shared).call("_ask", &())
}

/// A peer that answers what it is asked at once.
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

/// The end of a connection, in the order of `End`.
fn close(shared: &ConnectionState) {
    shared.close(Closed::EndOfInput);
    shared.pending.close(&Closed::EndOfInput);
    shared.budget.close_all(&Closed::EndOfInput);
    shared.outbox.close(Closed::EndOfInput);
}

#[test]
fn an_answer_never_comes_too_early() {
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

/// Rule: dropping a call before its answer says so to the peer, once; after it, never.
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
        // Withdrawn and answered is what crosses on the wire; neither is what must not be.
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

/// `deliver` is called once if the request was taken, and never if it was refused.
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

/// A call that is dropped while the connection ends and while it is answered.
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
