//! The dialogues of an agent, over all its connections, as many as there may be.

use std::collections::{HashMap, VecDeque};

use duologue_schema::dialogue::DialogueId;

/// A dialogue is known by the connection it is held over and by its id there: another connection can neither
/// speak in it nor take its id.
pub(crate) type Key = (u64, DialogueId);

/// A bounded set of dialogues. Those that have ended stay until their room is needed, since an `error` may
/// still come and their ids must not be used again.
pub(crate) struct Rooms<V> {
    all: HashMap<Key, V>,
    /// Those that have ended, oldest first.
    ended: VecDeque<Key>,
    most: usize,
}

impl<V: Clone> Rooms<V> {
    pub(crate) fn new(most: usize) -> Self {
        Rooms { all: HashMap::new(), ended: VecDeque::new(), most: most.max(1) }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<V> {
        self.all.get(key).cloned()
    }

    /// Adds a dialogue under a key that is not taken; gives it back when there is no room.
    pub(crate) fn add(&mut self, key: Key, dialogue: V) -> Result<(), V> {
        while self.all.len() >= self.most {
            let Some(oldest) = self.ended.pop_front() else { return Err(dialogue) };
            self.all.remove(&oldest);
        }
        self.all.insert(key, dialogue);
        Ok(())
    }

    /// A dialogue has ended.
    pub(crate) fn end(&mut self, key: &Key) {
        if self.all.contains_key(key) && !self.ended.contains(key) {
            self.ended.push_back(key.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.all.remove(key);
        self.ended.retain(|other| other != key);
    }

    /// A connection has ended; returns its dialogues.
    pub(crate) fn leave(&mut self, connection: u64) -> Vec<V> {
        self.ended.retain(|(other, _)| *other != connection);
        self.all.extract_if(|(other, _), _| *other == connection).map(|(_, dialogue)| dialogue).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(connection: u64, id: &str) -> Key {
        (connection, id.into())
    }

    #[test]
    fn what_has_ended_makes_room() {
        let mut rooms = Rooms::new(2);
        rooms.add(key(1, "a"), "a").unwrap();
        rooms.add(key(1, "b"), "b").unwrap();
        assert_eq!(rooms.add(key(1, "c"), "c"), Err("c"));
        rooms.end(&key(1, "b"));
        assert_eq!(rooms.get(&key(1, "b")), Some("b"));
        rooms.add(key(1, "c"), "c").unwrap();
        assert_eq!(rooms.get(&key(1, "b")), None);
        assert_eq!(rooms.add(key(1, "d"), "d"), Err("d"));
    }

    #[test]
    fn connections_do_not_meet() {
        let mut rooms = Rooms::new(3);
        rooms.add(key(1, "a"), "first").unwrap();
        rooms.add(key(2, "a"), "second").unwrap();
        rooms.end(&key(1, "a"));
        assert_eq!(rooms.leave(1), ["first"]);
        assert_eq!((rooms.get(&key(1, "a")), rooms.get(&key(2, "a"))), (None, Some("second")));
        assert!(rooms.ended.is_empty());
    }
}
