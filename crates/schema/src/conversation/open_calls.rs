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
                #[cfg(feature = "protocol-v2")]
                self.clear(&update.tool_call_id, update.cleared);
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
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::ToolCallContentChunk(chunk) => self.append(&chunk.tool_call_id, &chunk.content),
            _ => {}
        }
    }

    /// Appends an item to the content of a call. Only the item is copied and measured.
    #[cfg(feature = "protocol-v2")]
    fn append(&mut self, id: &ToolCallId, content: &ToolCallContent) {
        let mut open = self.remove(id).unwrap_or_else(|| OpenCall::new(id));
        let Some(len) = serialized_len(content, OPEN_CALL_BYTES) else { return };
        let known = open.call.content.get_or_insert_default();
        // A comma, or the key with its brackets.
        open.bytes += len + if known.is_empty() { "content".len() + 6 } else { 1 };
        known.push(content.clone());
        if open.bytes <= OPEN_CALL_BYTES {
            self.keep(open);
        }
    }

    /// Changes a call and moves it to the end. Removes it when it ends, or when a part is too long to
    /// copy: an update may be as long as a frame. An update without parts begins no call.
    fn change(&mut self, id: &ToolCallId, status: Option<&ToolCallStatus>, parts: &Parts<'_>) {
        let known = self.remove(id);
        let has_ended = status.is_some_and(ToolCallStatus::is_final);
        if has_ended || serialized_len(parts, OPEN_CALL_BYTES).is_none() {
            return;
        }
        let Some(mut open) = known.or_else(|| (!parts.is_empty()).then(|| OpenCall::new(id))) else { return };
        open.merge(parts);
        // A longer call would evict all others.
        if open.bytes > OPEN_CALL_BYTES {
            return;
        }
        self.keep(open);
    }

    /// Removes the fields that an update of version 2 removes.
    #[cfg(feature = "protocol-v2")]
    fn clear(&mut self, id: &ToolCallId, cleared: crate::ClearedFields) {
        if !cleared.name && !cleared.raw_input {
            return;
        }
        let Some(mut open) = self.remove(id) else { return };
        if cleared.name {
            open.call.name = None;
        }
        if cleared.raw_input {
            open.call.raw_input = None;
        }
        open.bytes = serialized_len(&open.call, usize::MAX).unwrap_or_default();
        self.keep(open);
    }

    fn keep(&mut self, open: OpenCall) {
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
        #[cfg(feature = "protocol-v2")]
        let (has_name, has_input) = (!self.cleared.name, !self.cleared.raw_input);
        #[cfg(not(feature = "protocol-v2"))]
        let (has_name, has_input) = (true, true);
        let added = [
            set(&mut self.title, &earlier.title),
            has_name && set(&mut self.name, &earlier.name),
            set(&mut self.kind, &earlier.kind),
            set(&mut self.content, &earlier.content),
            set(&mut self.locations, &earlier.locations),
            has_input && set(&mut self.raw_input, &earlier.raw_input),
        ];
        added.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Conversation, Retention, ToolCall};

    use super::*;

    #[cfg(feature = "protocol-v2")]
    #[test]
    fn a_cleared_field_does_not_come_back() {
        let mut calls = OpenCalls::default();
        let input = || ToolCallUpdate::new("c").name("read").raw_input(serde_json::json!({"path": "/a"}));
        calls.apply(&input().into());
        let mut request = ToolCallUpdate::new("c");
        request.cleared.raw_input = true;
        assert!(request.complete_from(calls.get(&"c".into()).unwrap()));
        assert_eq!((request.name.as_deref(), &request.raw_input), (Some("read"), &None));
        let mut cleared = ToolCallUpdate::new("c");
        cleared.cleared.raw_input = true;
        calls.apply(&cleared.into());
        let mut request = ToolCallUpdate::new("c");
        request.complete_from(calls.get(&"c".into()).unwrap());
        assert_eq!((request.name.as_deref(), &request.raw_input), (Some("read"), &None));
        let mut alone = OpenCalls::default();
        alone.apply(&ToolCallUpdate::new("c").name("read").into());
        assert_eq!(calls.bytes(), alone.bytes());
    }

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
    fn the_limits_themselves_may_be_reached() {
        let title = |calls: &mut OpenCalls, id: &str, bytes: usize| {
            calls.apply(&ToolCallUpdate::new(id).title("x".repeat(bytes)).into());
        };
        let mut calls = OpenCalls::default();
        for number in 0..=OPEN_CALLS {
            title(&mut calls, &number.to_string(), 1);
            assert_eq!(calls.calls.len(), (number + 1).min(OPEN_CALLS));
        }
        assert_eq!(["0", "1"].map(|id| calls.get(&id.into()).is_some()), [false, true]);

        let mut calls = OpenCalls::default();
        title(&mut calls, "a", OPEN_CALL_BYTES / 2);
        title(&mut calls, "b", 1);
        let rest = 1 + OPEN_CALL_BYTES - calls.bytes();
        title(&mut calls, "b", rest);
        assert_eq!((calls.calls.len(), calls.bytes()), (2, OPEN_CALL_BYTES));
        title(&mut calls, "b", rest + 1);
        assert_eq!(["a", "b"].map(|id| calls.get(&id.into()).is_some()), [false, true]);
    }

    /// A call whose parts are too long together is dropped, and evicts no other one.
    #[test]
    fn a_call_that_grows_over_the_limit_is_dropped() {
        let mut calls = OpenCalls::default();
        calls.apply(&ToolCallUpdate::new("grows").title("x".repeat(OPEN_CALL_BYTES / 2)).name("y").into());
        let rest = 1 + OPEN_CALL_BYTES - calls.bytes();
        calls.apply(&ToolCallUpdate::new("grows").name("y".repeat(rest)).into());
        assert_eq!(calls.bytes(), OPEN_CALL_BYTES);
        calls.apply(&ToolCallUpdate::new("grows").title("shorter").into());
        calls.apply(&ToolCallUpdate::new("other").title("Read").into());
        calls.apply(&ToolCallUpdate::new("grows").title("x".repeat(OPEN_CALL_BYTES / 2 + 1)).into());
        assert_eq!(["grows", "other"].map(|id| calls.get(&id.into()).is_some()), [false, true]);
    }

    /// Parts that an announcement leaves out are gone. Those that an update leaves out stay.
    #[test]
    fn an_announcement_begins_the_call_anew() {
        let mut calls = OpenCalls::default();
        let named = ToolCallUpdate::new("a").name("fs").raw_input(serde_json::json!({ "path": "/a" }));
        calls.apply(&named.into());
        calls.apply(&ToolCallUpdate::new("a").title("Read").into());
        let parts = |calls: &OpenCalls| {
            calls.get(&"a".into()).map(|call| (call.name.is_some(), call.raw_input.is_some()))
        };
        assert_eq!(parts(&calls), Some((true, true)));
        calls.apply(&ToolCall::new("a", "Read").into());
        assert_eq!(parts(&calls), Some((false, false)));
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

        for (status, is_open) in [
            (ToolCallStatus::Pending, true),
            (ToolCallStatus::InProgress, true),
            (ToolCallStatus::Completed, false),
            (ToolCallStatus::Failed, false),
        ] {
            conversation.apply(&begun);
            conversation.apply(&ToolCallUpdate::new("a").status(status.clone()).into());
            assert_eq!(conversation.open_call(&id).is_some(), is_open, "{status:?}");
        }

        conversation.apply(&begun);
        conversation.end_turn();
        assert_eq!((conversation.open_call(&id), conversation.open_call_bytes()), (None, 0));
    }

    /// Each absent field is added, and no other one is changed.
    #[test]
    fn a_request_is_completed_from_what_came_before() {
        let parts = |word: &str| {
            let mut call = ToolCallUpdate::new("a")
                .title(word)
                .name(word)
                .kind(if word == "old" { ToolKind::Read } else { ToolKind::Edit })
                .content([ToolCallContent::from(word)])
                .locations([ToolCallLocation::new(word)])
                .raw_input(serde_json::json!(word));
            call.status = (word == "old").then_some(ToolCallStatus::Pending);
            call
        };
        let (old, new) = (parts("old"), parts("new"));
        for part in 0..6 {
            let without = |call: &ToolCallUpdate| {
                let mut call = call.clone();
                match part {
                    0 => call.title = None,
                    1 => call.name = None,
                    2 => call.kind = None,
                    3 => call.content = None,
                    4 => call.locations = None,
                    _ => call.raw_input = None,
                }
                call
            };
            let mut completed = without(&new);
            assert!(completed.complete_from(&old), "part {part}");
            assert_eq!(without(&completed), without(&new), "part {part}");
            let is_old = [
                completed.title == old.title,
                completed.name == old.name,
                completed.kind == old.kind,
                completed.content == old.content,
                completed.locations == old.locations,
                completed.raw_input == old.raw_input,
            ];
            assert_eq!(is_old, std::array::from_fn(|field| field == part));
            assert!(!without(&new).complete_from(&without(&old)), "neither has part {part}");
        }
        let mut whole = new.clone();
        assert!(!whole.complete_from(&old));
        assert_eq!(whole, new);
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
