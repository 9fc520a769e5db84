//! Our requests that wait for their response.

use std::panic::AssertUnwindSafe;

use duologue_schema::Error as WireError;
use serde_json::value::RawValue;

use crate::error::{Closed, Error};
use crate::pending_table::PendingTable;
use crate::queue::QueueId;
use crate::sync::{Lock, Mutex};

/// The end of a request, as the reader sees it.
pub(crate) enum RawResponse<'a> {
    Result(&'a RawValue),
    Error(WireError),
    Unreadable(serde_json::Error),
    Closed(Closed),
}

/// Receives the response. The reader calls it in the order of the wire, so it must not block.
pub(crate) type Deliver = Box<dyn FnOnce(RawResponse<'_>) + Send>;

struct PendingRequest {
    deliver: Deliver,
    /// The queue that the response ends, if it ends one.
    stream: Option<QueueId>,
    /// True after `$/cancel_request` was sent. The peer responds all the same.
    withdrawn: bool,
    /// True if a caller waits for the response.
    wanted: bool,
}

/// The table of our requests.
#[derive(Default)]
pub(crate) struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    table: PendingTable<u64, PendingRequest, Closed>,
    last_id: u64,
}

impl Pending {
    /// Adds a request. Returns its id, and true if no other request waits. Called before the request is sent.
    pub(crate) fn register(&self, stream: Option<QueueId>, deliver: Deliver) -> Result<(u64, bool), Error> {
        let mut state = self.0.lock_unpoisoned();
        let id = state.last_id + 1;
        let request = PendingRequest { deliver, stream, withdrawn: false, wanted: true };
        let inserted = state.table.insert(id, request);
        if inserted.is_ok() {
            state.last_id = id;
        }
        let is_only = state.table.len() == 1;
        drop(state);
        // A rejected callback is dropped here, outside the lock: it may own a `ResponseFuture`, whose drop takes it.
        inserted.map(|_| (id, is_only)).map_err(|(reason, _)| Error::Closed(reason))
    }

    /// Removes a request. Returns false if it has its response already.
    pub(crate) fn forget(&self, id: u64) -> bool {
        let request = self.0.lock_unpoisoned().table.remove(&id);
        request.is_some()
    }

