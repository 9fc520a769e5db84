//! Requests of the peer: admission, cancellation, a single response, and reuse of their ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use duologue_schema::RequestId;
use loom::thread;
use tokio_util::sync::CancellationToken;

use super::{every_order, patient, shared, writer};
use crate::connection::ConnectionState;
use crate::error::Closed;
use crate::service::Responder;
use crate::sync::Lock;

/// The size of a request that counts by its bytes.
const LARGE: usize = 1 << 20;

/// Admits a request, as the reader does before it calls the handler.
fn admit(shared: &Arc<ConnectionState>) -> Option<Responder> {
    let (id, cancellation) = (RequestId::from(7u64), CancellationToken::new());
    let admitted = shared.in_flight.lock_unpoisoned().admit(&id, &cancellation, LARGE, &shared.limits);
    admitted.ok().map(|()| Responder::new(shared.clone(), id, cancellation))
}

/// Handles a `$/cancel_request`, as the reader does.
fn cancel(shared: &ConnectionState) -> bool {
    let token = shared.in_flight.lock_unpoisoned().cancellation(&RequestId::from(7u64));
    token.inspect(CancellationToken::cancel).is_some()
}

/// The peer may reuse an id as soon as it has read the response.
#[test]
fn an_id_is_free_before_its_answer_is_seen() {
    every_order("an answer, seen at once, against a cancellation", || {
        let shared = shared(patient());
        let answers = Arc::new(AtomicU64::new(0));
        let writer = writer(&shared, {
            let (shared, answers) = (shared.clone(), answers.clone());
            move |_| {
                if answers.fetch_add(1, Relaxed) == 0 {
                    admit(&shared).expect("the id is free").respond(Ok(()));
                }
            }
        });
        let responder = admit(&shared).expect("room");
        let cancelling = thread::spawn({
            let shared = shared.clone();
            move || cancel(&shared)
        });
        responder.respond(Ok(()));
        cancelling.join().expect("no panic");
        while answers.load(Relaxed) < 2 {
            thread::yield_now();
        }
        shared.outbox.finish();
        writer.join().expect("no panic");
        assert_eq!(answers.load(Relaxed), 2);
        assert_eq!(shared.in_flight.lock_unpoisoned().bytes, 0);
    });
}

/// A request has one response, whether the handler responds or is dropped. A cancellation reaches the token
/// of the handler.
#[test]
fn a_request_has_one_answer() {
    every_order("an answer or a drop, a cancellation and the end", || {
        let shared = shared(patient());
        let answers = Arc::new(AtomicU64::new(0));
        let writer = writer(&shared, {
            let answers = answers.clone();
            move |_| {
                answers.fetch_add(1, Relaxed);
            }
        });
        let responder = admit(&shared).expect("room");
        let handler = thread::spawn(move || {
            let cancelled = responder.cancellation().is_cancelled();
            if cancelled {
                drop(responder);
            } else {
                responder.respond(Ok(()));
            }
            cancelled
        });
        let cancelled = cancel(&shared);
        // A response before the end is written, because the end waits for handlers.
        let seen = handler.join().expect("no panic");
        assert!(cancelled || !seen);
        shared.outbox.finish();
        writer.join().expect("no panic");
        assert_eq!(answers.load(Relaxed), 1);
        assert!(admit(&shared).is_some());
    });
}

#[test]
fn the_end_does_not_keep_a_request() {
    every_order("an answer against the end of the output", || {
        let shared = shared(patient());
        let answers = Arc::new(AtomicU64::new(0));
        let writer = writer(&shared, {
            let answers = answers.clone();
            move |_| {
                answers.fetch_add(1, Relaxed);
            }
        });
        let responder = admit(&shared).expect("room");
        let handler = thread::spawn(move || responder.respond(Ok(())));
        shared.close(Closed::EndOfInput);
        shared.outbox.close(Closed::EndOfInput);
        handler.join().expect("no panic");
        writer.join().expect("no panic");
        assert!(answers.load(Relaxed) <= 1);
        assert_eq!(shared.in_flight.lock_unpoisoned().bytes, 0);
    });
}
