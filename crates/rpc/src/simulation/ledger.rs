//! What one side said and heard, written down as it happens, and what has to be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde::Deserialize;
use serde_json::Value;

use super::random_delay;
use crate::connection::ConnectionState;
use crate::sync::Lock;
use crate::tap::{Direction, Tap, TappedFrame};

/// The books of one side. Its tap sees the order in which lines leave and come, its service and its
/// callers add what they hear.
#[derive(Default)]
pub(super) struct SideLedger {
    books: Mutex<LedgerEntries>,
    /// Where it is kept from.
    pub(super) shared: OnceLock<Weak<ConnectionState>>,
}

#[derive(Default)]
pub(super) struct LedgerEntries {
    /// Serials of the requests and notifications of this side, as they left.
    pub(super) said: Vec<u64>,
    /// Those the service of this side was handed.
    pub(super) heard: Vec<u64>,
    /// What this side asked, by id.
    pub(super) asked: BTreeMap<u64, u64>,
    /// What this side answered, by the id of the other.
    pub(super) answers: BTreeMap<u64, ResponseCount>,
    /// How often this side withdrew an id of its own.
    pub(super) withdrawn: BTreeMap<u64, u32>,
    /// Ids of its own whose answer it has read.
    pub(super) answered: BTreeSet<u64>,
    /// Requests whose responder was put away.
    pub(super) kept: Vec<u64>,
    /// What went into its stream.
    pub(super) pushed: Vec<u64>,
    /// Whether its stream was left alone for a while, or may not hold much.
    pub(super) may_stall: bool,
    /// Whether what was said last may be lost: somebody ended more than its own half.
    pub(super) cut: bool,
    pub(super) closed: u32,
    pub(super) unread: u32,
    serial: u64,
    /// Everything that left, one number: two schedules with one seed have the same.
    pub(super) trace: u64,
    faults: Vec<String>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct ResponseCount {
    pub(super) times: u32,
    /// How many messages this side had said before it.
    pub(super) after: usize,
}

/// The part of params that the books need.
#[derive(Deserialize)]
struct Numbered {
    n: u64,
}

impl SideLedger {
    pub(super) fn books<T>(&self, with: impl FnOnce(&mut LedgerEntries) -> T) -> T {
        with(&mut self.books.lock_unpoisoned())
    }

    /// The number of the next message. Even ones leave before the call that sends them returns.
    pub(super) fn serial(&self, at_once: bool) -> u64 {
        self.books(|books| {
            books.serial += 2;
            books.serial + u64::from(!at_once)
        })
    }

    pub(super) fn fault(&self, what: impl Into<String>) {
        self.books(|books| books.faults.push(what.into()));
    }

    /// Who waits for room sends when there is some: `serial` is about to leave.
    fn has_room(&self, serial: u64) {
        let waits = serial % 2 == 1;
        if let Some(shared) = self.shared.get().and_then(Weak::upgrade).filter(|_| waits)
            && shared.outbox.unwritten() >= shared.limits.output_bytes
        {
            self.fault(format!("message {serial} was to wait for room and did not"));
        }
    }

    pub(super) fn has_answer(&self, id: u64) -> bool {
        self.books(|books| books.answered.contains(&id))
    }
}

impl LedgerEntries {
    pub(super) fn line_left(&mut self, line: &Value) {
        let id = line["id"].as_u64();
        match (line["method"].as_str(), id) {
            (Some("$/cancel_request"), None) => {
                let withdrawn = line["params"]["requestId"].as_u64().unwrap_or_default();
                *self.withdrawn.entry(withdrawn).or_default() += 1;
            }
            (Some(_), _) => {
                let serial = Numbered::deserialize(&line["params"]).map_or(0, |params| params.n);
                self.said.push(serial);
                if let Some(id) = id
                    && self.asked.insert(id, serial).is_some()
                {
                    self.faults.push(format!("id {id} was used twice"));
                }
            }
            (None, Some(id)) => {
                let after = self.said.len();
                let answer =
                    self.answers.entry(id).or_insert(ResponseCount { after, ..ResponseCount::default() });
                answer.times += 1;
            }
            (None, None) => self.faults.push(format!("an answer to nobody: {line}")),
        }
    }

