//! The session that a message of the agent names.

use std::ops::Range;
use std::sync::LazyLock;

use duologue_rpc::raw_message::{beginning, member, splice, text};
use duologue_schema::{Patch, SessionId, SessionNotification, SessionUpdate};

use super::SessionTask;
use crate::child_sessions::with_session_ids;
use crate::chunk_line;

impl SessionTask {
    /// Returns a message of the agent with the id that clients know the session by.
    pub(super) fn with_own_session(&self, line: Vec<u8>) -> Vec<u8> {
        if let Some(line) = chunk_line::with_session(&line, &self.agent_session, &self.id) {
            return line;
        }
        let own =
            with_session_ids(&line, |id| (id == self.agent_session).then(|| self.id.as_str().to_owned()));
        own.unwrap_or(line)
    }
}

/// The messages of an agent that come before the id of its session.
#[derive(Debug, Default)]
pub(super) struct EarlyLines {
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

impl EarlyLines {
    /// Limit on the lines that are kept. Further ones are dropped.
    const LINES: usize = 256;
    /// Limit on their bytes.
    const BYTES: usize = 16 << 20;

    /// Keeps a notification that comes too early. Returns any other line.
    pub(super) fn keep(&mut self, line: Vec<u8>, is_early: bool) -> Option<Vec<u8>> {
        let is_notification = is_early && member(&line, "id").is_none();
        if !is_notification {
            return Some(line);
        }
        if self.lines.len() < Self::LINES && self.bytes + line.len() <= Self::BYTES {
            self.bytes += line.len();
            self.lines.push(line);
        } else {
            tracing::warn!("dropped a line that the agent sent before its session is open");
        }
        None
    }

    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(self).lines
    }
}

/// Returns the place of the `sessionId` in the params of a message.
fn session_place(line: &[u8]) -> Option<Range<usize>> {
    let params = member(line, "params")?;
    let id = member(line.get(params.clone())?, "sessionId")?;
    Some(params.start + id.start..params.start + id.end)
}

fn replaced(line: Vec<u8>, place: Range<usize>, id: &str) -> Vec<u8> {
    let id = serde_json::to_vec(id).ok();
    id.and_then(|id| splice(&line, place, &id)).unwrap_or(line)
}

/// Replaces the id of a session in the params of a message. A message of another session stays as it is.
pub(super) fn with_session(line: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let place = session_place(&line);
    let is_named = |place: &Range<usize>| line.get(place.clone()).and_then(text).as_deref() == Some(from);
    match place.filter(is_named) {
        Some(place) => replaced(line, place, to),
        None => line,
    }
}

/// Returns the title in an update of the session, `Some(None)` if the update removes it.
pub(super) fn new_title(line: &[u8], session: &SessionId) -> Option<Option<String>> {
    /// Made once, because each line is searched.
    static UPDATE: LazyLock<memchr::memmem::Finder<'static>> =
        LazyLock::new(|| memchr::memmem::Finder::new(b"session_info_update"));
    UPDATE.find(line)?;
    let params = line.get(member(line, "params")?)?;
    let update: SessionNotification = serde_json::from_slice(params).ok()?;
    match update.update {
        SessionUpdate::SessionInfoUpdate(info) if update.session_id == *session => match info.title {
            Patch::Keep => None,
            Patch::Clear => Some(None),
            Patch::Set(title) => Some(Some(shortened(title))),
        },
        _ => None,
    }
}

/// Limit on the title of a session in lists, in bytes. A list of sessions is one message.
const TITLE_BYTES: usize = 1024;

fn shortened(mut title: String) -> String {
    if title.len() > TITLE_BYTES {
        title.truncate(beginning(&title, TITLE_BYTES).len());
        title.push('…');
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_no_title_of_another_one() {
        let title = |session: &str| {
            let update = r#"{"sessionUpdate":"session_info_update","title":"t"}"#;
            let line = format!(r#"{{"params":{{"sessionId":"{session}","update":{update}}}}}"#);
            new_title(line.as_bytes(), &"s".into())
        };
        assert_eq!((title("s"), title("child")), (Some(Some("t".to_owned())), None));
    }

    #[test]
    fn a_long_title_is_cut_between_characters() {
        assert_eq!(shortened("t".repeat(TITLE_BYTES)).len(), TITLE_BYTES);
        let cut = shortened("é".repeat(TITLE_BYTES));
        assert_eq!(cut, "é".repeat(TITLE_BYTES / 2) + "…");
    }
}
