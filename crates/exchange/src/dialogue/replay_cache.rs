//! The cache that prevents replays of dialogue messages.
//!
//! The cache is bounded, so entries are evicted. An evicted message must not be accepted again. An
//! expired message is rejected for that reason. When an entry that has not expired is evicted,
//! every message of that age or older is rejected from then on ([`ReplayCheck::TooOld`]).
//!
//! Unsigned messages have no authentic sender, so those of one connection share a cache, which ends
//! with the connection. They cannot affect other connections.

use std::collections::{BTreeSet, HashMap};

use duologue_schema::dialogue::{AgentUri, DialogueMessageId, ErrorContent};
use jiff::{SignedDuration, Timestamp};

use crate::limits::REPLAY_MESSAGES;

/// The SHA-256 hash of the canonical form.
pub(super) type Digest = [u8; 32];

/// The result of a lookup.
#[derive(Debug, PartialEq)]
pub(super) enum ReplayCheck {
    /// The message is new, and has been added.
    New,
    /// The same message arrived before, on the same connection.
    Same,
    /// The same message arrived before, on the same connection, and was rejected with this error
    /// after its receipt.
    Refused(Box<ErrorContent>),
    /// The same message arrived before, on another connection.
    Elsewhere,
    /// Another message with that id arrived before.
    Other,
    /// Too old to tell: entries of this age have been evicted, so it may be a replay.
    TooOld,
}

/// The messages that share one limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ReplayScope {
    /// The signed messages of an agent.
    Agent(AgentUri),
    /// The unsigned messages of a connection.
    Connection(u64),
}

/// The sender and the id of a message.
pub(super) type MessageKey = (AgentUri, DialogueMessageId);

/// The properties of a message that the cache needs.
pub(super) struct ReplayEntry {
    pub(super) source: ReplayScope,
    pub(super) name: MessageKey,
    /// The connection on which it arrived.
    pub(super) connection: u64,
    pub(super) digest: Digest,
    pub(super) sent: Timestamp,
    /// The expiry time, if there is one.
    pub(super) expires: Option<Timestamp>,
}

pub(super) struct ReplayCache {
    memories: HashMap<ReplayScope, Memory>,
    /// Maximum number of entries in one scope.
    pub(super) capacity: usize,
    /// Time for which an entry is kept after its expiry, because clocks may be set back.
    grace: SignedDuration,
    /// Messages sent at this time or earlier are not covered by the cache.
    pub(super) since: Timestamp,
}

struct Memory {
    messages: HashMap<MessageKey, Entry>,
    by_age: BTreeSet<(Timestamp, MessageKey)>,
    by_end: BTreeSet<(Timestamp, MessageKey)>,
    /// Messages sent at this time or earlier may have been evicted.
    forgotten: Timestamp,
}

struct Entry {
    connection: u64,
    digest: Digest,
    sent: Timestamp,
    end: Option<Timestamp>,
    /// The error of a message that was rejected after its receipt.
    refused: Option<Box<ErrorContent>>,
}

impl ReplayCache {
    pub(super) fn new(capacity: usize, grace: SignedDuration, since: Timestamp) -> Self {
        ReplayCache { memories: HashMap::new(), capacity, grace, since }
    }

    /// Looks up a message and adds it if it is new. Expired messages have to be rejected before.
    pub(super) fn see(&mut self, message: &ReplayEntry, now: Timestamp) -> ReplayCheck {
        let memory = self.memories.entry(message.source.clone()).or_insert_with(|| Memory {
            messages: HashMap::new(),
            by_age: BTreeSet::new(),
            by_end: BTreeSet::new(),
            forgotten: self.since,
        });
        memory.expire(now);
        if let Some(entry) = memory.messages.get(&message.name) {
            return match entry.digest == message.digest {
                true if entry.connection == message.connection => {
                    entry.refused.clone().map_or(ReplayCheck::Same, ReplayCheck::Refused)
                }
                true => ReplayCheck::Elsewhere,
                false => ReplayCheck::Other,
            };
        }
        if message.sent <= memory.forgotten {
            return ReplayCheck::TooOld;
        }
        let end = message.expires.map(|end| end.saturating_add(self.grace).unwrap_or(Timestamp::MAX));
        memory.add(message, end);
        if memory.messages.len() > self.capacity {
            memory.make_room();
        }
        let all: usize = self.memories.values().map(|memory| memory.messages.len()).sum();
        let first = |(source, memory): &(&ReplayScope, &mut Memory)| {
            let unsigned = matches!(source, ReplayScope::Connection(_)) && !memory.messages.is_empty();
            (unsigned, memory.messages.len())
        };
        if all > REPLAY_MESSAGES
            && let Some((_, memory)) = self.memories.iter_mut().max_by_key(first)
        {
            memory.make_room();
        }
        ReplayCheck::New
    }

