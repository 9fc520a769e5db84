//! What came before, so that nothing is taken twice.
//!
//! The memory of each sender is bounded, and a bounded memory forgets. What is forgotten must not be taken
//! again: a message that has expired no longer needs to be remembered, and where one that has not makes room
//! for a newer one, whatever is as old as it is refused from then on ([`Fresh::TooOld`]).

use std::collections::{BTreeSet, HashMap};

use duologue_schema::dialogue::{AgentUri, DialogueMessageId};
use jiff::{SignedDuration, Timestamp};

/// Most senders that are remembered. Those with keys are not counted out: they are no more than there are keys.
const SENDERS: usize = 1024;

/// Most messages that are remembered altogether. Who sent the most forgets first.
const MESSAGES: usize = 65_536;

/// SHA-256 of the canonical form.
pub(super) type Digest = [u8; 32];

/// What the memory says to a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// It is new, and remembered now.
    New,
    /// The same message came before.
    Same,
    /// Another message came before under that id.
    Other,
    /// It may have come before, but what is as old as it was forgotten.
    TooOld,
    /// There are too many senders.
    Full,
}

/// A message, as far as the memory needs to know it.
pub(super) struct Sighting<'a> {
    pub(super) sender: &'a AgentUri,
    /// Whether it has signed this, and so is who it says it is.
    pub(super) known: bool,
    pub(super) id: &'a DialogueMessageId,
    pub(super) digest: Digest,
    pub(super) sent: Timestamp,
    /// When it expires, if it does.
    pub(super) expires: Option<Timestamp>,
}

pub(super) struct Seen {
    senders: HashMap<AgentUri, Sender>,
    /// Most messages of one sender that are remembered.
    pub(super) capacity: usize,
    /// How long after its end a message is remembered, since clocks are also set back.
    pub(super) grace: SignedDuration,
    /// What was sent no later than this was never remembered.
    pub(super) since: Timestamp,
}

struct Sender {
    messages: HashMap<DialogueMessageId, Entry>,
    by_age: BTreeSet<(Timestamp, DialogueMessageId)>,
    by_end: BTreeSet<(Timestamp, DialogueMessageId)>,
    /// What was sent no later than this may have been forgotten.
    forgotten: Timestamp,
}

struct Entry {
    digest: Digest,
    sent: Timestamp,
    end: Option<Timestamp>,
}

impl Seen {
    pub(super) fn new(capacity: usize, grace: SignedDuration, since: Timestamp) -> Self {
        Seen { senders: HashMap::new(), capacity, grace, since }
    }

    /// Looks a message up, and remembers it if it is new. One that has expired must not get here.
    pub(super) fn see(&mut self, message: &Sighting<'_>, now: Timestamp) -> Fresh {
        if !message.known && !self.senders.contains_key(message.sender) && self.senders.len() >= SENDERS {
            self.senders.retain(|_, sender| {
                sender.expire(now);
                !sender.messages.is_empty() || sender.forgotten > self.since
            });
            if self.senders.len() >= SENDERS {
                return Fresh::Full;
            }
        }
        let sender = self.senders.entry(message.sender.clone()).or_insert_with(|| Sender {
            messages: HashMap::new(),
            by_age: BTreeSet::new(),
            by_end: BTreeSet::new(),
            forgotten: self.since,
        });
        sender.expire(now);
        if let Some(entry) = sender.messages.get(message.id) {
            return if entry.digest == message.digest { Fresh::Same } else { Fresh::Other };
        }
        if message.sent <= sender.forgotten {
            return Fresh::TooOld;
        }
        let end = message.expires.map(|end| end.saturating_add(self.grace).unwrap_or(Timestamp::MAX));
        sender.add(message, end);
        if sender.messages.len() > self.capacity {
            sender.make_room();
        }
        let all: usize = self.senders.values().map(|sender| sender.messages.len()).sum();
        if all > MESSAGES
            && let Some(sender) = self.senders.values_mut().max_by_key(|sender| sender.messages.len())
        {
            sender.make_room();
        }
        Fresh::New
    }

    /// Forgets a message that was not taken after all.
    pub(super) fn forget(&mut self, sender: &AgentUri, id: &DialogueMessageId, digest: &Digest) {
        if let Some(sender) = self.senders.get_mut(sender)
            && sender.messages.get(id).is_some_and(|entry| entry.digest == *digest)
        {
            sender.remove(id);
        }
    }
}

impl Sender {
    fn add(&mut self, message: &Sighting<'_>, end: Option<Timestamp>) {
        self.by_age.insert((message.sent, message.id.clone()));
        if let Some(end) = end {
            self.by_end.insert((end, message.id.clone()));
        }
        let entry = Entry { digest: message.digest, sent: message.sent, end };
        self.messages.insert(message.id.clone(), entry);
    }

    fn remove(&mut self, id: &DialogueMessageId) {
        let Some(entry) = self.messages.remove(id) else { return };
        self.by_age.remove(&(entry.sent, id.clone()));
        if let Some(end) = entry.end {
            self.by_end.remove(&(end, id.clone()));
        }
    }

    /// Forgets what has expired: it would be refused for that.
    fn expire(&mut self, now: Timestamp) {
        while let Some((end, id)) = self.by_end.first()
            && *end < now
        {
            let id = id.clone();
            self.remove(&id);
        }
    }

