//! Turns of protocol version 2, which an update ends.

use std::sync::Arc;

use duologue_rpc::Lock;
use duologue_schema::{
    ErrorCode, PromptResponse, SessionUpdate, StateUpdate, StopReason, ToolCallUpdate, v2,
};

use super::{EntryState, Router, RunningTurn, SessionEntry};
use crate::cancellable::CancellableIds;
use crate::error::{Error, Result};
use crate::prompt_progress::{Progress, PromptProgress};

impl SessionEntry {
    /// Handles the response to a prompt of version 2, which does not end the turn. The entry is kept until the end.
    ///
    /// Returns true if the turn may have ended before the response: then call [`end_early`](Self::end_early) later.
    pub(crate) fn accepted(self: &Arc<Self>, number: u64, response: Result<v2::PromptResponse>) -> bool {
        let mut inner = self.lock();
        let is_working = inner.is_working();
        let Some(turn) = inner.running(number) else { return false };
        match response {
            Ok(response) => {
                let key = Arc::as_ptr(self).addr();
                turn.accepted = Some(key);
                let outcome = turn
                    .progress
                    .as_mut()
                    .and_then(|progress| progress.accept(response.message_id, is_working));
                let may_have_ended = turn.progress.as_ref().is_some_and(PromptProgress::has_early_end);
                self.shared.accepted.lock_unpoisoned().insert(key, self.clone());
                match outcome {
                    Some(outcome) => inner.end_turn(number, outcome),
                    None => return may_have_ended,
                }
            }
            // The agent withdrew the prompt from its queue.
            Err(Error::Response(error)) if turn.cancelled && error.code == ErrorCode::REQUEST_CANCELLED => {
                inner.end_turn(number, Ok(PromptResponse::new(StopReason::Cancelled)));
            }
            Err(error) => inner.end_turn(number, Err(error)),
        }
        false
    }

    /// Ends a turn whose work has ended before the response, if no work has begun since.
    pub(crate) fn end_early(&self, number: u64) {
        let mut inner = self.lock();
        let progress = inner.running(number).and_then(|turn| turn.progress.as_mut());
        if let Some(outcome) = progress.and_then(PromptProgress::early_end) {
            inner.end_turn(number, outcome);
        }
    }

    /// Applies the tool call of a permission request of version 2, which is an update of `bytes` on the wire.
    pub(crate) fn apply_call(&self, call: &ToolCallUpdate, bytes: usize) {
        self.lock().apply(&SessionUpdate::from(call.clone()), bytes);
    }

    /// Reads the objects that can be cancelled.
    pub(crate) fn read_cancellable<T>(&self, read: impl FnOnce(&CancellableIds) -> T) -> T {
        read(&self.lock().cancellable)
    }
}

impl EntryState {
    /// Returns true if the agent has reported that foreground work runs.
    fn is_working(&self) -> bool {
        let state = self.conversation.state().foreground.as_ref();
        matches!(state, Some(StateUpdate::Running(_) | StateUpdate::RequiresAction(_)))
    }

    /// Follows the prompt of version 2. Returns the update if it is for the user.
    pub(super) fn progress(&mut self, update: SessionUpdate) -> Option<SessionUpdate> {
        let Some(turn) = &mut self.turn else { return Some(update) };
        let Some(progress) = &mut turn.progress else { return Some(update) };
        match progress.update(update, turn.cancelled) {
            Progress::Deliver(update) => Some(update),
            Progress::Keep => None,
            Progress::End(outcome) => {
                let number = turn.number;
                self.end_turn(number, outcome);
                None
            }
        }
    }

    /// Ends the part of a turn that only version 2 has.
    pub(super) fn release(&mut self, mut turn: RunningTurn) -> RunningTurn {
        if let Some(prompt) = turn.progress.as_mut().and_then(PromptProgress::unreported) {
            self.conversation.prompt(&prompt.prompt);
        }
        if let Some(key) = turn.accepted {
            // The caller has the entry too, so it is not dropped under its own lock.
            self.shared.accepted.lock_unpoisoned().remove(&key);
        }
        turn
    }
}

impl Router {
    /// Ends the turns of version 2 that no response ends.
    pub(crate) fn end_accepted_turns(&self, reason: &Error) {
        let accepted = std::mem::take(&mut *self.shared.accepted.lock_unpoisoned());
        for entry in accepted.into_values() {
            if let Some(number) = entry.running() {
                entry.end_turn(number, Err(reason.clone()));
            }
        }
    }
}

impl Drop for Router {
    /// Releases the sessions of turns that have not ended, for example because the runtime was shut down.
    fn drop(&mut self) {
        drop(std::mem::take(&mut *self.shared.accepted.lock_unpoisoned()));
    }
}
