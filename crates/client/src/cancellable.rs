//! The tool calls and terminals of a session that the client may cancel, in version 2.

use std::collections::VecDeque;

use duologue_schema::{SessionUpdate, TerminalId, ToolCallId, ToolCallStatus};

use crate::limits::{CANCELLABLE_ID_BYTES, OPEN_CALLS};

/// The objects of the agent that are cancellable and have not ended, at most [`OPEN_CALLS`] of each kind. The oldest
/// are evicted. An object with an id of more than [`CANCELLABLE_ID_BYTES`] counts as not cancellable.
#[derive(Debug, Default)]
pub(crate) struct CancellableIds {
    calls: VecDeque<ToolCallId>,
    terminals: VecDeque<TerminalId>,
}

impl CancellableIds {
    pub(crate) fn has_call(&self, id: &ToolCallId) -> bool {
        self.calls.contains(id)
    }

    pub(crate) fn has_terminal(&self, id: &TerminalId) -> bool {
        self.terminals.contains(id)
    }

    pub(crate) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::ToolCall(call) => {
                let offers = call.capabilities.as_ref().is_some_and(|offered| offered.cancel.is_some());
                let has_ended = call.status.is_final();
                change(&mut self.calls, &call.tool_call_id, Some(offers && !has_ended));
            }
            SessionUpdate::ToolCallUpdate(call) => {
                let has_ended = call.status.as_ref().is_some_and(ToolCallStatus::is_final);
                let offers = call.capabilities.changes_to(|offered| offered.cancel.is_some());
                change(&mut self.calls, &call.tool_call_id, if has_ended { Some(false) } else { offers });
            }
            SessionUpdate::TerminalUpdate(terminal) => {
                let has_ended = terminal.exit_status.value().is_some();
                let offers = terminal.capabilities.changes_to(|offered| offered.cancel.is_some());
                change(
                    &mut self.terminals,
                    &terminal.terminal_id,
                    if has_ended { Some(false) } else { offers },
                );
            }
            _ => {}
        }
    }
}

/// Adds or removes an id. `None` changes nothing.
fn change<T: Clone + PartialEq + AsRef<str>>(known: &mut VecDeque<T>, id: &T, offers: Option<bool>) {
    let Some(offers) = offers else { return };
    known.retain(|known| known != id);
    if offers && id.as_ref().len() <= CANCELLABLE_ID_BYTES {
        if known.len() >= OPEN_CALLS {
            known.pop_front();
        }
        known.push_back(id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_ids_are_limited() {
        let mut known = VecDeque::new();
        for number in 0..2 * OPEN_CALLS {
            change(&mut known, &ToolCallId::from(number.to_string()), Some(true));
            change(&mut known, &ToolCallId::from("x".repeat(CANCELLABLE_ID_BYTES + 1)), Some(true));
        }
        assert_eq!(known.len(), OPEN_CALLS);
        change(&mut known, &ToolCallId::from((OPEN_CALLS + 1).to_string()), Some(false));
        assert_eq!(known.len(), OPEN_CALLS - 1);
    }
}
