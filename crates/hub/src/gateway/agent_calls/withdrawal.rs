//! Calls that their agent withdraws with `$/cancel_request`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use duologue_schema::{RequestId, SessionId};
use tokio::sync::watch;

/// The session of the sender of a call, and the text of its id.
type CallName = (SessionId, String);

/// The calls that run. A call runs until the end of its task has been sent, because its response and its withdrawal can
/// pass each other.
#[derive(Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<CallName, Arc<watch::Sender<bool>>>>>);

/// A call that runs, until it is dropped.
pub(super) struct RoutedCallTask {
    calls: RunningCalls,
    name: CallName,
    is_withdrawn: Arc<watch::Sender<bool>>,
}

impl RunningCalls {
    /// Notes a call. One whose id an earlier call has takes its place.
    pub(super) fn begin(&self, session: &SessionId, id: &RequestId) -> RoutedCallTask {
        let name = (session.clone(), id.token().to_owned());
        let is_withdrawn = Arc::new(watch::Sender::new(false));
        self.0.lock_unpoisoned().insert(name.clone(), is_withdrawn.clone());
        RoutedCallTask { calls: self.clone(), name, is_withdrawn }
    }

    /// Withdraws a call, if it runs.
    pub(super) fn withdraw(&self, session: &SessionId, id: &RequestId) {
        let name = (session.clone(), id.token().to_owned());
        if let Some(call) = self.0.lock_unpoisoned().get(&name) {
            call.send_replace(true);
        }
    }
}

impl RoutedCallTask {
    pub(super) fn is_withdrawn(&self) -> bool {
        *self.is_withdrawn.borrow()
    }

    /// Waits until the call is withdrawn.
    pub(super) async fn withdrawn(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_withdrawn.subscribe().wait_for(|is_withdrawn| *is_withdrawn).await;
    }
}

impl Drop for RoutedCallTask {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock_unpoisoned();
        if calls.get(&self.name).is_some_and(|call| Arc::ptr_eq(call, &self.is_withdrawn)) {
            calls.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawal_is_for_the_newest_call_with_the_id() {
        let calls = RunningCalls::default();
        let (session, id) = (SessionId::from("s"), RequestId::from(1));
        calls.withdraw(&session, &id);
        let first = calls.begin(&session, &id);
        assert!(!first.is_withdrawn());
        let second = calls.begin(&session, &id);
        calls.withdraw(&SessionId::from("t"), &id);
        drop(first);
        assert!(!second.is_withdrawn());
        calls.withdraw(&session, &id);
        assert!(second.is_withdrawn());
        drop(second);
        assert!(calls.0.lock_unpoisoned().is_empty());
    }
}
