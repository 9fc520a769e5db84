//! The open tool calls of a turn, so that a permission request can leave out what the agent already
//! sent.

use std::collections::VecDeque;

use serde::Serialize;

use crate::serialized_len::serialized_len;
use crate::{
    Json, SessionUpdate, ToolCallContent, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolKind,
};

/// Limit on the open tool calls that a conversation keeps.
pub const OPEN_CALLS: usize = 256;
/// Limit on their bytes as JSON.
pub const OPEN_CALL_BYTES: usize = 1024 * 1024;

/// The tool calls that have not ended, the one updated last at the end.
///
/// A [`ToolCall`](crate::ToolCall) has defaults for absent fields. Here an absent field stays `None`: a permission
/// rule about a kind must not match a kind that the agent never sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenCalls {
    calls: VecDeque<OpenCall>,
    bytes: usize,
}

/// A call with its bytes as JSON.
#[derive(Clone, Debug, PartialEq)]
struct OpenCall {
    call: ToolCallUpdate,
    bytes: usize,
}

/// The parts of an announcement or an update that are kept.
#[derive(Serialize)]
struct Parts<'a> {
    title: Option<&'a String>,
    name: Option<&'a String>,
    kind: Option<&'a ToolKind>,
    content: Option<&'a Vec<ToolCallContent>>,
    locations: Option<&'a Vec<ToolCallLocation>>,
    raw_input: Option<&'a Json>,
}

impl OpenCalls {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: &ToolCallId) -> Option<&ToolCallUpdate> {
        self.calls.iter().rev().map(|known| &known.call).find(|call| call.tool_call_id == *id)
    }

    pub(super) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(call) => {
                self.remove(&call.tool_call_id);
                let parts = Parts {
                    title: Some(&call.title),
                    name: call.name.as_ref(),
                    kind: Some(&call.kind),
                    content: Some(&call.content),
                    locations: Some(&call.locations),
                    raw_input: call.raw_input.as_ref(),
                };
                self.change(&call.tool_call_id, Some(&call.status), &parts);
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let parts = Parts {
                    title: update.title.as_ref(),
                    name: update.name.as_ref(),
                    kind: update.kind.as_ref(),
                    content: update.content.as_ref(),
                    locations: update.locations.as_ref(),
                    raw_input: update.raw_input.as_ref(),
                };
                self.change(&update.tool_call_id, update.status.as_ref(), &parts);
            }
            _ => {}
        }
    }

    /// Changes a call and moves it to the end. Removes it when it ends, or when a part is too long to
    /// copy: an update may be as long as a frame. An update without parts begins no call.
    fn change(&mut self, id: &ToolCallId, status: Option<&ToolCallStatus>, parts: &Parts<'_>) {
        let known = self.remove(id);
        let has_ended = matches!(status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        if has_ended || serialized_len(parts, OPEN_CALL_BYTES).is_none() {
            return;
        }
        let Some(mut open) = known.or_else(|| (!parts.is_empty()).then(|| OpenCall::new(id))) else { return };
        open.merge(parts);
        // A longer call would evict all others.
        if open.bytes > OPEN_CALL_BYTES {
            return;
        }
        self.bytes += open.bytes;
        self.calls.push_back(open);
        while self.calls.len() > OPEN_CALLS || self.bytes > OPEN_CALL_BYTES {
            self.remove_oldest();
        }
    }

    fn remove(&mut self, id: &ToolCallId) -> Option<OpenCall> {
        let index = self.calls.iter().rposition(|known| known.call.tool_call_id == *id)?;
        let known = self.calls.remove(index)?;
        self.bytes -= known.bytes;
        Some(known)
    }

    /// Removes the call that was updated longest ago. Returns false if there is none.
    pub(super) fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.calls.pop_front() else { return false };
        self.bytes -= oldest.bytes;
        true
    }
}

impl OpenCall {
    fn new(id: &ToolCallId) -> Self {
        let call = ToolCallUpdate::new(id.clone());
        let bytes = serialized_len(&call, usize::MAX).unwrap_or_default();
        OpenCall { call, bytes }
    }

