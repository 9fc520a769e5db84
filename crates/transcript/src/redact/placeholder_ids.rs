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
    /// The UUIDs among the ids as they first appeared, by their digits.
    uuids: HashMap<String, String>,
}

impl IdPlaceholders {
    /// Reserves the number of a session that a request will create.
    pub(crate) fn reserve_session(&mut self) -> u64 {
        self.last_session += 1;
        self.last_session
    }

    /// Takes back the number of a session that was not created, unless a later one is reserved.
    pub(crate) fn release_session(&mut self, number: u64) {
        if number == self.last_session && self.sessions.values().all(|used| *used != number) {
            self.last_session -= 1;
        }
    }

    /// Gives a session its reserved number, unless it has one.
    pub(crate) fn bind_session(&mut self, id: &str, number: u64) {
        self.note_uuid(id);
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
        self.note_uuid(id);
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
        let named = |word: &str| {
            let own = self.known.get(word).and_then(|names| names.get(&scope));
            let name = own.or_else(|| self.whole.get(word));
            name.cloned().or_else(|| Some(format!("[session-{}]", self.sessions.get(word)?)))
        };
        named(word).or_else(|| named(self.other_spelling(word)?))
    }

    /// Keeps the spelling of a UUID: it may appear again without its dashes, or in capitals.
    fn note_uuid(&mut self, id: &str) {
        if let Some(digits) = uuid_digits(id) {
            self.uuids.entry(digits).or_insert_with(|| id.into());
        }
    }

    /// Returns the known spelling of a UUID.
    fn other_spelling(&self, word: &str) -> Option<&str> {
        self.uuids.get(&uuid_digits(word)?).map(String::as_str).filter(|known| *known != word)
    }

    /// Does the same for a text that belongs to no session and may mention all of them.
    pub(crate) fn of_any_session(&self, word: &str) -> Option<String> {
        self.anywhere(None, word).or_else(|| {
            let known = |word: &str| self.known.get(word)?.values().next().cloned();
            known(word).or_else(|| known(self.other_spelling(word)?)).filter(|_| is_distinctive(word))
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

/// Returns the digits of a UUID that is spelled with or without its dashes.
fn uuid_digits(word: &str) -> Option<String> {
    let is_plain = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_plain || is_uuid(word)).then(|| word.replace('-', "").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word is an id anywhere if it has a digit and at least 16 characters.
    #[test]
    fn long_words_with_digits_are_distinctive() {
        for (word, is_id) in
            [("abcdefghijklmno1", true), ("abcdefghijklmnop", false), ("abcdefghijklmn1", false)]
        {
            let mut names = IdPlaceholders::default();
            let name = names.name(Some(1), IdKind::Terminal, word);
            let found = is_id.then_some(name);
            assert_eq!(names.anywhere(Some(1), word), found, "{word}");
            assert_eq!(names.of_any_session(word), found, "{word}");
            assert_eq!(names.anywhere(Some(2), word), None, "{word}");
        }
    }
}
