//! Random operations on an inbox against a simple model of it.

use std::time::Duration;

use duologue_store::{
    Claim, LeaseToken, MessageQuery, MessageState, SqliteStore, Store, StoreBatch, StoreChange, StoreSettings,
};
use proptest::prelude::*;

use crate::store_contract::{AGENT, message, message_key, time};

const MAX_ATTEMPTS: u32 = 3;
const LEASE: u64 = 5;
const TURNS: [usize; 15] = [3, 2, 3, 1, 3, 2, 3, 0, 3, 2, 3, 1, 3, 2, 3];

#[derive(Clone, Debug)]
enum Operation {
    Enqueue { priority: u8, group: Option<u8>, delay: u64 },
    Claim { max: usize },
    Ack(usize),
    Nack { which: usize, delay: u64 },
    Renew(usize),
    Resend(usize),
    Remove(usize),
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0u8..10, proptest::option::of(0u8..3), prop_oneof![3 => Just(0), 1 => 1u64..8])
            .prop_map(|(priority, group, delay)| Operation::Enqueue { priority, group, delay }),
        4 => (1usize..5).prop_map(|max| Operation::Claim { max }),
        3 => (0usize..8).prop_map(Operation::Ack),
        2 => (0usize..8, 0u64..8).prop_map(|(which, delay)| Operation::Nack { which, delay }),
        1 => (0usize..8).prop_map(Operation::Renew),
        1 => (0usize..30).prop_map(Operation::Resend),
        1 => (0usize..30).prop_map(Operation::Remove),
        2 => (1u64..7).prop_map(Operation::Wait),
    ]
}

#[derive(Clone, Debug)]
struct ModelEntry {
    id: usize,
    arrival: usize,
    band: usize,
    group: Option<u8>,
    state: MessageState,
    ready_at: u64,
    lease_end: u64,
    attempts: u32,
}

#[derive(Default)]
struct InboxModel {
    entries: Vec<ModelEntry>,
    arrivals: usize,
    created: usize,
    turn: usize,
    now: u64,
}

impl InboxModel {
    fn entry(&mut self, id: usize) -> Option<&mut ModelEntry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// Ends an attempt without an acknowledgement.
    fn give_back(entry: &mut ModelEntry, ready_at: u64) {
        entry.state = if entry.attempts >= MAX_ATTEMPTS { MessageState::Dead } else { MessageState::Ready };
        entry.ready_at = ready_at;
    }

    fn end_lapsed(&mut self) {
        for entry in &mut self.entries {
            if entry.state == MessageState::Leased && entry.lease_end <= self.now {
                Self::give_back(entry, 0);
            }
        }
    }

    fn is_out_of_turn(&self, entry: &ModelEntry) -> bool {
        entry.group.is_some()
            && self.entries.iter().any(|other| {
                other.group == entry.group
                    && other.arrival < entry.arrival
                    && matches!(other.state, MessageState::Ready | MessageState::Leased)
            })
    }

    fn claim(&mut self, max: usize) -> Vec<usize> {
        self.end_lapsed();
        let mut ids = Vec::new();
        'claims: while ids.len() < max {
            for turn in self.turn..self.turn + 15 {
                let first = self
                    .entries
                    .iter()
                    .filter(|entry| {
                        entry.state == MessageState::Ready
                            && entry.band == TURNS[turn % 15]
                            && entry.ready_at <= self.now
                            && !self.is_out_of_turn(entry)
                    })
                    .min_by_key(|entry| entry.arrival)
                    .map(|entry| entry.id);
                if let Some(id) = first {
                    let end = self.now + LEASE;
                    let entry = self.entry(id).expect("it");
                    (entry.state, entry.lease_end) = (MessageState::Leased, end);
                    entry.attempts += 1;
                    ids.push(id);
                    self.turn = (turn + 1) % 15;
                    continue 'claims;
                }
            }
            break;
        }
        ids
    }
}

fn key(id: usize) -> duologue_store::InboxKey {
    message_key(&id.to_string())
}

