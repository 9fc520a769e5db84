//! The members of an object with arbitrary keys.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Json;
use crate::wire::{Entries, Text, WriteFields, schema_of};

/// The members of an object in their original order, kept as JSON text.
///
/// Used for the unknown fields of a message, and for objects with arbitrary keys.
///
/// ```
/// use duologue_schema::envelope::Query;
///
/// let query: Query = serde_json::from_str(r#"{"question":"Who?","mood":"curious"}"#)?;
/// assert_eq!(query.extra.get::<String>("mood").as_deref(), Some("curious"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Members(Entries);

impl Members {
    /// Creates an empty list of members.
    #[must_use]
    pub fn new() -> Self {
        Members::default()
    }

    /// Creates the members of a struct or a map.
    ///
    /// ```
    /// use duologue_schema::Members;
    ///
    /// let members = Members::of(&std::collections::BTreeMap::from([("price", 16_000)]))?;
    /// assert_eq!(members.get("price"), Some(16_000));
    /// assert!(Members::of(&16_000).is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the JSON form of `value` is not an object.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        Json::new(value)?.parse()
    }

    /// Returns true if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of `key`, if it is present and fits `T`.
    #[must_use]
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let (_, value) = self.0.iter().rfind(|(name, _)| **name == *key)?;
        serde_json::from_str(value.get()).ok()
    }

    /// Sets the value of `key` and replaces a previous one.
    pub fn insert(&mut self, key: &str, value: impl Into<Json>) -> &mut Self {
        self.0.retain(|(name, _)| **name != *key);
        self.0.push((key.into(), value.into().into_raw()));
        self
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| **name != *key);
    }

    /// Returns the keys with the JSON text of their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, value.get()))
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| &**key)
    }
}

impl<K: AsRef<str>, V: Into<Json>> FromIterator<(K, V)> for Members {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let mut all = Members::new();
        for (key, value) in members {
            all.insert(key.as_ref(), value);
        }
        all
    }
}

/// Lets a setter accept `[("price", json!(18_000))]`.
impl<K: AsRef<str>, V: Into<Json>, const N: usize> From<[(K, V); N]> for Members {
    fn from(members: [(K, V); N]) -> Self {
        members.into_iter().collect()
    }
}

impl From<serde_json::Map<String, serde_json::Value>> for Members {
    fn from(map: serde_json::Map<String, serde_json::Value>) -> Self {
        map.into_iter().collect()
    }
}

/// Compares the values of the members in order. White space does not matter.
impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let json = |raw: &serde_json::value::RawValue| Json::from(raw.to_owned());
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((key, value), (other_key, other))| key == other_key && json(value) == json(other))
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, Json::from(value.clone())))).finish()
    }
}

impl Members {
    /// Writes the members, except those whose key is left out.
    pub(crate) fn write_unless<M: SerializeMap>(
        &self,
        map: &mut M,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<(), M::Error> {
        let mut written = self.0.iter().filter(|(key, _)| !is_left_out(key));
        written.try_for_each(|(key, value)| map.serialize_entry(key, value))
    }
}

impl WriteFields for Members {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.write_unless(map, |_| false)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::wire::write_object(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut entries = Entries::new();
                while let Some(Text(key)) = map.next_key()? {
                    entries.push((key.into(), map.next_value()?));
                }
                Ok(Members(entries))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

schema_of!(inline Members, "Members", |_| schemars::json_schema!({ "type": "object", "additionalProperties": true }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_one_value() {
        // The last of two members with one name counts.
        let mut members: Members = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!((members.get("a"), members.get("b"), members.get::<u8>("c")), (Some(3), Some(2), None));
        assert_eq!(members.get::<String>("a"), None, "it is a number");
        members.insert("a", 4).insert("c", 5);
        assert_eq!(serde_json::to_string(&members).unwrap(), r#"{"b":2,"a":4,"c":5}"#);
        members.remove("b");
        assert_eq!(members.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert!(!members.is_empty() && Members::new().is_empty());
    }

    #[test]
    fn members_are_equal_if_their_names_and_values_are() {
        let read = |text| serde_json::from_str::<Members>(text).unwrap();
        let one = read(r#"{"a":[1, 2],"b":{"x":1,"y":2}}"#);
        assert_eq!(one, read(r#"{ "a":[1,2], "b":{"y":2,"x":1} }"#));
        for other in
            [r#"{"a":[1,2]}"#, r#"{"a":[1,2],"c":{"x":1,"y":2}}"#, r#"{"a":[2,1],"b":{"x":1,"y":2}}"#]
        {
            assert_ne!(one, read(other), "{other}");
        }
    }
}
