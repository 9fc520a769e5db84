//! The key of a prompt, by which an agent recognizes a request that is sent again.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::wire::schema_of;

/// The key of a prompt within its session. The client chooses it. A repeated request with the same key returns the id
/// of the same message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The largest number of characters of a key. The smallest is one.
    pub const MAX_CHARS: usize = 255;

    /// Creates a key.
    ///
    /// # Errors
    ///
    /// `-32602` (invalid params) for an empty key and for one with more than [`MAX_CHARS`](Self::MAX_CHARS) characters.
    pub fn new(key: impl Into<String>) -> Result<Self, Error> {
        let key = key.into();
        match key.chars().count() {
            1..=Self::MAX_CHARS => Ok(Self(key)),
            count => {
                let limit = Self::MAX_CHARS;
                Err(Error::invalid_params(format!(
                    "`idempotencyKey` has {count} characters; send 1 to {limit}"
                )))
            }
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for IdempotencyKey {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(d)?).map_err(|error| D::Error::custom(error.message))
    }
}

schema_of!(IdempotencyKey, "IdempotencyKey", |_| schemars::json_schema!({
    "description": "The key of a prompt within its session, which the client chooses.",
    "type": "string",
    "minLength": 1,
    "maxLength": IdempotencyKey::MAX_CHARS,
}));
