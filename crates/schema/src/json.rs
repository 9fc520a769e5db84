//! JSON that is carried, not read.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value kept as the text it arrived in.
///
/// Used wherever the protocol says "any JSON": tool inputs and outputs, error data, unknown
/// variants. Keeping the text costs what the text costs (a tree costs up to 70 times as much), and
/// writing it back changes no byte.
///
/// ```
/// # fn main() -> Result<(), serde_json::Error> {
/// let json = duologue_schema::Json::new(&[1, 2, 3])?;
/// assert_eq!(json.get(), "[1,2,3]");
/// assert_eq!(json.parse::<Vec<u8>>()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Writes `value` as JSON.
    ///
    /// # Errors
    ///
    /// When `value` cannot be expressed in JSON, such as a map whose keys are not strings.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Json)
    }

    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    ///
    /// When the JSON does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.get())
    }

    /// The value as serde_json's own raw value.
    #[must_use]
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

impl Json {
    /// The value as serde_json's own raw value, owned.
    #[must_use]
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Json(raw)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        // A `Value` always has a JSON text, so the fallback is never taken.
        Json(RawValue::from_string(value.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

/// For what always has a JSON text. A number that is none, such as NaN, is `null`.
macro_rules! from_values {
    ($($value:ty),*) => {$(
        impl From<$value> for Json {
            fn from(value: $value) -> Self {
                serde_json::Value::from(value).into()
            }
        }
    )*};
}

from_values!(bool, i32, i64, u32, u64, f64, &str, String);

/// Compares the values, not their spelling: white space and the order of keys do not count.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
            || matches!(
                (self.parse::<serde_json::Value>(), other.parse::<serde_json::Value>()),
                (Ok(left), Ok(right)) if left == right
            )
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Json)
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({})
    }
}
