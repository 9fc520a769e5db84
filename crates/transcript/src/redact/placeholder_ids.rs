//! Placeholders of ids, numbered in the order of their appearance. Each session counts its own, so that
//! independent sessions do not change each other's numbers.

use std::collections::{BTreeMap, HashMap};

use crate::id_paths::IdKind;

/// The number of a session; `None` for the whole connection.
pub(crate) type SessionNumber = Option<u64>;

/// The placeholders of all ids so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdPlaceholders {
    sessions: HashMap<String, u64>,
    last_session: u64,
    counts: HashMap<(SessionNumber, IdKind), u64>,
    ids: HashMap<(SessionNumber, IdKind, String), String>,
    /// The placeholders by id and session, of any kind.
    known: HashMap<String, BTreeMap<SessionNumber, String>>,
    /// The placeholders of ids that mean the same in all sessions.
    whole: HashMap<String, String>,
}

impl IdPlaceholders {
    /// Reserves the number of a session that a request will create.
    pub(crate) fn reserve_session(&mut self) -> u64 {
        self.last_session += 1;
        self.last_session
    }

    /// Gives a session its reserved number, unless it has one.
    pub(crate) fn bind_session(&mut self, id: &str, number: u64) {
        self.sessions.entry(id.into()).or_insert(number);
    }

    /// Returns the number of a session.
    pub(crate) fn session(&mut self, id: &str) -> u64 {
        if let Some(number) = self.sessions.get(id) {
            return *number;
        }
        let number = self.reserve_session();
        self.bind_session(id, number);
        number
    }

    /// Returns the placeholder of an id of a known kind.
    pub(crate) fn name(&mut self, scope: SessionNumber, kind: IdKind, id: &str) -> String {
        if kind == IdKind::Session {
            return format!("[session-{}]", self.session(id));
        }
        // The session in which the id has this meaning.
        let realm = scope.filter(|_| !kind.is_whole());
        let key = (realm, kind, id.to_owned());
        if let Some(name) = self.ids.get(&key) {
            return name.clone();
        }
        let scope = scope.filter(|_| kind != IdKind::Agent);
        let count = self.counts.entry((scope, kind)).or_default();
        *count += 1;
        let name = match scope.filter(|_| kind.is_whole()) {
            Some(session) => format!("[session-{session}.{}-{count}]", kind.name()),
            None => format!("[{}-{count}]", kind.name()),
        };
        if kind.is_whole() {
            self.whole.entry(id.into()).or_insert_with(|| name.clone());
        } else {
            self.known.entry(id.into()).or_default().entry(scope).or_insert_with(|| name.clone());
        }
        self.ids.insert(key, name.clone());
        name
    }

    /// Returns the placeholder of a word in any text, if it is a known and distinctive id. A short id (`1`, `default`) is
    /// often an ordinary word. Of other sessions, only their own ids are known here, and the ids that mean the same
    /// everywhere. Their other ids are not, since they may mean something else here.
    pub(crate) fn anywhere(&self, scope: SessionNumber, word: &str) -> Option<String> {
        if !is_distinctive(word) {
            return None;
        }
        let own = self.known.get(word).and_then(|names| names.get(&scope));
        let name = own.or_else(|| self.whole.get(word));
        name.cloned().or_else(|| Some(format!("[session-{}]", self.sessions.get(word)?)))
    }

    /// Does the same for a text that belongs to no session and may mention all of them.
    pub(crate) fn of_any_session(&self, word: &str) -> Option<String> {
        self.anywhere(None, word).or_else(|| {
            let names = self.known.get(word).filter(|_| is_distinctive(word))?;
            names.values().next().cloned()
        })
    }
}

/// Returns true for a word that is too long and mixed to be anything but an id.
pub(crate) fn is_distinctive(word: &str) -> bool {
    word.len() >= 16 && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns true for a UUID.
pub(crate) fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
