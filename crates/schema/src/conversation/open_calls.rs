//! The open tool calls of a turn, so that a permission request can leave out what the agent already
//! sent.

use std::collections::VecDeque;

use serde::Serialize;

use crate::serialized_len::serialized_len;
use crate::{SessionUpdate, ToolCall, ToolCallId, ToolCallStatus, ToolCallUpdate};

/// Limit on the open tool calls that a conversation keeps.
pub const OPEN_CALLS: usize = 256;
/// Limit on their bytes as JSON.
pub const OPEN_CALL_BYTES: usize = 1024 * 1024;

/// The tool calls that have not ended, the one updated last at the end.
///
/// A [`ToolCall`] has defaults for absent fields. Here an absent field stays `None`: a permission
/// rule about a kind must not match a kind that the agent never sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenCalls {
    /// Each call with its bytes as JSON.
    calls: VecDeque<(ToolCallUpdate, usize)>,
    bytes: usize,
}

impl OpenCalls {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: &ToolCallId) -> Option<&ToolCallUpdate> {
        self.calls.iter().rev().map(|(call, _)| call).find(|call| call.tool_call_id == *id)
    }

    pub(super) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(call) => self.begin(call),
            SessionUpdate::ToolCallUpdate(update) => self.update(update),
            _ => {}
        }
    }

    fn begin(&mut self, call: &ToolCall) {
        self.remove(&call.tool_call_id);
        let parts = (&call.title, &call.name, &call.content, &call.locations, &call.raw_input);
        if !is_kept(&call.status, &parts) {
            return;
        }
        let mut known = ToolCallUpdate::new(call.tool_call_id.clone())
            .title(call.title.clone())
            .kind(call.kind.clone())
            .content(call.content.clone())
            .locations(call.locations.clone());
        known.name.clone_from(&call.name);
        known.raw_input.clone_from(&call.raw_input);
        self.push(known);
    }

    fn update(&mut self, update: &ToolCallUpdate) {
        let earlier = self.remove(&update.tool_call_id);
        let parts = (&update.title, &update.name, &update.content, &update.locations, &update.raw_input);
        if !is_kept(update.status.as_ref().unwrap_or(&ToolCallStatus::Pending), &parts) {
            return;
        }
        let mut known = ToolCallUpdate::new(update.tool_call_id.clone());
        known.complete_from(update);
        if let Some(earlier) = earlier {
            known.complete_from(&earlier);
        }
        self.push(known);
    }

    fn push(&mut self, mut call: ToolCallUpdate) {
        // An empty list revokes the earlier one, and adds nothing to a later request.
        call.content = call.content.filter(|content| !content.is_empty());
        call.locations = call.locations.filter(|locations| !locations.is_empty());
        // A longer call would evict all others.
        let Some(bytes) = serialized_len(&call, OPEN_CALL_BYTES) else { return };
        self.calls.push_back((call, bytes));
        self.bytes += bytes;
        while self.calls.len() > OPEN_CALLS || self.bytes > OPEN_CALL_BYTES {
            self.remove_oldest();
        }
    }

    fn remove(&mut self, id: &ToolCallId) -> Option<ToolCallUpdate> {
        let index = self.calls.iter().rposition(|(call, _)| call.tool_call_id == *id)?;
        let (call, bytes) = self.calls.remove(index)?;
        self.bytes -= bytes;
        Some(call)
    }

    /// Removes the call that was updated longest ago. Returns false if there is none.
    pub(super) fn remove_oldest(&mut self) -> bool {
        let Some((_, bytes)) = self.calls.pop_front() else { return false };
        self.bytes -= bytes;
        true
    }
}

impl ToolCallUpdate {
    /// Adds the fields that are absent here and present in `earlier`. Returns true if there were any.
    ///
    /// A permission request may name a tool call and leave out what the agent sent about it before.
    pub fn complete_from(&mut self, earlier: &ToolCallUpdate) -> bool {
        fn set<T: Clone>(field: &mut Option<T>, earlier: &Option<T>) -> bool {
            let adds = field.is_none() && earlier.is_some();
            if adds {
                field.clone_from(earlier);
            }
            adds
        }
        let added = [
            set(&mut self.title, &earlier.title),
            set(&mut self.name, &earlier.name),
            set(&mut self.kind, &earlier.kind),
            set(&mut self.content, &earlier.content),
            set(&mut self.locations, &earlier.locations),
            set(&mut self.raw_input, &earlier.raw_input),
        ];
        added.contains(&true)
    }
}

/// Returns true if the call is open and its new parts are short enough to copy: an update may be as
/// long as a frame.
fn is_kept(status: &ToolCallStatus, parts: &impl Serialize) -> bool {
    let has_ended = matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
    !has_ended && serialized_len(parts, OPEN_CALL_BYTES).is_some()
}

#[cfg(test)]
mod tests {
    use crate::{Conversation, Retention};

    use super::*;

    #[test]
    fn the_calls_updated_last_are_kept_within_bounds() {
        let mut calls = OpenCalls::default();
        let mut announce = |id: &str, bytes: usize| {
            calls.apply(&ToolCall::new(id, "x".repeat(bytes)).into());
            assert!(calls.calls.len() <= OPEN_CALLS && calls.bytes() <= OPEN_CALL_BYTES);
            let lengths = calls.calls.iter().filter_map(|(call, _)| serialized_len(call, usize::MAX));
            assert_eq!(calls.bytes(), lengths.sum::<usize>());
            ["a", "b", "c"].map(|id| calls.get(&id.into()).is_some())
        };
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, false, false]);
        assert_eq!(announce("b", OPEN_CALL_BYTES / 4), [true, true, false]);
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, true, false]);
        assert_eq!(announce("c", OPEN_CALL_BYTES / 4), [true, false, true]);
        assert_eq!(announce("c", OPEN_CALL_BYTES), [true, false, false]);
        assert_eq!(announce("b", 9), [true, true, false]);
    }

    #[test]
    fn a_call_is_open_until_it_ends_or_its_turn_ends() {
        let mut conversation = Conversation::retaining(Retention::OpenCalls);
        let id = ToolCallId::from("a");
        let begun: SessionUpdate = ToolCall::new("a", "Read").into();
        conversation.apply(&begun);
        conversation.apply(&SessionUpdate::agent_message("I read it."));
        assert_eq!(conversation.open_call(&id).and_then(|call| call.title.as_deref()), Some("Read"));
        assert!(conversation.entries().is_empty());

        let mut completed = ToolCallUpdate::new("a");
        completed.status = Some(ToolCallStatus::Completed);
        conversation.apply(&completed.into());
        assert_eq!(conversation.open_call(&id), None);

        conversation.apply(&begun);
        conversation.end_turn();
        assert_eq!((conversation.open_call(&id), conversation.open_call_bytes()), (None, 0));
    }

    #[test]
    fn absent_fields_of_an_open_call_stay_absent() {
        let mut conversation = Conversation::retaining(Retention::All);
        conversation.apply(&ToolCallUpdate::new("a").title("Read").into());
        let call = conversation.open_call(&ToolCallId::from("a")).expect("an open call");
        assert_eq!((call.title.as_deref(), &call.kind), (Some("Read"), &None));
        assert!(conversation.tool_call("a").is_some());
    }
}
