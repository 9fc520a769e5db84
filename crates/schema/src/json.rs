//! JSON that is kept as text.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::schema_of;

/// One JSON value kept as the text it arrived in.
///
/// Used where the protocol allows any JSON: tool inputs and outputs, error data, unknown variants. The
/// text takes up to 70 times less memory than a tree, and it is written back unchanged.
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
    /// If `value` has no JSON form, such as a map whose keys are not strings.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Json)
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    ///
    /// If the JSON does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.get())
    }

    /// Returns the value as a raw value of `serde_json`.
    #[must_use]
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Converts the value into a raw value of `serde_json`.
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
        // A `Value` always has a JSON text, so the fallback is never used.
        Json(RawValue::from_string(value.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

/// Implements `From` for types that always have a JSON text. NaN and infinities become `null`.
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

/// Compares the values. White space and the order of keys do not matter.
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

schema_of!(inline Json, "Json", |_| schemars::json_schema!({}));
