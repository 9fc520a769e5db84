//! The service of both sides, and the ledger of their messages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use duologue_schema::Error as WireError;
use serde::{Deserialize, Serialize};
use shuttle::future;

use crate::peer::Peer;
use crate::queue::QueueSender;
use crate::service::{Incoming, Responder, Service};

/// A request whose handler sends items before it responds.
#[derive(Serialize, Deserialize)]
pub(super) struct ItemsRequest {
    pub(super) items: u64,
}

impl duologue_schema::Request for ItemsRequest {
    const METHOD: &'static str = "_turn";
    type Result = u64;
}

/// The queue that the reader of a side feeds, if there is one.
#[derive(Clone, Default)]
pub(super) struct ItemStream(Arc<Mutex<Option<QueueSender<u64>>>>);

impl ItemStream {
    pub(super) fn register(&self, sender: &QueueSender<u64>) {
        *self.0.lock().expect("a lock") = Some(sender.clone());
    }
}

/// The messages that both sides sent and received. Its locks are not part of the model.
#[derive(Default)]
pub(super) struct NoteLedger {
    /// By side and caller: the last number assigned, the count sent, the last number received.
    notes: Mutex<HashMap<(usize, u64), [u64; 3]>>,
    streams: [ItemStream; 2],
    /// True if every `_wait` ends at its cancellation. Otherwise some end only when they are dropped.
    gentle: bool,
    /// The number of handlers that began, and of those that ended.
    requests: AtomicU64,
    answered: AtomicU64,
}

impl NoteLedger {
    pub(super) fn new(gentle: bool) -> Self {
        NoteLedger { gentle, ..NoteLedger::default() }
    }

    pub(super) fn next(&self, side: usize, caller: u64) -> u64 {
        let mut notes = self.notes.lock().expect("a lock");
        let [given, ..] = notes.entry((side, caller)).or_default();
        *given += 1;
        *given
    }

    pub(super) fn sent(&self, side: usize, caller: u64) {
        self.notes.lock().expect("a lock").entry((side, caller)).or_default()[1] += 1;
    }

    fn receive(&self, side: usize, caller: u64, number: u64) {
        let mut notes = self.notes.lock().expect("a lock");
        let [_, _, received] = notes.entry((side, caller)).or_default();
        assert_eq!(number, *received + 1, "a note of {caller} was lost or duplicated");
        *received = number;
    }

    pub(super) fn check_all_received(&self) {
        for (caller, [_, sent, received]) in &*self.notes.lock().expect("a lock") {
            assert_eq!(sent, received, "{caller:?}");
        }
    }

    pub(super) fn streams(&self, side: usize) -> ItemStream {
        self.streams[side].clone()
    }

    /// Checks that every handler has ended.
    pub(super) fn check_all_ended(&self) {
        assert_eq!(self.requests.load(Relaxed), self.answered.load(Relaxed));
    }
}

/// Counts the end of a handler when it is dropped.
struct Ends(Arc<NoteLedger>);

impl Ends {
    fn of(ledger: &Arc<NoteLedger>) -> Self {
        ledger.requests.fetch_add(1, Relaxed);
        Ends(ledger.clone())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Relaxed);
    }
}

pub(super) struct ModelService {
    peer: Peer,
    side: usize,
    ledger: Arc<NoteLedger>,
}

impl ModelService {
    pub(super) fn new(peer: &Peer, side: usize, ledger: Arc<NoteLedger>) -> Self {
        ModelService { peer: peer.clone(), side, ledger }
    }
}

impl Service for ModelService {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let ends = Ends::of(&self.ledger);
        let params = request.params.map_or("[0]", |params| params.get());
        let number = serde_json::from_str::<[u64; 1]>(params).map_or(0, |[number]| number);
        let peer = self.peer.clone();
        match request.method {
            "_echo" => responder.respond(Ok(number)),
            "_back" => responder.spawn(async move {
                let _ends = ends;
                let echoed = peer.call::<_, u64>("_echo", &[number]).await;
                echoed.map_err(|error| WireError::internal(error.to_string()))
            }),
            // Runs until it is cancelled, or longer.
            "_wait" => {
                let cancellation = responder.cancellation().clone();
                let gentle = self.ledger.gentle || number == 0;
                responder.spawn(async move {
                    let _ends = ends;
                    cancellation.cancelled().await;
                    if gentle { Ok(number) } else { std::future::pending().await }
                });
            }
            // As in the SDKs, a sender that waits for space is cancelled at the end.
            "_turn" => {
                let cancellation = responder.cancellation().clone();
                responder.spawn(async move {
                    let _ends = ends;
                    let items: u64 = 5;
                    for item in 1..=items {
                        let item = [item];
                        let sent = peer.notify_raw("_item", &item);
                        if !matches!(cancellation.run_until_cancelled(sent).await, Some(Ok(()))) {
                            break;
                        }
                        future::yield_now().await;
                    }
                    Ok(items)
                });
            }
            other => responder.method_not_found(other),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        let params = notification.params.map_or("[]", |params| params.get());
        let numbers: Vec<u64> = serde_json::from_str(params).expect("numbers");
        match (notification.method, numbers.as_slice()) {
            ("_note", [caller, number]) => self.ledger.receive(1 - self.side, *caller, *number),
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
