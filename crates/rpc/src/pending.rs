//! Requests of ours that wait for their answer.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use duologue_schema::Error as WireError;
use serde_json::value::RawValue;

use crate::error::{Closed, Error};
use crate::queue::StreamId;
use crate::sync::{Lock, Mutex};

/// How a request ended, as the reader sees it.
pub(crate) enum RawResponse<'a> {
    Result(&'a RawValue),
    Error(WireError),
    Unreadable(serde_json::Error),
    Closed(Closed),
}

/// Called by the reader, in wire order: it must not block.
pub(crate) type Deliver = Box<dyn FnOnce(RawResponse<'_>) + Send>;

struct PendingRequest {
    deliver: Deliver,
    stream: Option<StreamId>,
    /// Whether the peer was told to cancel it. It answers all the same.
    withdrawn: bool,
    /// Whether somebody needs the answer to go on.
    wanted: bool,
}

#[derive(Default)]
pub(crate) struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    /// By age, so that the end reaches them in the order they were made.
    requests: BTreeMap<u64, PendingRequest>,
    last_id: u64,
    closed: Option<Closed>,
}

impl Pending {
    /// Registers a request before its bytes leave, so that no answer can come too early.
    pub(crate) fn register(&self, stream: Option<StreamId>, deliver: Deliver) -> Result<u64, Error> {
        let mut state = self.0.lock_unpoisoned();
        if let Some(reason) = &state.closed {
            return Err(Error::Closed(reason.clone()));
        }
        state.last_id += 1;
        let id = state.last_id;
        state.requests.insert(id, PendingRequest { deliver, stream, withdrawn: false, wanted: true });
        Ok(id)
    }

    /// Takes a request out; `false` if it was answered already.
    pub(crate) fn forget(&self, id: u64) -> bool {
        let request = self.0.lock_unpoisoned().requests.remove(&id);
        request.is_some()
    }

    /// Marks a request as withdrawn, and as no longer wanted unless it still is; `false` if the peer
    /// need not be told: it was answered, or withdrawn before.
    pub(crate) fn withdraw(&self, id: u64, wanted: bool) -> bool {
        let mut state = self.0.lock_unpoisoned();
        let Some(request) = state.requests.get_mut(&id) else { return false };
        request.wanted &= wanted;
        !std::mem::replace(&mut request.withdrawn, true)
    }

    /// Whether an id was ever one of ours, answered or not.
    pub(crate) fn was_ours(&self, id: &RawValue) -> bool {
        id.get().parse::<u64>().is_ok_and(|id| (1..=self.0.lock_unpoisoned().last_id).contains(&id))
    }

    /// Hands an answer to its request; `false` if there is none.
    pub(crate) fn resolve(&self, id: &RawValue, reply: RawResponse<'_>) -> bool {
        // Ids are compared as tokens: `"1"`, `1.0` and `01` are not ours.
        let Some(number) = id.get().parse::<u64>().ok().filter(|number| number.to_string() == id.get())
        else {
            return false;
        };
        let request = self.0.lock_unpoisoned().requests.remove(&number);
        let Some(request) = request else { return false };
        (request.deliver)(reply);
        true
    }

    /// Whether somebody waits for an answer that does not come through `stream`. A request whose
    /// stream is gone has nobody who waits.
    pub(crate) fn any_besides(&self, stream: StreamId, alive: &dyn Fn(StreamId) -> bool) -> bool {
        let state = self.0.lock_unpoisoned();
        let waits = |request: &PendingRequest| request.stream.is_none_or(|fed| fed != stream && alive(fed));
        state.requests.values().any(|request| request.wanted && waits(request))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock_unpoisoned().requests.len()
    }

    /// Fails everything that waits, and everything that comes after.
    pub(crate) fn close(&self, reason: &Closed) {
        let requests = {
            let mut state = self.0.lock_unpoisoned();
            state.closed.get_or_insert_with(|| reason.clone());
            std::mem::take(&mut state.requests)
        };
        for request in requests.into_values() {
            let deliver = AssertUnwindSafe(|| (request.deliver)(RawResponse::Closed(reason.clone())));
            if std::panic::catch_unwind(deliver).is_err() {
                tracing::error!("a handler panicked over the end of the connection");
            }
        }
    }
}
