//! What both sides do with what they are asked, and the ledger of what was said and heard.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use duologue_schema::Error as WireError;
use serde::{Deserialize, Serialize};
use shuttle::future;

use crate::peer::Peer;
use crate::queue::QueueSender;
use crate::service::{Incoming, Responder, Service};

/// A request whose handler sends that many items before it answers.
#[derive(Serialize, Deserialize)]
pub(super) struct Turn(pub(super) u64);

impl duologue_schema::Request for Turn {
    const METHOD: &'static str = "_turn";
    type Result = u64;
}

/// The stream that a side's reader feeds, if there is one.
#[derive(Clone, Default)]
pub(super) struct Streams(Arc<Mutex<Option<QueueSender<u64>>>>);

impl Streams {
    pub(super) fn register(&self, sender: &QueueSender<u64>) {
        *self.0.lock().expect("a lock") = Some(sender.clone());
    }
}

/// What both sides said and heard. Its own locks are no part of the model.
#[derive(Default)]
pub(super) struct Ledger {
    /// By side and caller: numbers given out, sent, heard last.
    notes: Mutex<HashMap<(usize, u64), [u64; 3]>>,
    streams: [Streams; 2],
    /// Requests that reached a service, and responders that are gone.
    requests: AtomicU64,
    answered: AtomicU64,
}

impl Ledger {
    pub(super) fn next(&self, side: usize, caller: u64) -> u64 {
        let mut notes = self.notes.lock().expect("a lock");
        let [given, ..] = notes.entry((side, caller)).or_default();
        *given += 1;
        *given
    }

    pub(super) fn sent(&self, side: usize, caller: u64) {
        self.notes.lock().expect("a lock").entry((side, caller)).or_default()[1] += 1;
    }

    fn heard(&self, side: usize, caller: u64, number: u64) {
        let mut notes = self.notes.lock().expect("a lock");
        let [_, _, heard] = notes.entry((side, caller)).or_default();
        assert_eq!(number, *heard + 1, "a note of {caller} was lost or came twice");
        *heard = number;
    }

    pub(super) fn all_heard(&self) {
        for (caller, [_, sent, heard]) in &*self.notes.lock().expect("a lock") {
            assert_eq!(sent, heard, "{caller:?}");
        }
    }

    pub(super) fn streams(&self, side: usize) -> Streams {
        self.streams[side].clone()
    }

    /// Every handler has come to its end.
    pub(super) fn settled(&self) {
        assert_eq!(self.requests.load(Relaxed), self.answered.load(Relaxed));
    }
}

/// Counts a handler's end, however it comes.
struct Ends(Arc<Ledger>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Relaxed);
    }
}

pub(super) struct Side {
    peer: Peer,
    side: usize,
    ledger: Arc<Ledger>,
}

impl Side {
    pub(super) fn new(peer: &Peer, side: usize, ledger: Arc<Ledger>) -> Self {
        Side { peer: peer.clone(), side, ledger }
    }
}

impl Service for Side {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        self.ledger.requests.fetch_add(1, Relaxed);
        let ends = Ends(self.ledger.clone());
        let params = request.params.map_or("[0]", |params| params.get());
        let number = serde_json::from_str::<Vec<u64>>(params).map(|numbers| numbers[0]).unwrap_or_default();
        let peer = self.peer.clone();
        match request.method {
            "_echo" => responder.respond(Ok(number)),
            "_back" => responder.spawn(async move {
                let _ends = ends;
                let echoed = peer.call::<_, u64>("_echo", &[number]).await;
                echoed.map_err(|error| WireError::internal(error.to_string()))
            }),
            // Until it is cancelled; then with a result, with an error, or not at all.
            "_wait" => {
                let cancellation = responder.cancellation().clone();
                responder.spawn(async move {
                    let _ends = ends;
                    cancellation.cancelled().await;
                    match number {
                        0 => Ok(number),
                        _ => std::future::pending().await,
                    }
                });
            }
            "_turn" => responder.spawn(async move {
                let _ends = ends;
                let items: u64 = 5;
                for item in 1..=items {
                    if peer.notify_raw("_item", &[item]).await.is_err() {
                        break;
                    }
                    future::yield_now().await;
                }
                Ok(items)
            }),
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        let params = notification.params.map_or("[]", |params| params.get());
        let numbers: Vec<u64> = serde_json::from_str(params).expect("numbers");
        match (notification.method, numbers.as_slice()) {
            ("_note", [caller, number]) => self.ledger.heard(1 - self.side, *caller, *number),
            ("_item", [item]) => {
                let stream = self.ledger.streams[self.side].0.lock().expect("a lock").clone();
                if let Some(stream) = stream {
                    let _ = stream.push(*item, notification.wire_bytes);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}