    /// Records that a message was rejected after its receipt.
    pub(super) fn refuse(&mut self, source: &ReplayScope, name: &MessageKey, error: &ErrorContent) {
        let entry = self.memories.get_mut(source).and_then(|memory| memory.messages.get_mut(name));
        if let Some(entry) = entry {
            entry.refused = Some(Box::new(error.clone()));
        }
    }

    /// Removes a message that was rejected before it had a receipt.
    pub(super) fn forget(&mut self, source: &ReplayScope, name: &MessageKey) {
        if let Some(memory) = self.memories.get_mut(source) {
            memory.remove(name);
        }
    }

    /// Removes the entries of a connection that has ended.
    pub(super) fn leave(&mut self, connection: u64) {
        self.memories.remove(&ReplayScope::Connection(connection));
    }
}

impl Memory {
    fn add(&mut self, message: &ReplayEntry, end: Option<Timestamp>) {
        let ReplayEntry { name, connection, digest, sent, .. } = message;
        self.by_age.insert((*sent, name.clone()));
        if let Some(end) = end {
            self.by_end.insert((end, name.clone()));
        }
        let entry = Entry { connection: *connection, digest: *digest, sent: *sent, end, refused: None };
        self.messages.insert(name.clone(), entry);
    }

    fn remove(&mut self, name: &MessageKey) {
        let Some(entry) = self.messages.remove(name) else { return };
        self.by_age.remove(&(entry.sent, name.clone()));
        if let Some(end) = entry.end {
            self.by_end.remove(&(end, name.clone()));
        }
    }

    /// Removes expired entries: such messages would be rejected as expired.
    fn expire(&mut self, now: Timestamp) {
        while let Some((end, name)) = self.by_end.first()
            && *end < now
        {
            let name = name.clone();
            self.remove(&name);
        }
    }

