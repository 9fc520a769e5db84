//! What the agent has said of its open tool calls, for questions about them that do not say it again.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use serde::Serialize;

use duologue_schema::{SessionUpdate, ToolCallId, ToolCallStatus, ToolCallUpdate};

use crate::bounded::{Bounded, Bounds};
use crate::limits::{OPEN_CALL_BYTES, OPEN_CALL_BYTES_TOGETHER, OPEN_CALLS};
use crate::serialized_len::serialized_len;

const BOUNDS: Bounds =
    Bounds { items: OPEN_CALLS, bytes: OPEN_CALL_BYTES, together: OPEN_CALL_BYTES_TOGETHER };

/// The open tool calls of a session, the one last heard of at the end.
pub(crate) struct OpenCalls(Bounded<ToolCallUpdate>);

impl OpenCalls {
    /// None yet; `together` is what all sessions keep.
    pub(crate) fn new(together: &Arc<AtomicUsize>) -> Self {
        OpenCalls(Bounded::new(&BOUNDS, together))
    }

    pub(crate) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(said) => {
                self.take(&said.tool_call_id);
                let parts = (&said.title, &said.name, &said.content, &said.locations, &said.raw_input);
                if !is_kept(&said.status, &parts) {
                    return;
                }
                let mut call = ToolCallUpdate::new(said.tool_call_id.clone())
                    .title(said.title.clone())
                    .kind(said.kind.clone())
                    .content(said.content.clone())
                    .locations(said.locations.clone());
                call.name.clone_from(&said.name);
                call.raw_input.clone_from(&said.raw_input);
                self.keep(call);
            }
            SessionUpdate::ToolCallUpdate(said) => {
                let before = self.take(&said.tool_call_id);
                let parts = (&said.title, &said.name, &said.content, &said.locations, &said.raw_input);
                if !is_kept(said.status.as_ref().unwrap_or(&ToolCallStatus::Pending), &parts) {
                    return;
                }
                let mut call = ToolCallUpdate::new(said.tool_call_id.clone());
                add(&mut call, said);
                if let Some(before) = before {
                    add(&mut call, &before);
                }
                self.keep(call);
            }
            _ => {}
        }
    }

    /// Adds what is known of the call to what is said of it now; `false` if there was nothing to add.
    pub(crate) fn complete(&self, call: &mut ToolCallUpdate) -> bool {
        let known = self.0.iter().rev().find(|known| known.tool_call_id == call.tool_call_id);
        known.is_some_and(|known| add(call, known))
    }

    fn take(&mut self, id: &ToolCallId) -> Option<ToolCallUpdate> {
        let place = self.0.iter().rposition(|call| call.tool_call_id == *id)?;
        self.0.remove(place)
    }

    fn keep(&mut self, mut call: ToolCallUpdate) {
        // An empty list takes back what was said before, and says nothing itself.
        call.content = call.content.filter(|content| !content.is_empty());
        call.locations = call.locations.filter(|locations| !locations.is_empty());
        // One that is longer would take the others with it.
        if let Some(bytes) = serialized_len(&call, OPEN_CALL_BYTES) {
            self.0.push(call, bytes);
        }
    }
}

/// Whether more may be asked about a call, and what is said of it now is short enough to be copied: it may be as long as
/// a line.
fn is_kept(status: &ToolCallStatus, parts: &impl Serialize) -> bool {
    let has_ended = matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
    !has_ended && serialized_len(parts, OPEN_CALL_BYTES).is_some()
}

/// Adds to `call` what it leaves out and `known` says.
fn add(call: &mut ToolCallUpdate, known: &ToolCallUpdate) -> bool {
    fn set<T: Clone>(said: &mut Option<T>, known: &Option<T>) -> bool {
        let adds = said.is_none() && known.is_some();
        if adds {
            said.clone_from(known);
        }
        adds
    }
    let added = [
        set(&mut call.title, &known.title),
        set(&mut call.name, &known.name),
        set(&mut call.kind, &known.kind),
        set(&mut call.content, &known.content),
        set(&mut call.locations, &known.locations),
        set(&mut call.raw_input, &known.raw_input),
    ];
    added.contains(&true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use duologue_schema::ToolCall;

    use super::*;

    fn titled(calls: &OpenCalls, id: &str) -> Option<String> {
        let mut call = ToolCallUpdate::new(id);
        calls.complete(&mut call);
        call.title
    }

    #[test]
    fn the_calls_heard_of_last_are_kept_within_bounds() {
        let together = Arc::default();
        let mut calls = OpenCalls::new(&together);
        let mut announce = |id: &str, bytes: usize| {
            calls.apply(&ToolCall::new(id, "x".repeat(bytes)).into());
            assert!(calls.0.iter().len() <= OPEN_CALLS && together.load(Relaxed) <= OPEN_CALL_BYTES);
            assert_eq!(
                together.load(Relaxed),
                calls.0.iter().filter_map(|call| serialized_len(call, usize::MAX)).sum::<usize>()
            );
            ["a", "b", "c"].map(|id| titled(&calls, id).is_some())
        };
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, false, false]);
        assert_eq!(announce("b", OPEN_CALL_BYTES / 4), [true, true, false]);
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, true, false]);
        assert_eq!(announce("c", OPEN_CALL_BYTES / 4), [true, false, true]);
        assert_eq!(announce("c", OPEN_CALL_BYTES), [true, false, false]);
        assert_eq!(announce("b", 9), [true, true, false]);
    }

    #[test]
    fn many_sessions_keep_no_more_than_all_may_together() {
        let together = Arc::default();
        let session = || {
            let mut calls = OpenCalls::new(&together);
            calls.apply(&ToolCall::new("a", "x".repeat(OPEN_CALL_BYTES / 2)).into());
            calls
        };
        let mut sessions: Vec<_> = (0..100).map(|_| session()).collect();
        assert!(together.load(Relaxed) <= OPEN_CALL_BYTES_TOGETHER);
        let most = OPEN_CALL_BYTES_TOGETHER / (OPEN_CALL_BYTES / 2);
        let know =
            |sessions: &[OpenCalls]| sessions.iter().filter(|calls| titled(calls, "a").is_some()).count();
        assert_eq!(know(&sessions), most - 1);
        // A turn that ends makes room for another.
        sessions.swap_remove(0);
        sessions.push(session());
        assert_eq!(know(&sessions), most - 1);
        drop(sessions);
        assert_eq!(together.load(Relaxed), 0);
    }
}
