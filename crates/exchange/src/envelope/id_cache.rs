//! A bounded cache of ids.
//!
//! The replay cache of dialogues is another type: it evicts by send time, compares contents, and
//! rejects messages as old as evicted ones. Envelopes have no authentic send time.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::ENVELOPE_IDS;

/// A cache of the last [`ENVELOPE_IDS`] ids. It stores a fingerprint of each, because a peer may
/// choose ids of any length.
#[derive(Default)]
pub(crate) struct IdCache {
    prints: Fingerprints,
    known: HashSet<u128>,
    order: VecDeque<u128>,
}

impl IdCache {
    /// Adds an id; returns false if it was already present. A foreign id is added with its sender.
    pub(crate) fn insert(&mut self, id: impl Hash) -> bool {
        let print = self.prints.of(id);
        if !self.known.insert(print) {
            return false;
        }
        if self.order.len() == ENVELOPE_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(print);
        true
    }

    /// Returns true if the id is present.
    pub(crate) fn contains(&self, id: impl Hash) -> bool {
        self.known.contains(&self.prints.of(id))
    }
}

/// Hashes values with random keys, so that a peer cannot construct two with the same fingerprint.
pub(crate) struct Fingerprints([RandomState; 2]);

impl Default for Fingerprints {
    fn default() -> Self {
        Fingerprints([RandomState::new(), RandomState::new()])
    }
}

impl Fingerprints {
    pub(crate) fn of(&self, value: impl Hash) -> u128 {
        let [low, high] = self.0.each_ref().map(|state| u128::from(state.hash_one(&value)));
        high << 64 | low
    }

    /// Returns the fingerprint of the JSON form of a value. Neither the order of the members of an object
    /// nor the spelling of a number changes it: `1.0` is `1`, as in RFC 8785. Integers are compared exactly. Half a
    /// surrogate pair is a replacement character here, as it is for the handler, since the connection has repaired it.
    pub(crate) fn of_json(&self, value: &impl Serialize) -> u128 {
        // A value that was decoded can be encoded.
        let text = serde_json::to_string(value).unwrap_or_default();
        let text = self.without_long_integers(&text);
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        JsonPrint(self).deserialize(&mut deserializer).unwrap_or_else(|_| self.of(&*text))
    }

    /// Replaces each integer beyond 64 bits by a string with the fingerprint of its digits, since the parser would round it
    /// to a double. A peer cannot predict the string.
    fn without_long_integers<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let bytes = text.as_bytes();
        let (mut changed, mut copied, mut at) = (String::new(), 0, 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let length = match rest.first() {
                Some(b'"') => string_length(rest),
                Some(b'-' | b'0'..=b'9') => {
                    let is_number =
                        |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    rest.iter().position(|byte| !is_number(byte)).unwrap_or(rest.len())
                }
                _ => 1,
            };
            if let Some(number) = text.get(at..at + length).filter(|token| is_long_integer(token)) {
                changed.push_str(text.get(copied..at).unwrap_or_default());
                changed.push_str(&format!("\"{:032x}\"", self.of(number)));
                copied = at + length;
            }
            at += length;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        changed.push_str(text.get(copied..).unwrap_or_default());
        Cow::Owned(changed)
    }
}

/// Returns the length of the JSON string that a text begins with.
fn string_length(text: &[u8]) -> usize {
    let mut bytes = text.iter().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns true for an integer that has no exact 64-bit form.
fn is_long_integer(token: &str) -> bool {
    token.len() >= 20
        && token.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
        && token.parse::<u64>().is_err()
        && token.parse::<i64>().is_err()
}

/// Computes the fingerprint of a JSON value without building it.
#[derive(Clone, Copy)]
struct JsonPrint<'a>(&'a Fingerprints);

/// The parts of a value that its fingerprint depends on.
#[derive(Hash)]
enum JsonPart<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    /// The bits of a number with a fraction or beyond the integers.
    Double(u64),
    Text(&'a str),
    List(Vec<u128>),
    /// The fingerprints of the keys and values, sorted.
    Object(Vec<(u128, u128)>),
}

impl JsonPrint<'_> {
    fn of<E>(self, part: &JsonPart<'_>) -> Result<u128, E> {
        Ok(self.0.of(part))
    }
}

impl<'de> DeserializeSeed<'de> for JsonPrint<'_> {
    type Value = u128;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u128, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonPrint<'_> {
    type Value = u128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<u128, E> {
        self.of(&JsonPart::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<u128, E> {
        self.of(&JsonPart::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u128, E> {
        self.of(&JsonPart::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<u128, E> {
        self.of(&JsonPart::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<u128, E> {
        // A larger double has lost digits that an integer has.
        if value.fract() == 0.0 && value.abs() <= MAX_EXACT {
            return self.of(&JsonPart::Integer(value as i128));
        }
        self.of(&JsonPart::Double(value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<u128, E> {
        self.of(&JsonPart::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<u128, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        self.of(&JsonPart::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u128, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry_seed(self, self)? {
            members.push(member);
        }
        members.sort_unstable();
        self.of(&JsonPart::Object(members))
    }
}

/// The largest integer that every double up to it can express.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Fingerprints, IdCache};
    use crate::limits::ENVELOPE_IDS;

    #[test]
    fn the_fingerprint_of_json_depends_on_its_values_alone() {
        let prints = Fingerprints::default();
        let of = |json: &str| {
            let raw: Box<serde_json::value::RawValue> = serde_json::from_str(json).unwrap();
            prints.of_json(&raw)
        };
        for (one, same) in [
            (r#"{"a":1,"b":[{"c":null,"d":true}]}"#, r#"{ "b": [{"d":true, "c":null}], "a": 1 }"#),
            ("[1, -0, 1e3, 15e-1]", "[1.0, 0, 1000, 1.5]"),
            (r#""\u0041\/""#, r#""A/""#),
            ("9007199254740991", "9007199254740991.0"),
            (
                r#"[18446744073709551616, {"a":"\"1","b":2}]"#,
                r#"[18446744073709551616,{"b":2,"a":"\u00221"}]"#,
            ),
        ] {
            assert_eq!(of(one), of(same), "{one}");
        }
        let different = [
            "null",
            "false",
            "0",
            "\"\"",
            "[]",
            "{}",
            "\"0\"",
            "[0]",
            "[[]]",
            "[1,2]",
            "[2,1]",
            "{\"a\":1}",
            "{\"a\":2}",
            "{\"b\":1}",
            "{\"a\":{\"b\":1}}",
            "{\"1\":\"a\"}",
            "[\"a\",1]",
            "1.5",
            "-1.5",
            "1",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551617",
            "[18446744073709551616,18446744073709551617]",
            "[18446744073709551617,18446744073709551616]",
            "\"18446744073709551616\"",
            "-9223372036854775808",
            "-9223372036854775809",
            "-9223372036854775810",
            "1e300",
        ];
        for (at, one) in different.iter().enumerate() {
            assert!(different[at + 1..].iter().all(|other| of(one) != of(other)), "{one}");
        }
        // Another side hashes with other keys.
        assert_ne!(of("1"), Fingerprints::default().of_json(&Value::from(1)));
    }

    #[test]
    fn the_oldest_id_is_evicted() {
        let mut seen = IdCache::default();
        assert!(seen.insert("first") && !seen.insert("first"));
        for number in 0..ENVELOPE_IDS {
            assert!(seen.insert(number.to_string()));
        }
        assert_eq!((seen.known.len(), seen.order.len()), (ENVELOPE_IDS, ENVELOPE_IDS));
        assert!(!seen.contains("first") && seen.contains("0") && seen.insert("first"));
    }
}
