//! The bytes of responses that are read and sent at once, of each principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use duologue_rpc::Lock as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that are counted as one.
const UNIT: usize = 1024;

/// The rooms of all principals.
pub(crate) struct ResponseRooms {
    /// The units of each principal.
    limit: u32,
    /// Those in which something is or waits.
    rooms: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// A part of the room of a principal. Dropping it gives it back.
#[derive(Debug, Default)]
pub(crate) struct ResponseRoom(Option<OwnedSemaphorePermit>);

impl ResponseRooms {
    /// Creates rooms of so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        ResponseRooms { limit: units(bytes).max(1), rooms: Mutex::default() }
    }

    /// Takes so many bytes of the room of a principal, or all of it if it has fewer. It waits for them behind those that have
    /// waited for longer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing.
    pub(crate) async fn take(&self, principal: &Arc<str>, bytes: usize) -> ResponseRoom {
        let room = self.of(principal);
        // It is never closed.
        ResponseRoom(room.acquire_many_owned(units(bytes).min(self.limit)).await.ok())
    }

    fn of(&self, principal: &Arc<str>) -> Arc<Semaphore> {
        let mut rooms = self.rooms.lock_unpoisoned();
        if let Some(room) = rooms.get(principal).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Semaphore::new(self.limit as usize));
        rooms.insert(principal.clone(), Arc::downgrade(&room));
        room
    }
}

impl ResponseRoom {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Gives back what is more than so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if let ResponseRoom(Some(room)) = self {
            let surplus = room.num_permits().saturating_sub(units(bytes) as usize);
            drop(room.split(surplus));
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_principal_has_the_bytes_of_its_room_at_once() {
        let rooms = ResponseRooms::new(10 * UNIT);
        let (alice, bob) = (Arc::from("alice"), Arc::from("bob"));
        let now = |principal, bytes| rooms.take(principal, bytes).now_or_never();
        let mut page = now(&alice, 8 * UNIT).expect("room");
        assert!(now(&alice, 3 * UNIT).is_none() && now(&bob, 3 * UNIT).is_some());
        page.shrink(6 * UNIT + 1);
        page.shrink(9 * UNIT);
        let other = now(&alice, 3 * UNIT).expect("the rest");
        assert!(now(&alice, 1).is_none());
        drop((page, other));
        // One that is larger than the room is alone in it.
        let large = now(&alice, 100 * UNIT).expect("the whole room");
        assert!(now(&alice, 1).is_none());
        drop(large);
        assert!(now(&bob, 1).is_some());
        assert_eq!(rooms.rooms.lock_unpoisoned().len(), 1, "rooms without anything are not kept");
    }
}
