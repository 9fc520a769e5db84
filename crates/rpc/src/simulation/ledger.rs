//! A record of the messages of one side, and the checks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde::Deserialize;
use serde_json::Value;

use super::random_delay;
use crate::connection::ConnectionState;
use crate::sync::Lock;
use crate::tap::{Direction, Tap, TappedFrame};

/// The record of one side. Its tap records lines in the order of the wire; its service and its callers add
/// the messages that they receive.
#[derive(Default)]
pub(super) struct SideLedger {
    books: Mutex<LedgerEntries>,
    /// The connection of the side.
    pub(super) shared: OnceLock<Weak<ConnectionState>>,
}

#[derive(Default)]
pub(super) struct LedgerEntries {
    /// The serials of the requests and notifications that this side sent, in order.
    pub(super) sent: Vec<u64>,
    /// The serials that the service of this side received.
    pub(super) received: Vec<u64>,
    /// The serials of the requests of this side, by id.
    pub(super) requests: BTreeMap<u64, u64>,
    /// The responses of this side, by the id of the request.
    pub(super) answers: BTreeMap<u64, ResponseCount>,
    /// The number of withdrawals of this side, by the id of the request.
    pub(super) withdrawn: BTreeMap<u64, u32>,
    /// The ids of requests of this side whose response it has read.
    pub(super) answered: BTreeSet<u64>,
    /// The serials of requests whose responder is kept without a response.
    pub(super) kept: Vec<u64>,
    /// The serials that were pushed into its stream.
    pub(super) pushed: Vec<u64>,
    /// True if its stream may stall: it was not taken for a while, or its limit is small.
    pub(super) may_stall: bool,
    /// True if the last messages may be lost, because more than the own half was ended.
    pub(super) cut: bool,
    pub(super) closed: u32,
    pub(super) unread: u32,
    serial: u64,
    /// A hash of everything that was sent. Two schedules with the same seed have the same hash.
    pub(super) trace: u64,
    faults: Vec<String>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct ResponseCount {
    pub(super) times: u32,
    /// The number of messages that this side sent before it.
    pub(super) after: usize,
}

/// The serial in the params of a message.
#[derive(Deserialize)]
struct Numbered {
    n: u64,
}

impl SideLedger {
    pub(super) fn books<T>(&self, with: impl FnOnce(&mut LedgerEntries) -> T) -> T {
        with(&mut self.books.lock_unpoisoned())
    }

    /// Returns the serial of the next message. Even ones are sent before the call returns.
    pub(super) fn serial(&self, at_once: bool) -> u64 {
        self.books(|books| {
            books.serial += 2;
            books.serial + u64::from(!at_once)
        })
    }

    pub(super) fn fault(&self, what: impl Into<String>) {
        self.books(|books| books.faults.push(what.into()));
    }

    /// Checks that a message that waits for space is sent only when there is space.
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
                self.sent.push(serial);
                if let Some(id) = id
                    && self.requests.insert(id, serial).is_some()
                {
                    self.faults.push(format!("id {id} was used twice"));
                }
            }
            (None, Some(id)) => {
                let after = self.sent.len();
                let answer =
                    self.answers.entry(id).or_insert(ResponseCount { after, ..ResponseCount::default() });
                answer.times += 1;
            }
            (None, None) => self.faults.push(format!("an answer to nobody: {line}")),
        }
    }

    /// Checks the invariants of one side. `other` is the record of the other side.
    pub(super) fn check(&self, other: &LedgerEntries, refused: u64) -> Result<(), String> {
        if let Some(fault) = self.faults.first() {
            return Err(fault.clone());
        }
        if self.unread > 0 {
            return Err("a line arrived that is no message".into());
        }
        if self.closed != 1 {
            return Err(format!("the service was notified of the end {} times", self.closed));
        }
        let at_once: Vec<_> = self.sent.iter().filter(|serial| *serial % 2 == 0).collect();
        if !at_once.is_sorted() {
            return Err(format!("what was sent first did not leave first: {at_once:?}"));
        }
        for (id, answer) in &self.answers {
            if answer.times > 1 {
                return Err(format!("request {id} was answered {} times", answer.times));
            }
            if !other.requests.contains_key(id) {
                return Err(format!("a response to {id}, which is not a request"));
            }
        }
        if let Some((id, times)) = self.withdrawn.iter().find(|(_, times)| **times > 1) {
            return Err(format!("request {id} was withdrawn {times} times"));
        }
        self.received_in_order(other, refused)
    }

    /// Checks that every request that reached a handler has a response, except kept ones.
    pub(super) fn answered_all(&self, other: &LedgerEntries) -> Result<(), String> {
        for (id, serial) in &other.requests {
            let received = self.received.contains(serial) && !self.kept.contains(serial);
            if received && !self.answers.contains_key(id) {
                return Err(format!("request {id} reached its handler and was not answered"));
            }
        }
        Ok(())
    }

    /// Checks that all `sent` messages of the other side were received or rejected.
    pub(super) fn received_all(&self, sent: u64, refused: u64) -> Result<(), String> {
        let received = self.received.len() as u64;
        if received + refused == sent {
            return Ok(());
        }
        Err(format!("of {sent} messages {received} were received and {refused} rejected: the last are lost"))
    }

    /// Checks that the messages of the other side were received in their order, except rejected ones and
    /// those at the end.
    pub(super) fn received_in_order(&self, other: &LedgerEntries, refused: u64) -> Result<(), String> {
        let mut received = self.received.iter().peekable();
        let mut missing = Vec::new();
        for serial in &other.sent {
            if received.peek() == Some(&serial) {
                received.next();
            } else if received.peek().is_some() {
                missing.push(*serial);
            }
        }
        if let Some(serial) = received.next() {
            return Err(format!("message {serial} was received late, twice or without being sent"));
        }
        if missing.len() as u64 > refused {
            return Err(format!("messages were lost: {missing:?}, rejected: {refused}"));
        }
        Ok(())
    }
}

/// The tap of a ledger, with random delays.
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
