//! The turn of another client in a session of this one.

use duologue_schema::{Meta, OtherTurnNotification};

use super::{EntryState, Opened, SessionEntry};

impl SessionEntry {
    /// Sets the state from the response that restored the session without a replay.
    pub(crate) fn begin_resumed(&self, opened: Opened<'_>) {
        let mut inner = self.lock();
        inner.note_opened(opened.meta);
        inner.begin_state(opened);
    }

    /// Notes whether the turn of another client runs.
    pub(crate) fn note_other_turn(&self, is_running: bool) {
        self.lock().may_have_other_turn.send_replace(is_running);
    }

    /// Returns true if no turn of this client runs, and one of another client may.
    pub(crate) fn may_have_other_turn(&self) -> bool {
        let inner = self.lock();
        *inner.may_have_other_turn.borrow() && inner.turn.is_none()
    }

    /// Waits until no turn of another client runs.
    pub(crate) async fn other_turn_ended(&self) {
        let mut other = self.lock().may_have_other_turn.subscribe();
        let _ = other.wait_for(|is_running| !is_running).await;
    }
}

impl EntryState {
    /// Notes that the session was loaded or resumed.
    pub(super) fn note_opened(&mut self, meta: Option<&Meta>) {
        self.may_have_other_turn.send_replace(OtherTurnNotification::at_begin(meta).unwrap_or(true));
    }
}