    /// Returns a guard that removes a request, for the time in which user code may panic.
    pub(crate) fn forget_on_drop(&self, id: u64) -> impl Drop {
        struct Registered<'a>(&'a Pending, u64);
        impl Drop for Registered<'_> {
            fn drop(&mut self) {
                self.0.forget(self.1);
            }
        }
        Registered(self, id)
    }

    /// Marks a request as withdrawn, and as unwanted unless `wanted` is true. Returns true if the peer has to be
    /// notified: the request has no response yet and was not withdrawn before.
    pub(crate) fn withdraw(&self, id: u64, wanted: bool) -> bool {
        let mut state = self.0.lock_unpoisoned();
        let Some(request) = state.table.get_mut(&id) else { return false };
        request.wanted &= wanted;
        !std::mem::replace(&mut request.withdrawn, true)
    }

    /// Returns true if the id was ever used for one of our requests.
    pub(crate) fn was_ours(&self, id: &RawValue) -> bool {
        id.get().parse::<u64>().is_ok_and(|id| (1..=self.0.lock_unpoisoned().last_id).contains(&id))
    }

    /// Passes a response to its request. Returns false if no such request waits.
    pub(crate) fn resolve(&self, id: &RawValue, response: RawResponse<'_>) -> bool {
        // The JSON texts `"1"` and `1.0` are no `u64`, so they are not ours.
        let Ok(number) = id.get().parse::<u64>() else { return false };
        let request = self.0.lock_unpoisoned().table.remove(&number);
        let Some(request) = request else { return false };
        (request.deliver)(response);
        true
    }

    /// Returns true if a caller waits for a response that does not end `stream`. A request whose stream has ended
    /// does not count, because nobody waits for it.
    pub(crate) fn any_besides(&self, stream: QueueId, alive: &dyn Fn(QueueId) -> bool) -> bool {
        let state = self.0.lock_unpoisoned();
        let waits = |request: &PendingRequest| request.stream.is_none_or(|fed| fed != stream && alive(fed));
        state.table.values().any(|request| request.wanted && waits(request))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock_unpoisoned().table.len()
    }

    /// Fails all requests that wait, and all later ones.
    pub(crate) fn close(&self, reason: &Closed) {
        let requests = self.0.lock_unpoisoned().table.close(reason.clone());
        for request in requests {
            let deliver = AssertUnwindSafe(|| (request.deliver)(RawResponse::Closed(reason.clone())));
            if std::panic::catch_unwind(deliver).is_err() {
                tracing::error!("a callback for a response panicked at the end of the connection");
            }
        }
    }
}

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::{Incoming, PeerBuilder, Responder, Service, Transport};

    struct Silent;

    impl Service for Silent {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            responder.spawn_with(|responder| async move {
                responder.cancellation().cancelled().await;
            });
        }

        fn notification(&self, _: Incoming<'_>) {}
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Ask {}

    impl duologue_schema::Request for Ask {
        const METHOD: &'static str = "_ask";
        type Result = Value;
    }

    /// Runs on a thread of its own, because a deadlock would block the test forever.
    #[test]
    fn a_rejected_callback_is_dropped_outside_the_lock() {
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (ours, theirs) = Transport::memory();
                let _other = PeerBuilder::new(theirs).start(|_| Silent);
                let peer = PeerBuilder::new(ours).start(|_| Silent);
                let pending = peer.call::<_, Value>("_ask", &());
                peer.close();
                peer.closed().await;
                let rejected = peer.request_into(&Ask {}, None, move |_| drop(pending));
                assert!(matches!(rejected, Err(Error::Closed(_))), "{rejected:?}");
            });
            let _ = done.send(());
        });
        finished.recv_timeout(Duration::from_secs(30)).expect("the drop of the callback deadlocked");
    }

    #[test]
    fn only_the_token_of_a_request_resolves_it() {
        let pending = Pending::default();
        assert_eq!(pending.register(None, Box::new(|_| {})).unwrap(), (1, true));
        let resolves = |id: &str| {
            let id = RawValue::from_string(id.to_owned()).unwrap();
            pending.resolve(&id, RawResponse::Result(RawValue::NULL))
        };
        assert_eq!(
            ["\"1\"", "1.0", "1e0", "-1", "null", "1", "1"].map(resolves),
            [false, false, false, false, false, true, false]
        );
    }

    /// Only a request that somebody awaits, and that does not feed the queue or feeds one that has ended, keeps the
    /// reader from pausing.
    #[test]
    fn a_request_is_awaited_by_its_caller_alone() {
        let pending = Pending::default();
        let (one, two) = (QueueId(1), QueueId(2));
        let any = |stream, ended: Option<QueueId>| pending.any_besides(stream, &|queue| Some(queue) != ended);
        assert!(!any(one, None));
        assert_eq!(pending.register(Some(one), Box::new(|_| {})).unwrap(), (1, true));
        assert_eq!([any(one, None), any(two, None), any(two, Some(one))], [false, true, false]);
        assert!(pending.withdraw(1, true) && any(two, None));
        assert!(!pending.withdraw(1, false) && !any(two, None));
        assert_eq!(pending.register(None, Box::new(|_| {})).unwrap(), (2, false));
        assert_eq!([any(one, None), any(two, Some(one))], [true, true]);
        // A later cancellation with a waiting caller does not make it wanted again.
        assert!(pending.withdraw(2, false) && !pending.withdraw(2, true) && !any(one, None));
        assert!(pending.forget(1) && pending.forget(2) && !pending.forget(2));
        assert!(!pending.withdraw(2, true));
        assert_eq!(pending.register(None, Box::new(|_| {})).unwrap(), (3, true));
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn the_ids_of_our_requests_are_known() {
        let pending = Pending::default();
        let was_ours = |id: &str| pending.was_ours(&RawValue::from_string(id.to_owned()).unwrap());
        assert!(!was_ours("0") && !was_ours("1"));
        pending.register(None, Box::new(|_| {})).unwrap();
        pending.register(None, Box::new(|_| {})).unwrap();
        pending.forget(1);
        let ids = ["0", "1", "2", "3", "-1", "1.0", "\"1\"", "null"];
        assert_eq!(ids.map(was_ours), [false, true, true, false, false, false, false, false]);
    }

    /// A callback that panics does not stop the others.
    #[test]
    fn the_end_reaches_every_request() {
        let pending = Pending::default();
        let reached = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        for number in 0..3 {
            let reached = reached.clone();
            let deliver = move |response: RawResponse<'_>| {
                assert!(matches!(response, RawResponse::Closed(Closed::EndOfInput)));
                reached.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                assert_ne!(number, 1, "as intended");
            };
            pending.register(None, Box::new(deliver)).unwrap();
        }
        pending.close(&Closed::EndOfInput);
        assert_eq!((reached.load(std::sync::atomic::Ordering::Relaxed), pending.len()), (3, 0));
        let late = pending.register(None, Box::new(|_| panic!("it is rejected")));
        assert!(matches!(late, Err(Error::Closed(Closed::EndOfInput))));
    }
}
