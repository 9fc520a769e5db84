//! Values that several tables share: times, JSON text, leases and pages.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::messages::StoredMessage;
use crate::error::{Error, Result};

/// The time of a call. The caller has the clocks, and the store reads none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTime {
    /// A monotonic time, since a moment that the caller chooses once for each opened store. Leases and delays use
    /// it, so a clock that is set does not end them. The delays of messages go on in the next life of the store by the wall
    /// time.
    pub now: Duration,
    /// The wall time in milliseconds since 1970. Records and expiry use it.
    pub wall: u64,
}

impl StoreTime {
    /// Creates a time.
    #[must_use]
    pub const fn new(now: Duration, wall: u64) -> Self {
        StoreTime { now, wall }
    }
}

/// The text of one JSON value. It is kept as it was received.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Creates the text of a value after a check of its syntax.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`].
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(JsonText(text.into())),
            Err(error) => Err(Error::InvalidJson { reason: error.to_string() }),
        }
    }

    /// Creates the text of a value that can be serialized.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`] if it has no form in JSON, such as a map whose keys are not strings.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self> {
        match serde_json::to_string(value) {
            Ok(text) => Ok(JsonText(text.into())),
            Err(error) => Err(Error::InvalidJson { reason: error.to_string() }),
        }
    }

    /// Creates a text that was checked when it was written.
    pub(crate) fn trusted(text: String) -> Self {
        JsonText(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text, without copying it.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0.into()
    }

    /// Parses the value.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`] if it is not a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.0).map_err(|error| Error::InvalidJson { reason: error.to_string() })
    }
}

impl Default for JsonText {
    /// Returns `null`.
    fn default() -> Self {
        JsonText("null".into())
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer).map_err(D::Error::custom)?;
        Ok(JsonText(raw.get().into()))
    }
}

/// The table of an entry with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseKind {
    /// A message of an inbox.
    Message,
    /// A task.
    Task,
    /// An entry of the outbox.
    Delivery,
}

/// The proof that a worker has an entry. It contains a random number, so other workers cannot guess it. It is not
/// valid any more when its lease has ended, and in later lives of the store.
///
/// Its text can be parsed again, such as `m812-1f0c55aa90b2d3e4`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken {
    pub(crate) kind: LeaseKind,
    pub(crate) entry: i64,
    pub(crate) secret: i64,
}

impl LeaseToken {
    /// Returns the table of the entry.
    #[must_use]
    pub fn kind(&self) -> LeaseKind {
        self.kind
    }

    /// Returns true if the lease is, or was, one of this message.
    #[must_use]
    pub fn is_of_message(&self, message: &StoredMessage) -> bool {
        self.kind == LeaseKind::Message && u64::try_from(self.entry) == Ok(message.seq)
    }

    fn letter(self) -> char {
        match self.kind {
            LeaseKind::Message => 'm',
            LeaseKind::Task => 't',
            LeaseKind::Delivery => 'd',
        }
    }

    /// Returns a name for error messages, without the random number.
    pub(crate) fn name(self) -> String {
        format!("the lease {}{}", self.letter(), self.entry)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}-{:016x}", self.letter(), self.entry, self.secret)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({}{})", self.letter(), self.entry)
    }
}

impl FromStr for LeaseToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let mut chars = text.chars();
            let kind = match chars.next()? {
                'm' => LeaseKind::Message,
                't' => LeaseKind::Task,
                'd' => LeaseKind::Delivery,
                _ => return None,
            };
            let (entry, secret) = chars.as_str().split_once('-')?;
            let secret = u64::from_str_radix(secret, 16).ok()?;
            let token = LeaseToken { kind, entry: entry.parse().ok()?, secret: secret.cast_signed() };
            // Only the text that `Display` writes.
            (token.to_string() == text).then_some(token)
        };
        parsed().ok_or_else(|| Error::LeaseLost { record: "this text of a lease".into() })
    }
}

/// A request for entries that can be worked on now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The time of the call.
    pub time: StoreTime,
    /// The time after which the lease ends unless it is renewed.
    pub lease: Duration,
    /// The most entries. [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) and `page_bytes` limit
    /// it too.
    pub max: usize,
    /// The name of the worker, for lists.
    pub worker: String,
    /// The principals whose messages or tasks are left out. A claim of posts leaves out nobody.
    pub except: Vec<String>,
}

impl Claim {
    /// Creates a request for one entry.
    #[must_use]
    pub fn new(time: StoreTime, lease: Duration, worker: impl Into<String>) -> Self {
        Claim { time, lease, max: 1, worker: worker.into(), except: Vec::new() }
    }

    /// Sets the most entries.
    #[must_use]
    pub fn max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Leaves out the messages or tasks of principals.
    #[must_use]
    pub fn except(mut self, principals: Vec<String>) -> Self {
        self.except = principals;
        self
    }
}

/// An entry with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased<T> {
    /// The entry.
    pub entry: T,
    /// The lease, for the changes that need it.
    pub lease: LeaseToken,
}

/// The entries of a claim, in the order in which they should be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed<T> {
    /// The entries.
    pub entries: Vec<Leased<T>>,
    /// The next time at which a delayed entry or a lease of the same queue is due, without any change in between. It
    /// is only set if fewer entries than `max` were found, and it is the time of the claim if
    /// [`StoreSettings::page_bytes`](crate::StoreSettings::page_bytes) has cut it. A worker waits for it and for a
    /// [`StoreWatch`](crate::StoreWatch).
    pub next_due: Option<Duration>,
}

/// A part of a list. It can have fewer entries than its limit, so the next one begins behind the entries that it has.
/// A page behind which there are more has at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorePage<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The limit that was applied.
    pub limit: u64,
    /// The number of all entries that match the filters.
    pub total: u64,
}

impl<T> StorePage<T> {
    /// Reads all pages of a list. `read` gets the offset of a page.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn all(mut read: impl FnMut(u64) -> Result<Self>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        loop {
            let page = read(all.len() as u64)?;
            let is_last = page.items.is_empty();
            all.extend(page.items);
            if is_last || all.len() as u64 >= page.total {
                return Ok(all);
            }
        }
    }
}
