//! `_meta`, the member for extension data.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::{self, Lenient, Loose, Pairs, schema_of};
use crate::{Json, Patch};

/// Limit on the bytes of a `_meta` that several updates make together. A single update may be longer.
pub const META_BYTES: usize = 64 * 1024;

/// The `_meta` object of a message or of a part of a message, kept as JSON text.
///
/// Nearly every type has one and few programs read it, so unlike [`Members`](crate::Members) it is parsed
/// only when it is read.
///
/// See [Extensibility](https://agentclientprotocol.com/protocol/v1/extensibility).
///
/// ```
/// use duologue_schema::Meta;
///
/// let mut meta = Meta::new();
/// meta.insert("example.com/retries", serde_json::json!(3));
/// assert_eq!(meta.get::<u32>("example.com/retries"), Some(3));
/// assert_eq!(meta.to_string(), r#"{"example.com/retries":3}"#);
/// ```
#[derive(Clone, PartialEq)]
pub struct Meta(Json);

impl Meta {
    /// Creates an empty object.
    #[must_use]
    pub fn new() -> Self {
        Meta::from(serde_json::Map::new())
    }

    /// Creates the object of a struct or a map.
    ///
    /// # Errors
    ///
    /// If the JSON form of `value` is not an object.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        Json::new(value)?.parse()
    }

    /// Returns the value of `key`, if it is present and fits `T`.
    #[must_use]
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let pairs = self.pairs();
        let (_, value) = pairs.0.iter().rfind(|(name, _)| name == key)?;
        serde_json::from_str(value.get()).ok()
    }

    /// Sets the value of `key` and replaces a previous one.
    pub fn insert(&mut self, key: &str, value: impl Into<Json>) -> &mut Self {
        let value = value.into();
        let mut pairs = self.pairs().0;
        pairs.retain(|(name, _)| name != key);
        pairs.push((key.into(), value.as_raw()));
        // Strings and JSON text always form an object, so there is no error to handle.
        if let Ok(json) = wire::object(&pairs) {
            self.0 = json;
        }
        self
    }

    /// Removes `key`, if it is present.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        let mut pairs = self.pairs().0;
        let before = pairs.len();
        pairs.retain(|(name, _)| name != key);
        if pairs.len() < before
            && let Ok(json) = wire::object(&pairs)
        {
            self.0 = json;
        }
        self
    }

    /// Applies the change of an update to `current`: a value replaces that of its key, and `null` removes its key.
    ///
    /// A result of more than [`META_BYTES`] is replaced by the change alone, so that updates cannot fill the memory.
    pub(crate) fn patch(current: &mut Option<Meta>, change: Patch<Meta>) {
        match change {
            Patch::Keep => {}
            Patch::Clear => *current = None,
            Patch::Set(change) => {
                let known = current.take().unwrap_or_default();
                let merged = known.patched(&change);
                let fits = merged.0.get().len() <= META_BYTES;
                *current = Some(if fits { merged } else { Meta::new().patched(&change) });
            }
        }
    }

    /// Returns both objects as one, where `change` wins.
    fn patched(&self, change: &Meta) -> Meta {
        let (known, changes) = (self.pairs().0, change.pairs().0);
        let mut seen = HashSet::new();
        // The last of two members with one name counts.
        let last = known.iter().chain(&changes).rev().filter(|(key, _)| seen.insert(&**key));
        let mut pairs: Vec<_> = last.filter(|(_, value)| value.get() != "null").collect();
        pairs.reverse();
        let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| (&**key, *value)).collect();
        // Strings and JSON text always form an object, so there is no error to handle.
        wire::object(&pairs).map_or_else(|_| change.clone(), Meta)
    }

    /// Returns true if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs().0.is_empty()
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.pairs().0.into_iter().map(|(key, _)| key)
    }

    /// Returns the whole object.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    fn pairs(&self) -> Pairs<'_> {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl Default for Meta {
    fn default() -> Self {
        Meta::new()
    }
}

impl From<serde_json::Map<String, serde_json::Value>> for Meta {
    fn from(map: serde_json::Map<String, serde_json::Value>) -> Self {
        Meta(serde_json::Value::Object(map).into())
    }
}

impl<K: AsRef<str>, V: Into<Json>> FromIterator<(K, V)> for Meta {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Self {
        let mut meta = Meta::new();
        for (key, value) in items {
            meta.insert(key.as_ref(), value);
        }
        meta
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Meta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Meta::read_lenient(deserializer)?
            .ok()
            .ok_or_else(|| serde::de::Error::custom("`_meta` must be an object"))
    }
}

impl Lenient for Meta {
    fn read_lenient<'de, D: Deserializer<'de>>(d: D) -> Result<Loose<Self>, D::Error> {
        let raw = Box::<RawValue>::deserialize(d)?;
        Ok(match raw.get().as_bytes().first() {
            Some(b'{') => Loose::Good(Meta(raw.into())),
            Some(b'n') => Loose::Null,
            _ => Loose::Bad,
        })
    }
}

schema_of!(inline Meta, "Meta", |_| schemars::json_schema!({ "type": "object", "additionalProperties": true }));

#[cfg(test)]
mod tests {
    use super::*;

    /// The last of two members with one name counts.
    #[test]
    fn a_key_has_one_value() {
        let mut meta: Meta = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!((meta.get("a"), meta.get("b"), meta.get::<u8>("c")), (Some(3), Some(2), None));
        meta.insert("a", 4);
        assert_eq!(meta.to_string(), r#"{"b":2,"a":4}"#);
        assert_eq!(meta.remove("b").remove("c").to_string(), r#"{"a":4}"#);
        assert!(!meta.is_empty() && meta.remove("a").is_empty());
    }
}
