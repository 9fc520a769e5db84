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
pub(super) struct ItemsRequest {
    pub(super) items: u64,
}

impl duologue_schema::Request for ItemsRequest {
    const METHOD: &'static str = "_turn";
    type Result = u64;
}

/// The stream that a side's reader feeds, if there is one.
#[derive(Clone, Default)]
pub(super) struct ItemStream(Arc<Mutex<Option<QueueSender<u64>>>>);

impl ItemStream {
    pub(super) fn register(&self, sender: &QueueSender<u64>) {
        *self.0.lock().expect("a lock") = Some(sender.clone());
    }
}

/// What both sides said and heard. Its own locks are no part of the model.
#[derive(Default)]
pub(super) struct NoteLedger {
    /// By side and caller: numbers given out, sent, heard last.
    notes: Mutex<HashMap<(usize, u64), [u64; 3]>>,
    streams: [ItemStream; 2],
    /// Whether every `_wait` ends with its cancellation; else some only when they are dropped.
    gentle: bool,
    /// Handlers that began, and that are gone.
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

    pub(super) fn streams(&self, side: usize) -> ItemStream {
        self.streams[side].clone()
    }

    /// Every handler has come to its end.
    pub(super) fn settled(&self) {
        assert_eq!(self.requests.load(Relaxed), self.answered.load(Relaxed));
    }
}

/// Counts a handler's end, however it comes.
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
            // Until it is cancelled, and some longer than that.
            "_wait" => {
                let cancellation = responder.cancellation().clone();
                let gentle = self.ledger.gentle || number == 0;
                responder.spawn(async move {
                    let _ends = ends;
                    cancellation.cancelled().await;
                    if gentle { Ok(number) } else { std::future::pending().await }
                });
            }
            // As the SDKs do it: who waits for room hears of the end.
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
