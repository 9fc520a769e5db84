//! Ids, numbered in the order in which they appear: within their session, so that sessions which
//! have nothing to do with each other do not change each other's numbers.

use std::collections::{BTreeMap, HashMap};

/// The number of a session, or none for what concerns the whole connection.
pub(crate) type SessionNumber = Option<u64>;

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IdKind {
    Session,
    Message,
    ToolCall,
    Terminal,
    Elicitation,
    Compaction,
    Envelope,
    Agent,
    Dialogue,
    /// A message of a dialogue, which an agent's message is not.
    DialogueMessage,
    /// Something of which only the form is known.
    Other,
}

impl IdKind {
    /// Those whose numbers count within a session and say no more than that.
    pub(crate) const PLAIN: [IdKind; 8] = [
        IdKind::Session,
        IdKind::Message,
        IdKind::ToolCall,
        IdKind::Terminal,
        IdKind::Elicitation,
        IdKind::Compaction,
        IdKind::Agent,
        IdKind::Other,
    ];
    /// Those that mean the same on the whole connection: who receives one twice takes it for the same. Their names
    /// hold the session in which they appeared, so that each session counts its own.
    pub(crate) const WHOLE: [IdKind; 3] = [IdKind::Envelope, IdKind::Dialogue, IdKind::DialogueMessage];

    /// What the member of this name holds: `parentToolCallId` names a tool call.
    pub(crate) fn of_member(name: &str) -> Option<IdKind> {
        const ENDS: &[(&str, IdKind)] = &[
            ("sessionid", IdKind::Session),
            ("messageid", IdKind::Message),
            ("toolcallid", IdKind::ToolCall),
            ("tooluseid", IdKind::ToolCall),
            ("terminalid", IdKind::Terminal),
            ("elicitationid", IdKind::Elicitation),
            ("compactionid", IdKind::Compaction),
        ];
        if !name.ends_with("Id") && !name.ends_with("_id") && !name.ends_with("ID") {
            return None;
        }
        let plain: String =
            name.chars().filter(|char| *char != '_').map(|char| char.to_ascii_lowercase()).collect();
        ENDS.iter().find(|(end, _)| plain.ends_with(end)).map(|(_, kind)| *kind)
    }

    /// Whether one is the same in all sessions.
    fn is_whole(self) -> bool {
        self == IdKind::Agent || IdKind::WHOLE.contains(&self)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            IdKind::Session => "session",
            IdKind::Message | IdKind::DialogueMessage => "message",
            IdKind::ToolCall => "tool-call",
            IdKind::Terminal => "terminal",
            IdKind::Elicitation => "elicitation",
            IdKind::Compaction => "compaction",
            IdKind::Envelope => "envelope",
            IdKind::Agent => "agent",
            IdKind::Dialogue => "dialogue",
            IdKind::Other => "id",
        }
    }
}

/// The ids that have appeared, and their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdPlaceholders {
    sessions: HashMap<String, u64>,
    last_session: u64,
    counts: HashMap<(SessionNumber, IdKind), u64>,
    ids: HashMap<(SessionNumber, IdKind, String), String>,
    /// The same by the id alone.
    known: HashMap<String, BTreeMap<SessionNumber, String>>,
    /// Those that are the same in all sessions.
    whole: HashMap<String, String>,
}

impl IdPlaceholders {
    /// The number of a session that a request is about to make.
    pub(crate) fn reserve_session(&mut self) -> u64 {
        self.last_session += 1;
        self.last_session
    }

    /// The reserved number is that of this session, unless it has one.
    pub(crate) fn bind_session(&mut self, id: &str, number: u64) {
        if !self.sessions.contains_key(id) {
            self.sessions.insert(id.into(), number);
        }
    }

    /// The number of a session.
    pub(crate) fn session(&mut self, id: &str) -> u64 {
        if let Some(number) = self.sessions.get(id) {
            return *number;
        }
        let number = self.reserve_session();
        self.bind_session(id, number);
        number
    }

    /// The name of an id that stands where its kind is known.
    pub(crate) fn name(&mut self, scope: SessionNumber, kind: IdKind, id: &str) -> String {
        if kind == IdKind::Session {
            return format!("[session-{}]", self.session(id));
        }
        // Where it means the same.
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

    /// The name of an id that stands anywhere, if it is one that cannot be anything else. A short id
    /// (`1`, `default`) is often an ordinary word too. Of other sessions only the sessions themselves are
    /// known here, and what is the same in all: what another has called `[id-1]` says nothing, and may be
    /// something else here.
    pub(crate) fn anywhere(&self, scope: SessionNumber, word: &str) -> Option<String> {
        if !is_distinctive(word) {
            return None;
        }
        let own = self.known.get(word).and_then(|names| names.get(&scope));
        let name = own.or_else(|| self.whole.get(word));
        name.cloned().or_else(|| Some(format!("[session-{}]", self.sessions.get(word)?)))
    }

    /// The same for what was not said on the wire and speaks of all sessions.
    pub(crate) fn of_any_session(&self, word: &str) -> Option<String> {
        self.anywhere(None, word).or_else(|| {
            let names = self.known.get(word).filter(|_| is_distinctive(word))?;
            names.values().next().cloned()
        })
    }
}

/// Whether a word is long and mixed enough to be nothing but an id.
pub(crate) fn is_distinctive(word: &str) -> bool {
    word.len() >= 16 && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether a word is a UUID.
pub(crate) fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