    /// Replaces the given parts. Only they are copied and measured, so that the work of an update does
    /// not depend on the length of its call.
    fn merge(&mut self, parts: &Parts<'_>) {
        fn set<T: Serialize>(bytes: &mut usize, key: &str, field: &mut Option<T>, new: Option<T>) {
            // The quotes of the key, a colon and a comma.
            let len = |value: &T| key.len() + 4 + serialized_len(value, usize::MAX).unwrap_or_default();
            *bytes -= field.as_ref().map_or(0, len);
            *field = new;
            *bytes += field.as_ref().map_or(0, len);
        }
        /// An empty list revokes the earlier one, and adds nothing to a later request.
        fn set_list<T: Clone + Serialize>(
            bytes: &mut usize,
            key: &str,
            field: &mut Option<Vec<T>>,
            new: Option<&Vec<T>>,
        ) {
            if let Some(new) = new {
                set(bytes, key, field, Some(new.clone()).filter(|list| !list.is_empty()));
            }
        }
        let OpenCall { call, bytes } = self;
        if let Some(title) = parts.title {
            set(bytes, "title", &mut call.title, Some(title.clone()));
        }
        if let Some(name) = parts.name {
            set(bytes, "name", &mut call.name, Some(name.clone()));
        }
        if let Some(kind) = parts.kind {
            set(bytes, "kind", &mut call.kind, Some(kind.clone()));
        }
        set_list(bytes, "content", &mut call.content, parts.content);
        set_list(bytes, "locations", &mut call.locations, parts.locations);
        if let Some(raw_input) = parts.raw_input {
            set(bytes, "rawInput", &mut call.raw_input, Some(raw_input.clone()));
        }
    }
}

impl Parts<'_> {
    fn is_empty(&self) -> bool {
        let Parts { title, name, kind, content, locations, raw_input } = self;
        title.is_none()
            && name.is_none()
            && kind.is_none()
            && content.is_none()
            && locations.is_none()
            && raw_input.is_none()
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

#[cfg(test)]
mod tests {
    use crate::{Conversation, Retention, ToolCall};

    use super::*;

    #[test]
    fn the_calls_updated_last_are_kept_within_bounds() {
        let mut calls = OpenCalls::default();
        let mut announce = |id: &str, bytes: usize| {
            calls.apply(&ToolCall::new(id, "x".repeat(bytes)).into());
            assert!(calls.calls.len() <= OPEN_CALLS && calls.bytes() <= OPEN_CALL_BYTES);
            let lengths = calls.calls.iter().filter_map(|known| serialized_len(&known.call, usize::MAX));
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

    #[test]
    fn the_bytes_follow_every_kind_of_update() {
        let mut calls = OpenCalls::default();
        let content = |text: &str| vec![ToolCallContent::from(text)];
        for update in [
            ToolCallUpdate::new("a").title("\"Read\"").kind(ToolKind::Read),
            ToolCallUpdate::new("a").content(content("one")).locations([ToolCallLocation::new("/a")]),
            ToolCallUpdate::new("b").name("fs").raw_input(serde_json::json!({ "path": "/a" })),
            ToolCallUpdate::new("a").content(content("longer")).title("R"),
            ToolCallUpdate::new("a").content([]).raw_output(serde_json::json!(1)),
            ToolCallUpdate::new("a").status(ToolCallStatus::InProgress),
        ] {
            calls.apply(&update.into());
            let lengths = calls.calls.iter().filter_map(|known| serialized_len(&known.call, usize::MAX));
            assert_eq!(calls.bytes(), lengths.sum::<usize>());
        }
        let a = calls.get(&"a".into()).expect("an open call");
        assert_eq!((a.title.as_deref(), &a.content, &a.raw_output), (Some("R"), &None, &None));
        assert!(a.locations.is_some());
        // A call that was updated without new parts is the last to be evicted, too.
        assert!(calls.remove_oldest() && calls.get(&"a".into()).is_some());
    }

    /// Copying and measuring the whole call at each update would take minutes.
    #[test]
    fn the_work_of_an_update_is_bounded_by_its_length() {
        let mut calls = OpenCalls::default();
        let long = ToolCallContent::from("x".repeat(OPEN_CALL_BYTES - 1000));
        calls.apply(&ToolCallUpdate::new("a").content([long]).into());
        let updates = [
            ToolCallUpdate::new("a").status(ToolCallStatus::InProgress),
            ToolCallUpdate::new("a").title("Read"),
        ]
        .map(SessionUpdate::from);
        let started = std::time::Instant::now();
        for update in updates.iter().cycle().take(100_000) {
            calls.apply(update);
        }
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
        assert!(calls.get(&"a".into()).is_some_and(|call| call.content.is_some()));
    }

    #[test]
    fn a_late_update_without_parts_does_not_open_a_call_again() {
        let mut calls = OpenCalls::default();
        for update in [
            ToolCallUpdate::new("a").title("Read"),
            ToolCallUpdate::new("a").status(ToolCallStatus::Completed),
            ToolCallUpdate::new("a").raw_output(serde_json::json!("done")),
            ToolCallUpdate::new("a").status(ToolCallStatus::InProgress),
        ] {
            calls.apply(&update.into());
        }
        assert_eq!((calls.get(&"a".into()), calls.bytes()), (None, 0));
    }
}
