//! The registry of an agent's dialogues.

use std::collections::{HashMap, VecDeque};

use duologue_schema::dialogue::DialogueId;

/// The connection and the id of a dialogue. Another connection can neither send messages in the
/// dialogue nor take its id.
pub(crate) type DialogueKey = (u64, DialogueId);

/// A registry of dialogues with a limit for each connection, so that connections do not compete.
/// Ended dialogues stay until their space is needed, because an `error` may still arrive and their
/// ids must not be reused.
pub(crate) struct DialogueRegistry<V> {
    connections: HashMap<u64, ConnectionDialogues<V>>,
    most: usize,
}

struct ConnectionDialogues<V> {
    all: HashMap<DialogueId, V>,
    /// The ended dialogues, oldest first.
    ended: VecDeque<DialogueId>,
}

impl<V: Clone> DialogueRegistry<V> {
    pub(crate) fn new(most: usize) -> Self {
        DialogueRegistry { connections: HashMap::new(), most: most.max(1) }
    }

    pub(crate) fn get(&self, (connection, id): &DialogueKey) -> Option<V> {
        self.connections.get(connection)?.all.get(id).cloned()
    }

    /// Returns the dialogues with this id on other connections.
    pub(crate) fn elsewhere(&self, (connection, id): &DialogueKey) -> impl Iterator<Item = &V> {
        let others = self.connections.iter().filter(move |(other, _)| *other != connection);
        others.filter_map(move |(_, room)| room.all.get(id))
    }

    /// Adds a dialogue under an unused key; returns it if the limit is reached.
    pub(crate) fn add(&mut self, (connection, id): DialogueKey, dialogue: V) -> Result<(), V> {
        let empty = || ConnectionDialogues { all: HashMap::new(), ended: VecDeque::new() };
        let room = self.connections.entry(connection).or_insert_with(empty);
        while room.all.len() >= self.most {
            let Some(oldest) = room.ended.pop_front() else { return Err(dialogue) };
            room.all.remove(&oldest);
        }
        room.all.insert(id, dialogue);
        Ok(())
    }

    /// Marks a dialogue as ended.
    pub(crate) fn end(&mut self, (connection, id): &DialogueKey) {
        if let Some(room) = self.connections.get_mut(connection)
            && room.all.contains_key(id)
            && !room.ended.contains(id)
        {
            room.ended.push_back(id.clone());
        }
    }

    pub(crate) fn remove(&mut self, (connection, id): &DialogueKey) {
        if let Some(room) = self.connections.get_mut(connection) {
            room.all.remove(id);
            room.ended.retain(|other| other != id);
        }
    }

    /// Removes and returns the dialogues of a connection that has ended.
    pub(crate) fn leave(&mut self, connection: u64) -> Vec<V> {
        self.connections.remove(&connection).into_iter().flat_map(|room| room.all.into_values()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(connection: u64, id: &str) -> DialogueKey {
        (connection, id.into())
    }

    #[test]
    fn ended_dialogues_are_evicted() {
        let mut registry = DialogueRegistry::new(2);
        registry.add(key(1, "a"), "a").unwrap();
        registry.add(key(1, "b"), "b").unwrap();
        assert_eq!(registry.add(key(1, "c"), "c"), Err("c"));
        registry.end(&key(1, "b"));
        registry.end(&key(1, "b"));
        assert_eq!(registry.get(&key(1, "b")), Some("b"));
        registry.add(key(1, "c"), "c").unwrap();
        assert_eq!(registry.get(&key(1, "b")), None);
        assert_eq!(registry.add(key(1, "d"), "d"), Err("d"));
        registry.remove(&key(1, "a"));
        registry.add(key(1, "d"), "d").unwrap();
    }

    #[test]
    fn connections_are_separate() {
        let mut registry = DialogueRegistry::new(1);
        registry.add(key(1, "a"), "first").unwrap();
        registry.add(key(2, "a"), "second").unwrap();
        registry.end(&key(1, "a"));
        assert_eq!(registry.elsewhere(&key(2, "a")).collect::<Vec<_>>(), [&"first"]);
        assert_eq!(registry.leave(1), ["first"]);
        assert_eq!((registry.get(&key(1, "a")), registry.get(&key(2, "a"))), (None, Some("second")));
        assert_eq!(registry.add(key(2, "b"), "third"), Err("third"));
    }
}
