//! What the agent has said of its open tool calls, for questions about them that do not say it again.

use std::collections::VecDeque;

use duologue_schema::{SessionUpdate, ToolCallId, ToolCallStatus, ToolCallUpdate};

use crate::limits::{OPEN_CALL_BYTES, OPEN_CALLS};

/// The open tool calls of a session, the one last heard of at the end.
#[derive(Default)]
pub(crate) struct OpenCalls {
    calls: VecDeque<(ToolCallUpdate, usize)>,
    bytes: usize,
}

impl OpenCalls {
    pub(crate) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(call) => {
                self.take(&call.tool_call_id);
                self.keep(ToolCallUpdate::from((**call).clone()));
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let mut call = (**update).clone();
                if let Some(before) = self.take(&call.tool_call_id) {
                    add(&mut call, &before);
                }
                self.keep(call);
            }
            _ => {}
        }
    }

    /// Adds what is known of the call to what is said of it now; `false` if there was nothing to add.
    pub(crate) fn complete(&self, call: &mut ToolCallUpdate) -> bool {
        self.place(&call.tool_call_id)
            .and_then(|place| self.calls.get(place))
            .is_some_and(|(known, _)| add(call, known))
    }

    fn place(&self, id: &ToolCallId) -> Option<usize> {
        self.calls.iter().rposition(|(call, _)| call.tool_call_id == *id)
    }

    fn take(&mut self, id: &ToolCallId) -> Option<ToolCallUpdate> {
        let (call, bytes) = self.calls.remove(self.place(id)?)?;
        self.bytes -= bytes;
        Some(call)
    }

    fn keep(&mut self, mut call: ToolCallUpdate) {
        if matches!(call.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed)) {
            return;
        }
        (call.status, call.raw_output, call.meta) = (None, None, None);
        // An empty list takes back what was said before, and says nothing itself.
        call.content = call.content.filter(|content| !content.is_empty());
        call.locations = call.locations.filter(|locations| !locations.is_empty());
        let bytes = written(&call);
        if bytes > OPEN_CALL_BYTES {
            return;
        }
        self.calls.push_back((call, bytes));
        self.bytes += bytes;
        while self.calls.len() > OPEN_CALLS || self.bytes > OPEN_CALL_BYTES {
            let Some((_, bytes)) = self.calls.pop_front() else { break };
            self.bytes -= bytes;
        }
    }
}

/// How long a call is as text, which is not made: it may be as large as a line may be.
fn written(call: &ToolCallUpdate) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, call).map_or(usize::MAX, |()| count.0)
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
    use duologue_schema::ToolCall;

    use super::*;

    #[test]
    fn a_call_is_as_long_as_its_text() {
        let call = ToolCallUpdate::from(ToolCall::new("a", "\"quoted\" \u{1f600}\n"));
        assert_eq!(written(&call), serde_json::to_string(&call).expect("text").len());
    }

    fn titled(calls: &OpenCalls, id: &str) -> Option<String> {
        let mut call = ToolCallUpdate::new(id);
        calls.complete(&mut call);
        call.title
    }

    #[test]
    fn the_calls_heard_of_last_are_kept_within_bounds() {
        let mut calls = OpenCalls::default();
        let mut announce = |id: &str, bytes: usize| {
            calls.apply(&ToolCall::new(id, "x".repeat(bytes)).into());
            assert!(calls.bytes <= OPEN_CALL_BYTES && calls.calls.len() <= OPEN_CALLS);
            assert_eq!(calls.bytes, calls.calls.iter().map(|(_, bytes)| bytes).sum::<usize>());
            ["a", "b", "c"].map(|id| titled(&calls, id).is_some())
        };
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, false, false]);
        assert_eq!(announce("b", OPEN_CALL_BYTES / 4), [true, true, false]);
        assert_eq!(announce("a", OPEN_CALL_BYTES / 2), [true, true, false]);
        assert_eq!(announce("c", OPEN_CALL_BYTES / 4), [true, false, true]);
        assert_eq!(announce("c", OPEN_CALL_BYTES), [true, false, false]);
        assert_eq!(announce("b", 9), [true, true, false]);
    }
}
