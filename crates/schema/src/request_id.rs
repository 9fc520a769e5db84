//! The id of a JSON-RPC request.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::schema_of;

/// The id of a JSON-RPC request, kept as its JSON token.
///
/// An id is a string, an integer that fits `i64`, or `null`. Ids are compared and sent back byte for
/// byte: `1` is not `"1"`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Reads an id from its JSON token. Returns `None` for an invalid token.
    #[must_use]
    pub fn from_token(token: &str) -> Option<Self> {
        let legal = match token.as_bytes().first()? {
            b'"' => serde_json::from_str::<&RawValue>(token).is_ok(),
            b'n' => token == "null",
            _ => serde_json::from_str::<i64>(token).is_ok(),
        };
        legal.then(|| RequestId(token.into()))
    }

    /// Returns the id `null`, for the response to a request with an unreadable id.
    #[must_use]
    pub fn null() -> Self {
        RequestId("null".into())
    }

    /// Returns the JSON token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.0
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        RequestId(number.to_string().into())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        RequestId::from_token(raw.get())
            .ok_or_else(|| D::Error::custom("an id must be a string, an integer or null"))
    }
}

schema_of!(RequestId, "RequestId", |_| schemars::json_schema!({
    "description": "The id of a JSON-RPC request.",
    "anyOf": [{ "type": "null" }, { "type": "integer", "format": "int64" }, { "type": "string" }],
}));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_string_an_integer_or_null() {
        for token in
            ["0", "-7", "9223372036854775807", "-9223372036854775808", "\"\"", "\"1\"", "\"\\u00e9\"", "null"]
        {
            let id = RequestId::from_token(token).unwrap_or_else(|| panic!("{token}"));
            assert_eq!((id.token(), id.to_string().as_str()), (token, token));
            assert_eq!(serde_json::to_string(&id).unwrap(), token);
            assert_eq!(serde_json::from_str::<RequestId>(token).unwrap(), id);
        }
        for token in [
            "",
            "-",
            "1.0",
            "1e0",
            "01",
            "1 2",
            "9223372036854775808",
            "true",
            "nul",
            "nothing",
            "{}",
            "[]",
            "\"",
            "\"open",
            "\"a\"b",
            "\"a\\\"",
        ] {
            assert_eq!(RequestId::from_token(token), None, "{token}");
            assert!(serde_json::from_str::<RequestId>(token).is_err(), "{token}");
        }
        assert_eq!((RequestId::null().token(), RequestId::from(7).token()), ("null", "7"));
        assert_ne!(RequestId::from_token("1"), RequestId::from_token("\"1\""));
    }
}