fn play(operations: &[Operation]) -> Result<(), TestCaseError> {
    let store = SqliteStore::in_memory(StoreSettings::default()).expect("a store");
    let mut model = InboxModel::default();
    let mut leases: Vec<(usize, LeaseToken)> = Vec::new();
    for operation in operations {
        let now = model.now;
        let apply = |change| store.apply(StoreBatch::new(time(now)).with(change));
        match *operation {
            Operation::Enqueue { priority, group, delay } => {
                let mut new = message(&model.created.to_string());
                new.group = group.map(|group| group.to_string());
                (new.priority, new.max_attempts, new.delay) =
                    (priority, MAX_ATTEMPTS, Duration::from_secs(delay));
                apply(StoreChange::Enqueue(new)).expect("enqueued");
                let band = [0, 0, 0, 1, 1, 1, 2, 2, 3, 3][usize::from(priority)];
                model.entries.push(ModelEntry {
                    id: model.created,
                    arrival: model.arrivals,
                    band,
                    group,
                    state: MessageState::Ready,
                    ready_at: if delay == 0 { 0 } else { now + delay },
                    lease_end: 0,
                    attempts: 0,
                });
                (model.created, model.arrivals) = (model.created + 1, model.arrivals + 1);
            }
            Operation::Claim { max } => {
                let claim = Claim::new(time(now), Duration::from_secs(LEASE), "w").max(max);
                let claimed = store.claim_messages(AGENT, &claim).expect("claimed").entries;
                let ids: Vec<usize> =
                    claimed.iter().map(|it| it.entry.id.parse().expect("a number")).collect();
                prop_assert_eq!(&ids, &model.claim(max));
                leases.extend(ids.into_iter().zip(claimed.iter().map(|it| it.lease)));
            }
            Operation::Ack(which) | Operation::Nack { which, .. } | Operation::Renew(which) => {
                let Some(&(id, lease)) = leases.get(which) else { continue };
                let Some(entry) = model.entry(id) else { continue };
                let latest = leases.iter().rev().find(|(other, _)| *other == id).map(|(_, lease)| *lease);
                let is_valid =
                    entry.state == MessageState::Leased && entry.lease_end > now && latest == Some(lease);
                let change = match *operation {
                    Operation::Ack(_) => StoreChange::AckMessage { lease, response: None },
                    Operation::Nack { delay, .. } => {
                        StoreChange::NackMessage { lease, delay: Duration::from_secs(delay), error: None }
                    }
                    _ => StoreChange::RenewLease { lease, lasts: Duration::from_secs(LEASE) },
                };
                prop_assert_eq!(apply(change).is_ok(), is_valid);
                match *operation {
                    _ if !is_valid => {}
                    Operation::Ack(_) => entry.state = MessageState::Done,
                    Operation::Nack { delay, .. } => {
                        InboxModel::give_back(entry, if delay == 0 { 0 } else { now + delay });
                    }
                    _ => entry.lease_end = now + LEASE,
                }
            }
            Operation::Resend(id) => {
                let resent = apply(StoreChange::ResendMessage { key: key(id), expires: None }).is_ok();
                let arrival = model.arrivals;
                match model.entry(id) {
                    Some(entry) if entry.state == MessageState::Dead => {
                        prop_assert!(resent);
                        (entry.state, entry.arrival) = (MessageState::Ready, arrival);
                        (entry.attempts, entry.ready_at) = (0, 0);
                        model.arrivals += 1;
                    }
                    _ => prop_assert!(!resent),
                }
            }
            Operation::Remove(id) => {
                let removed = apply(StoreChange::RemoveMessage { key: key(id) });
                let is_leased = model.entry(id).is_some_and(|entry| entry.state == MessageState::Leased);
                prop_assert_eq!(removed.is_err(), is_leased);
                if !is_leased {
                    model.entries.retain(|entry| entry.id != id);
                }
            }
            Operation::Wait(seconds) => {
                model.now += seconds;
                model.end_lapsed();
                store.sweep(time(model.now)).expect("swept");
            }
        }
        for entry in &model.entries {
            let found = store.message(&key(entry.id)).expect("read").expect("a message");
            prop_assert_eq!((found.state, found.attempts), (entry.state, entry.attempts), "{}", entry.id);
        }
        let total = store.messages(&MessageQuery::default()).expect("a list").total;
        prop_assert_eq!(total, model.entries.len() as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_inbox_does_as_its_model(operations in proptest::collection::vec(operation(), 1..60)) {
        play(&operations)?;
    }
}
