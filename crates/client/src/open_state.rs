//! The state of a session for which loads, resumes and closes run at the same time: open or closed.

use std::path::PathBuf;

/// A load or resume without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestoreTicket {
    /// The number of the restore in its session.
    pub(crate) number: u64,
}

/// The state of a session: open or closed. The updates of a closed session are dropped.
///
/// A session is open while a restore runs, unless a close that was sent later has succeeded. Then the last request with a
/// successful response decides, in the order in which the requests were sent. So a close does not end a session that was
/// restored after it, and restores that fail do not open a closed session.
#[derive(Default)]
pub(crate) struct OpenState {
    /// The folders of the session, if the last successful request has opened it.
    confirmed: Option<Vec<PathBuf>>,
    /// The order of that request, see [`confirm`](Self::confirm).
    order: u64,
    /// The restores without a response and their folders, the latest last.
    restoring: Vec<(RestoreTicket, Vec<PathBuf>)>,
}

impl OpenState {
    /// Returns the state of a new session.
    pub(crate) fn opened(folders: Vec<PathBuf>) -> Self {
        OpenState { confirmed: Some(folders), ..OpenState::default() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.folders().is_some()
    }

    /// Returns the folders of an open session: those of the latest restore, unless it was refused.
    pub(crate) fn folders(&self) -> Option<&[PathBuf]> {
        let latest = self.restoring.last().filter(|(ticket, _)| 2 * ticket.number > self.order);
        latest.map(|(_, folders)| folders).or(self.confirmed.as_ref()).map(Vec::as_slice)
    }

    /// Applies a successful request. A restore of number `n` has the order `2n`, and a close that was sent after it `2n + 1`.
    fn confirm(&mut self, order: u64, folders: Option<Vec<PathBuf>>) {
        if order >= self.order {
            (self.order, self.confirmed) = (order, folders);
        }
    }

    pub(crate) fn begin_restore(&mut self, ticket: RestoreTicket, folders: Vec<PathBuf>) {
        self.restoring.push((ticket, folders));
    }

    /// Ends a restore, unless it has ended.
    pub(crate) fn end_restore(&mut self, ticket: RestoreTicket, is_restored: bool) {
        let Some(place) = self.restoring.iter().position(|(running, _)| *running == ticket) else { return };
        let (_, folders) = self.restoring.remove(place);
        if is_restored {
            self.confirm(2 * ticket.number, Some(folders));
        }
    }

    /// Applies a close that was sent after `restored` restores.
    pub(crate) fn close(&mut self, restored: u64) {
        self.restoring.retain(|(ticket, _)| ticket.number > restored);
        self.confirm(2 * restored + 1, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders in which two restores of a closed session and a close between them can end.
    #[test]
    fn the_last_successful_request_decides_about_a_session() {
        let [one, two] = [1, 2].map(|number| RestoreTicket { number });
        for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                for is_closed in [true, false] {
                    let mut state = OpenState::default();
                    state.begin_restore(one, Vec::new());
                    state.begin_restore(two, Vec::new());
                    let mut running = vec![0, 2];
                    for event in order {
                        match event {
                            0 => state.end_restore(one, first),
                            1 if is_closed => state.close(1),
                            1 => {}
                            _ => state.end_restore(two, second),
                        }
                        running.retain(|restore| {
                            *restore != event && !(event == 1 && is_closed && *restore == 0)
                        });
                        assert!(running.is_empty() || state.is_open(), "{order:?} {event}");
                    }
                    let expected = second || (first && !is_closed);
                    assert_eq!(state.is_open(), expected, "{first} {second} {is_closed} {order:?}");
                    // A late response to an abandoned load changes nothing.
                    state.end_restore(one, !first);
                    assert_eq!(state.is_open(), expected);
                }
            }
        }
    }
}
