//! The canonical form of a signed message: strict JSON in the form of RFC 8785.
//!
//! Canonical JSON has one type of number and one value for each key. Duplicate keys and integers
//! that a double cannot represent are rejected before signing and before verification, because
//! other readers may interpret them differently. A message with a canonical form can be sent in
//! that form.

use std::fmt;

use duologue_rpc::{JsonScanner, JsonTokenKind};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Maximum nesting of arrays and objects in a message.
pub const MAX_DEPTH: usize = 64;
/// Largest absolute value of an integer in a message. Larger integers have to be sent as strings.
/// The same applies to doubles that RFC 8785 writes as such integers (`1e18`).
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Returns the canonical form of `json`.
#[cfg(any(test, fuzzing))]
pub(super) fn canonical(json: &str) -> Result<String, CanonicalError> {
    write(&strict(json)?)
}

/// Errors for JSON without a canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The text is not JSON, a number is not a finite double, or a surrogate is unpaired.
    #[error("not JSON: {0}")]
    Json(String),
    /// An object contains a key twice.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// An integer exceeds [`MAX_INTEGER`].
    #[error("the integer {0} is beyond 2^53; send it as a string")]
    BigInteger(String),
    /// The nesting exceeds [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The message is not an object.
    #[error("a message must be an object")]
    NoObject,
}

/// A message to be signed or verified.
pub(super) struct Signable {
    /// The message without its `signature`.
    message: Value,
    /// The `signature`, unless it is absent or null.
    pub(super) signature: Option<Value>,
    /// The canonical form of the message without its `signature`.
    pub(super) canonical: String,
}

impl Signable {
    pub(super) fn read(json: &str) -> Result<Self, CanonicalError> {
        let mut message = strict(json)?;
        let members = message.as_object_mut().ok_or(CanonicalError::NoObject)?;
        let signature = members.remove("signature").filter(|signature| !signature.is_null());
        let canonical = write(&message)?;
        Ok(Signable { message, signature, canonical })
    }

    /// Returns a member that is a string.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.message.get(key)?.as_str()
    }
}

/// Returns the canonical form. It has exponents only from 1e21 on, so a smaller double can become
/// an integer beyond the limit. A receiver would reject that form, so such a double is rejected in
/// every spelling.
fn write(value: &Value) -> Result<String, CanonicalError> {
    let form = serde_json_canonicalizer::to_string(value)
        .map_err(|error| CanonicalError::Json(error.to_string()))?;
    no_big_integer(&form)?;
    Ok(form)
}

fn strict(json: &str) -> Result<Value, CanonicalError> {
    let mut fault = None;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = Strict { depth: 0, fault: &mut fault }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match (value, fault) {
        (_, Some(fault)) => Err(fault),
        (Err(error), None) => Err(CanonicalError::Json(error.to_string())),
        (Ok(value), None) => no_big_integer(json).map(|()| value),
    }
}

fn no_big_integer(json: &str) -> Result<(), CanonicalError> {
    match big_integer(json) {
        Some(integer) => Err(CanonicalError::BigInteger(integer.chars().take(40).collect())),
        None => Ok(()),
    }
}

/// Returns the first integer in a JSON text that exceeds the limit. A parsed value would not
/// distinguish it from a double.
fn big_integer(json: &str) -> Option<&str> {
    let scalars = JsonScanner::new(json.as_bytes()).filter(|token| token.kind == JsonTokenKind::Scalar);
    scalars.filter_map(|token| json.get(token.span)).find(|text| {
        let digits = text.trim_start_matches('-');
        let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_integer && digits.parse::<u64>().map_or(true, |integer| integer > MAX_INTEGER)
    })
}

/// Parses a value and records errors that a lenient parser ignores.
struct Strict<'a> {
    depth: usize,
    fault: &'a mut Option<CanonicalError>,
}

