//! The peer's requests: admitted, cancelled, answered once, and their ids free again.

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

/// A request larger than those that are bounded by their number alone.
const LARGE: usize = 1 << 20;

/// What the reader does with a request, up to its handler.
fn admit(shared: &Arc<ConnectionState>) -> Option<Responder> {
    let (id, cancellation) = (RequestId::from(7u64), CancellationToken::new());
    let admitted = shared.in_flight.lock_unpoisoned().admit(&id, &cancellation, LARGE, &shared.limits);
    admitted.ok().map(|()| Responder::new(shared.clone(), id, cancellation))
}

/// What it does with a `$/cancel_request`.
fn cancel(shared: &ConnectionState) -> bool {
    let token = shared.in_flight.lock_unpoisoned().cancellation(&RequestId::from(7u64));
    token.inspect(CancellationToken::cancel).is_some()
}

/// The peer may use an id again as soon as it has read the answer.
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

/// Answered by its handler or dropped with it, cancelled or not: one answer, and the token that was
/// cancelled is the handler's.
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
        // What was answered before the end is written; the end waits for handlers before it comes.
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