    /// Forgets the oldest. It is told from what never came by its age from now on.
    fn make_room(&mut self) {
        if let Some((sent, id)) = self.by_age.first() {
            let (sent, id) = (*sent, id.clone());
            self.forgotten = self.forgotten.max(sent);
            self.remove(&id);
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

    struct Memory(Seen);

    impl Memory {
        fn new(capacity: usize) -> Self {
            Memory(Seen::new(capacity, GRACE, Timestamp::MIN))
        }

        fn see(&mut self, id: &str, digest: u8, sent: i64, ttl: Option<i64>, now: i64) -> Fresh {
            let sighting = Sighting {
                sender: &"agent://a".into(),
                known: true,
                id: &id.into(),
                digest: [digest; 32],
                sent: at(sent),
                expires: ttl.map(|ttl| at(sent + ttl)),
            };
            self.0.see(&sighting, at(now))
        }

        fn remembers(&self) -> usize {
            self.0.senders.values().map(|sender| sender.messages.len()).sum()
        }
    }

    #[test]
    fn the_same_and_another_under_one_id() {
        let mut memory = Memory::new(10);
        assert_eq!(memory.see("m", 1, 0, None, 0), Fresh::New);
        assert_eq!(memory.see("m", 1, 0, None, 900_000), Fresh::Same);
        assert_eq!(memory.see("m", 2, 5, None, 900_000), Fresh::Other);
        memory.0.forget(&"agent://a".into(), &"m".into(), &[2; 32]);
        assert_eq!(memory.see("m", 1, 0, None, 0), Fresh::Same);
        memory.0.forget(&"agent://a".into(), &"m".into(), &[1; 32]);
        assert_eq!(memory.see("m", 2, 5, None, 5), Fresh::New);
    }

    #[test]
    fn what_expired_is_remembered_a_little_longer() {
        let mut memory = Memory::new(10);
        assert_eq!(memory.see("m", 1, 0, Some(10), 0), Fresh::New);
        assert_eq!(memory.see("n", 1, 0, Some(10), 70), Fresh::New);
        assert_eq!(memory.remembers(), 2);
        assert_eq!(memory.see("o", 1, 71, None, 71), Fresh::New);
        assert_eq!(memory.remembers(), 1);
    }

    #[test]
    fn what_is_as_old_as_the_forgotten_is_refused() {
        let mut memory = Memory::new(2);
        for (id, sent) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(memory.see(id, 1, sent, None, 9), Fresh::New);
        }
        assert_eq!(memory.see("a", 1, 1, None, 9), Fresh::TooOld);
        assert_eq!(memory.see("never came", 1, 1, None, 9), Fresh::TooOld);
        assert_eq!(memory.see("b", 1, 2, None, 9), Fresh::Same);
        assert_eq!(memory.see("never came", 1, 2, None, 9), Fresh::New);
        assert_eq!(memory.see("b", 1, 2, None, 9), Fresh::TooOld);
    }

    #[test]
    fn another_sender_has_a_memory_of_its_own_up_to_a_bound() {
        let mut seen = Seen::new(1, GRACE, at(0));
        let mut see_as = |known, sender: usize, id: &str, sent| {
            let sender = AgentUri::from(format!("agent://{sender}"));
            let (id, digest) = (id.into(), [0; 32]);
            let expires = Some(at(sent + 1));
            let sent = at(sent);
            seen.see(&Sighting { sender: &sender, known, id: &id, digest, sent, expires }, sent)
        };
        assert_eq!(see_as(true, SENDERS + 1, "m", 10), Fresh::New);
        let mut see = |sender, id, sent| see_as(false, sender, id, sent);
        for sender in 1..SENDERS {
            assert_eq!(see(sender, "m", 10), Fresh::New);
        }
        assert_eq!(see(SENDERS, "m", 10), Fresh::Full);
        assert_eq!(see(1, "m", 10), Fresh::Same);
        // Where everything of a sender expired, nothing has to be remembered.
        assert_eq!(see_as(false, SENDERS, "m", 100), Fresh::New);
        // Whoever has a key has a place.
        for sender in 1..SENDERS {
            assert_eq!(see_as(false, sender, "n", 100), Fresh::New);
        }
        assert_eq!(see_as(false, 0, "m", 100), Fresh::Full);
        assert_eq!(see_as(true, 0, "m", 100), Fresh::New);
    }

    #[test]
    fn nothing_from_before_the_memory() {
        let mut memory = Memory(Seen::new(9, GRACE, at(100)));
        assert_eq!(memory.see("m", 1, 100, None, 200), Fresh::TooOld);
        assert_eq!(memory.see("m", 1, 101, None, 200), Fresh::New);
    }

    proptest! {
        /// However small the memory, however old the messages: what was taken once is never taken again.
        #[test]
        fn nothing_is_taken_twice(
            capacity in 1..6_usize,
            arrivals in proptest::collection::vec((0..12_u8, 0..3_i64), 0..80),
        ) {
            let mut memory = Memory::new(capacity);
            let mut taken = std::collections::HashSet::new();
            let mut now = 0;
            for (message, pause) in arrivals {
                now += pause;
                let (sent, ttl) = (i64::from(message) * 3, (message % 3 == 0).then_some(20));
                if ttl.is_some_and(|ttl| sent + ttl < now) {
                    continue;
                }
                if memory.see(&message.to_string(), message, sent, ttl, now) == Fresh::New {
                    prop_assert!(taken.insert(message), "{message} was taken twice");
                }
                prop_assert!(memory.remembers() <= capacity);
            }
        }
    }
}