impl Strict<'_> {
    fn inner<E: serde::de::Error>(&mut self) -> Result<Strict<'_>, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(CanonicalError::TooDeep));
        }
        Ok(Strict { depth: self.depth + 1, fault: self.fault })
    }

    fn refuse<E: serde::de::Error>(&mut self, fault: CanonicalError) -> E {
        *self.fault = Some(fault);
        E::custom("not strict")
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.inner()?)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(self.refuse(CanonicalError::DuplicateKey(key.chars().take(40).collect())));
            }
            let value = map.next_value_seed(self.inner()?)?;
            members.insert(key, value);
        }
        Ok(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8785, 3.2.2: the example, and the bytes of 3.2.4.
    #[test]
    fn example_values_of_the_rfc() {
        let json = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let bytes = "
            7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72
            75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72 73 22 3a
            5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31
            65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37
            5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30
            30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d";
        let bytes: Vec<u8> =
            bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        assert_eq!(canonical(json).unwrap().into_bytes(), bytes);
    }

    /// RFC 8785, 3.2.3: keys are sorted by their UTF-16 units.
    #[test]
    fn key_order_of_the_rfc() {
        let json = r#"{
            "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
            "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#;
        let sorted = canonical(json).unwrap();
        let names = ["Carriage Return", "One", "Control", "Latin Small", "Euro Sign", "Emoji", "Hebrew"];
        let places: Vec<usize> = names.iter().map(|name| sorted.find(name).unwrap()).collect();
        assert!(places.is_sorted(), "{sorted}");
    }

    /// RFC 8785, appendix B: doubles by their bits.
    #[test]
    fn example_numbers_of_the_rfc() {
        for (bits, expected) in [
            (0x0000000000000000, "0"),
            (0x8000000000000000, "0"),
            (0x0000000000000001, "5e-324"),
            (0x8000000000000001, "-5e-324"),
            (0x7fefffffffffffff, "1.7976931348623157e+308"),
            (0xffefffffffffffff, "-1.7976931348623157e+308"),
            (0x4340000000000000, "9007199254740992"),
            (0xc340000000000000, "-9007199254740992"),
            (0x4430000000000000, "295147905179352830000"),
            (0x44b52d02c7e14af5, "9.999999999999997e+22"),
            (0x44b52d02c7e14af6, "1e+23"),
            (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
            (0x444b1ae4d6e2ef4e, "999999999999999700000"),
            (0x444b1ae4d6e2ef4f, "999999999999999900000"),
            (0x444b1ae4d6e2ef50, "1e+21"),
            (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
            (0x3eb0c6f7a0b5ed8d, "0.000001"),
            (0x41b3de4355555553, "333333333.3333332"),
            (0x41b3de4355555554, "333333333.33333325"),
            (0x41b3de4355555555, "333333333.3333333"),
            (0x41b3de4355555556, "333333333.3333334"),
            (0x41b3de4355555557, "333333333.33333343"),
            (0xbecbf647612f3696, "-0.0000033333333333333333"),
            (0x43143ff3c1cb0959, "1424953923781206.2"),
        ] {
            let number = f64::from_bits(bits);
            let form = serde_json_canonicalizer::to_string(&number).unwrap();
            assert_eq!(form, expected, "{bits:x}");
            // In every spelling, a double is rejected if its canonical form is an integer beyond
            // the limit.
            let read = canonical(&format!("{number:e}"));
            assert_eq!(read, no_big_integer(expected).map(|()| form), "{bits:x}");
        }
        for no_number in ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"] {
            assert!(matches!(canonical(no_number), Err(CanonicalError::Json(_))), "{no_number}");
        }
    }

    #[test]
    fn duplicate_keys_are_rejected_at_any_depth() {
        for json in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"x":[],"\u0061":2}}]"#] {
            assert_eq!(canonical(json), Err(CanonicalError::DuplicateKey("a".into())), "{json}");
        }
        assert!(canonical(r#"{"a":{"a":1},"b":{"a":1},"A":0}"#).is_ok());
    }

    #[test]
    fn integers_beyond_a_double_are_rejected() {
        for integer in ["9007199254740991", "-9007199254740991", "0", "-0", "1e30", "9007199254740991.0"] {
            assert!(canonical(&format!(r#"{{"a":[{integer}]}}"#)).is_ok(), "{integer}");
        }
        for integer in
            ["9007199254740992", "-9007199254740993", "18446744073709551616", "-9223372036854775809"]
        {
            let fault = Err(CanonicalError::BigInteger(integer.into()));
            assert_eq!(canonical(&format!(r#"{{"a":[{integer}]}}"#)), fault);
            // Inside a string the digits are text.
            assert!(canonical(&format!(r#"{{"\"{integer}":"\\\" {integer}"}}"#)).is_ok());
        }
    }

    #[test]
    fn doubles_with_a_big_integer_as_form_are_rejected() {
        for (double, form) in [
            ("9007199254740993.0", "9007199254740992"),
            ("-1.0e+18", "-1000000000000000000"),
            ("9999999999999999e5", "999999999999999900000"),
        ] {
            assert_eq!(canonical(double), Err(CanonicalError::BigInteger(form.into())), "{double}");
        }
        // These canonical forms have an exponent, and are their own canonical form.
        for double in ["1e21", "-6.02214076e23"] {
            let form = canonical(double).unwrap();
            assert_eq!(canonical(&form).as_ref(), Ok(&form), "{double}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(canonical(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(canonical(&nested(MAX_DEPTH + 1)), Err(CanonicalError::TooDeep));
        assert_eq!(canonical(&nested(100_000)), Err(CanonicalError::TooDeep));
    }

    #[test]
    fn invalid_json_is_rejected() {
        for text in
            ["", "{", "{}x", "{} {}", r#""\ud83d""#, r#""\ude00\ud83d""#, "01", "[1,]", "{\"a\":\u{1}}"]
        {
            assert!(matches!(canonical(text), Err(CanonicalError::Json(_))), "{text}");
        }
        for text in ["[]", "7", "null", "\"a\""] {
            assert_eq!(Signable::read(text).err(), Some(CanonicalError::NoObject));
        }
    }
}