    /// Evicts the oldest entry. Messages of that age are rejected from now on.
    fn make_room(&mut self) {
        if let Some((sent, name)) = self.by_age.first() {
            let (sent, name) = (*sent, name.clone());
            self.forgotten = self.forgotten.max(sent);
            self.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: SignedDuration = SignedDuration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn source() -> ReplayScope {
        ReplayScope::Agent("agent://a".into())
    }

    fn name(id: &str) -> MessageKey {
        ("agent://a".into(), id.into())
    }

    struct One(ReplayCache);

    impl One {
        fn new(capacity: usize) -> Self {
            One(ReplayCache::new(capacity, GRACE, Timestamp::MIN))
        }

        fn see(&mut self, id: &str, digest: u8, sent: i64, ttl: Option<i64>, now: i64) -> ReplayCheck {
            let expires = ttl.map(|ttl| at(sent + ttl));
            let (digest, sent) = ([digest; 32], at(sent));
            self.0.see(
                &ReplayEntry { source: source(), name: name(id), connection: 0, digest, sent, expires },
                at(now),
            )
        }

        fn remembers(&self) -> usize {
            self.0.memories.values().map(|memory| memory.messages.len()).sum()
        }
    }

    #[test]
    fn repetitions_and_conflicts_are_distinguished() {
        let mut memory = One::new(10);
        assert_eq!(memory.see("m", 1, 0, None, 0), ReplayCheck::New);
        assert_eq!(memory.see("m", 1, 0, None, 900_000), ReplayCheck::Same);
        assert_eq!(memory.see("m", 2, 5, None, 900_000), ReplayCheck::Other);
        memory.0.forget(&source(), &name("m"));
        assert_eq!(memory.see("m", 2, 5, None, 5), ReplayCheck::New);
    }

    #[test]
    fn a_rejection_is_repeated_for_the_same_message_alone() {
        let mut memory = One::new(10);
        memory.see("m", 1, 0, None, 0);
        memory.see("n", 1, 0, None, 0);
        let error = ErrorContent::of(duologue_schema::dialogue::DialogueErrorCode::Conflict, "used");
        memory.0.refuse(&source(), &name("m"), &error);
        memory.0.refuse(&source(), &name("none"), &error);
        memory.0.refuse(&ReplayScope::Connection(0), &name("n"), &error);
        assert_eq!(memory.see("m", 1, 0, None, 0), ReplayCheck::Refused(Box::new(error)));
        assert_eq!(memory.see("m", 2, 0, None, 0), ReplayCheck::Other);
        assert_eq!(memory.see("n", 1, 0, None, 0), ReplayCheck::Same);
    }

    #[test]
    fn expired_entries_are_kept_for_the_grace_period() {
        let mut memory = One::new(10);
        assert_eq!(memory.see("m", 1, 0, Some(10), 0), ReplayCheck::New);
        assert_eq!(memory.see("n", 1, 0, Some(10), 70), ReplayCheck::New);
        assert_eq!(memory.remembers(), 2);
        assert_eq!(memory.see("o", 1, 71, None, 71), ReplayCheck::New);
        assert_eq!(memory.remembers(), 1);
    }

    #[test]
    fn messages_as_old_as_evicted_ones_are_rejected() {
        let mut memory = One::new(2);
        for (id, sent) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(memory.see(id, 1, sent, None, 9), ReplayCheck::New);
        }
        assert_eq!(memory.see("a", 1, 1, None, 9), ReplayCheck::TooOld);
        assert_eq!(memory.see("never came", 1, 1, None, 9), ReplayCheck::TooOld);
        assert_eq!(memory.see("b", 1, 2, None, 9), ReplayCheck::Same);
        assert_eq!(memory.see("never came", 1, 2, None, 9), ReplayCheck::New);
        assert_eq!(memory.see("b", 1, 2, None, 9), ReplayCheck::TooOld);
    }

    #[test]
    fn signed_messages_are_shared_between_connections_and_unsigned_ones_are_not() {
        let mut seen = ReplayCache::new(9, GRACE, at(0));
        let mut see = |source: &ReplayScope, connection| {
            let (source, name) = (source.clone(), name("m"));
            seen.see(
                &ReplayEntry { source, name, connection, digest: [0; 32], sent: at(1), expires: None },
                at(1),
            )
        };
        assert_eq!([see(&source(), 1), see(&source(), 1)], [ReplayCheck::New, ReplayCheck::Same]);
        assert_eq!(see(&source(), 2), ReplayCheck::Elsewhere);
        let (one, other) = (ReplayScope::Connection(1), ReplayScope::Connection(2));
        assert_eq!(
            [see(&one, 1), see(&one, 1), see(&other, 2)],
            [ReplayCheck::New, ReplayCheck::Same, ReplayCheck::New]
        );
        seen.leave(1);
        assert!(!seen.memories.contains_key(&one) && seen.memories.contains_key(&other));
    }

    #[test]
    fn unsigned_messages_do_not_evict_signed_ones() {
        const EACH: usize = 4096;
        let mut seen = ReplayCache::new(EACH, GRACE, Timestamp::MIN);
        let mut see = |source: &ReplayScope, connection, id: usize| {
            let (source, name) = (source.clone(), (format!("agent://{id}").into(), "m".into()));
            let sent = at(i64::try_from(id).unwrap());
            seen.see(
                &ReplayEntry { source, name, connection, digest: [0; 32], sent, expires: None },
                at(9_999),
            )
        };
        for id in 0..EACH {
            assert_eq!(see(&source(), 0, id), ReplayCheck::New);
        }
        for connection in 1..=(REPLAY_MESSAGES / EACH) as u64 {
            for id in 0..=EACH {
                assert_eq!(see(&ReplayScope::Connection(connection), connection, id), ReplayCheck::New);
            }
            assert_eq!(see(&ReplayScope::Connection(connection), connection, 0), ReplayCheck::TooOld);
        }
        assert_eq!(see(&source(), 0, 0), ReplayCheck::Same);
        assert_eq!(see(&ReplayScope::Connection(99), 99, 0), ReplayCheck::New);
        let all: usize = seen.memories.values().map(|memory| memory.messages.len()).sum();
        assert_eq!(all, REPLAY_MESSAGES);
    }

    #[test]
    fn messages_from_before_the_cache_are_rejected() {
        let mut memory = One(ReplayCache::new(9, GRACE, at(100)));
        assert_eq!(memory.see("m", 1, 100, None, 200), ReplayCheck::TooOld);
        assert_eq!(memory.see("m", 1, 101, None, 200), ReplayCheck::New);
    }

    proptest! {
        /// Every message is accepted at most once, for any cache size and any age.
        #[test]
        fn no_message_is_accepted_twice(
            capacity in 1..6_usize,
            arrivals in proptest::collection::vec((0..12_u8, 0..3_i64), 0..80),
        ) {
            let mut memory = One::new(capacity);
            let mut taken = std::collections::HashSet::new();
            let mut now = 0;
            for (message, pause) in arrivals {
                now += pause;
                let (sent, ttl) = (i64::from(message) * 3, (message % 3 == 0).then_some(20));
                if ttl.is_some_and(|ttl| sent + ttl < now) {
                    continue;
                }
                if memory.see(&message.to_string(), message, sent, ttl, now) == ReplayCheck::New {
                    prop_assert!(taken.insert(message), "{message} was taken twice");
                }
                prop_assert!(memory.remembers() <= capacity);
            }
        }
    }
}
