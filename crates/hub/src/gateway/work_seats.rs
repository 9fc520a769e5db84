//! The places of work at an agent, which its principals share.

use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;
use tokio::sync::Notify;

use crate::fair_places::FairPlaces;

/// The places of an agent for tasks, or for messages.
#[derive(Clone)]
pub(crate) struct WorkSeats(Arc<SharedSeats>);

struct SharedSeats {
    /// True if there are principals beside the local user. One user alone has all places.
    is_fair: bool,
    taken: Mutex<TakenSeats>,
    changed: Notify,
}

#[derive(Default)]
struct TakenSeats {
    working: FairPlaces,
    /// Those of work that needs answers of its owner. It stays here until its end, so that an answer takes no place
    /// from others.
    asking: FairPlaces,
}

/// The place of a piece of work, until it is dropped.
pub(crate) struct WorkSeat {
    seats: WorkSeats,
    owner: String,
    asking_places: usize,
    is_asking: Mutex<bool>,
}

impl WorkSeats {
    /// Creates the places, of which none is taken.
    pub(crate) fn new(is_fair: bool) -> Self {
        WorkSeats(Arc::new(SharedSeats { is_fair, taken: Mutex::default(), changed: Notify::new() }))
    }

    /// Returns the principals that may have no further one of so many places, or `None` if no place is free.
    pub(crate) fn full_owners(&self, places: usize) -> Option<Vec<String>> {
        let taken = self.0.taken.lock_unpoisoned();
        let is_free = taken.working.taken() < places;
        is_free.then(|| if self.0.is_fair { taken.working.full_owners(places) } else { Vec::new() })
    }

    /// Takes a place. Work that asks its owner something can leave it for one of `asking_places`.
    pub(crate) fn take(&self, owner: &str, asking_places: usize) -> Arc<WorkSeat> {
        self.0.taken.lock_unpoisoned().working.add(owner);
        let (seats, is_asking) = (self.clone(), Mutex::default());
        Arc::new(WorkSeat { seats, owner: owner.to_owned(), asking_places, is_asking })
    }

    /// Waits until work has left its place for one of those that ask.
    pub(crate) async fn left(&self) {
        self.0.changed.notified().await;
    }
}

impl WorkSeat {
    /// Notes that the work waits for an answer of its owner, for which it leaves its place if it can.
    pub(crate) fn ask(&self) {
        let shared = &self.seats.0;
        let mut is_asking = self.is_asking.lock_unpoisoned();
        let mut taken = shared.taken.lock_unpoisoned();
        let may_take = match shared.is_fair {
            true => taken.asking.may_take(&self.owner, self.asking_places),
            false => taken.asking.taken() < self.asking_places,
        };
        if !*is_asking && may_take {
            *is_asking = true;
            taken.working.release(&self.owner);
            taken.asking.add(&self.owner);
            shared.changed.notify_one();
        }
    }
}

impl Drop for WorkSeat {
    fn drop(&mut self) {
        let is_asking = *self.is_asking.lock_unpoisoned();
        let mut taken = self.seats.0.taken.lock_unpoisoned();
        let places = if is_asking { &mut taken.asking } else { &mut taken.working };
        places.release(&self.owner);
    }
}