    /// What must be true of one side whatever happened: `other` is the other side's books.
    pub(super) fn check(&self, other: &LedgerEntries, refused: u64) -> Result<(), String> {
        if let Some(fault) = self.faults.first() {
            return Err(fault.clone());
        }
        if self.unread > 0 {
            return Err("a line arrived that is no message".into());
        }
        if self.closed != 1 {
            return Err(format!("the service was told of the end {} times", self.closed));
        }
        let at_once: Vec<_> = self.said.iter().filter(|serial| *serial % 2 == 0).collect();
        if !at_once.is_sorted() {
            return Err(format!("what was sent first did not leave first: {at_once:?}"));
        }
        for (id, answer) in &self.answers {
            if answer.times > 1 {
                return Err(format!("request {id} was answered {} times", answer.times));
            }
            if !other.asked.contains_key(id) {
                return Err(format!("an answer to {id}, which was not asked"));
            }
        }
        if let Some((id, times)) = self.withdrawn.iter().find(|(_, times)| **times > 1) {
            return Err(format!("request {id} was withdrawn {times} times"));
        }
        self.heard_in_order(other, refused)
    }

    /// Every request that reached a handler was answered before the end, those that were put away
    /// aside.
    pub(super) fn answered_all(&self, other: &LedgerEntries) -> Result<(), String> {
        for (id, serial) in &other.asked {
            let heard = self.heard.contains(serial) && !self.kept.contains(serial);
            if heard && !self.answers.contains_key(id) {
                return Err(format!("request {id} reached its handler and was not answered"));
            }
        }
        Ok(())
    }

    /// All that the other side `said` was heard or refused: nothing is on its way any more.
    pub(super) fn heard_all(&self, said: u64, refused: u64) -> Result<(), String> {
        let heard = self.heard.len() as u64;
        if heard + refused == said {
            return Ok(());
        }
        Err(format!("of {said} messages {heard} were heard and {refused} refused: the last are lost"))
    }

    /// What the other side said is what this one heard, as far as it came, and in that order. What
    /// was refused is missing.
    pub(super) fn heard_in_order(&self, other: &LedgerEntries, refused: u64) -> Result<(), String> {
        let mut heard = self.heard.iter().peekable();
        let mut missing = Vec::new();
        for serial in &other.said {
            if heard.peek() == Some(&serial) {
                heard.next();
            } else if heard.peek().is_some() {
                missing.push(*serial);
            }
        }
        if let Some(serial) = heard.next() {
            return Err(format!("message {serial} was heard too late, twice or from nowhere"));
        }
        if missing.len() as u64 > refused {
            return Err(format!("messages were lost on the way: {missing:?}, refused: {refused}"));
        }
        Ok(())
    }
}

/// The ledger's eyes, which dawdle too.
pub(super) struct LedgerTap {
    pub(super) ledger: Arc<SideLedger>,
    pub(super) rng: Option<Mutex<fastrand::Rng>>,
}

impl Tap for LedgerTap {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line = serde_json::from_slice::<Value>(frame.bytes).unwrap_or_default();
        if frame.direction == Direction::Outgoing
            && let Ok(Numbered { n }) = Numbered::deserialize(&line["params"])
        {
            self.ledger.has_room(n);
        }
        self.ledger.books(|books| match frame.direction {
            Direction::Outgoing => {
                for byte in frame.bytes {
                    books.trace = (books.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                }
                books.line_left(&line);
            }
            Direction::Incoming if !frame.is_message => books.unread += 1,
            Direction::Incoming => {
                if line["method"].is_null() {
                    books.answered.extend(line["id"].as_u64());
                }
            }
        });
    }

    fn wait(&self) -> Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        let rng = self.rng.as_ref()?.lock_unpoisoned().fork();
        Some(Box::pin(random_delay::random_delays(rng, 2)))
    }
}
