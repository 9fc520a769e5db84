//! The question of a query: text or structured data.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Json;
use crate::wire::schema_of;

/// The question of a query: natural language, or an object or array with structured data.
///
/// ```
/// use duologue_schema::envelope::{Query, Question};
/// use serde_json::json;
///
/// let text = Query::new("Who is free?");
/// assert_eq!(text.question.as_str(), "Who is free?");
///
/// let data = Query::new(json!({ "free_on": "Friday" }));
/// assert_eq!(data.question.as_str(), r#"{"free_on":"Friday"}"#);
/// assert!(matches!(data.question, Question::Data(_)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Question {
    /// Natural language.
    Text(String),
    /// Structured data: an object or an array.
    Data(Json),
}

impl Question {
    /// Returns the text, or the data as JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Question::Text(text) => text,
            Question::Data(data) => data.get(),
        }
    }

    /// Returns the structured data, if it is not a text.
    #[must_use]
    pub fn data(&self) -> Option<&Json> {
        match self {
            Question::Text(_) => None,
            Question::Data(data) => Some(data),
        }
    }
}

impl AsRef<str> for Question {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<str> for Question {
    fn eq(&self, other: &str) -> bool {
        matches!(self, Question::Text(text) if text == other)
    }
}

impl PartialEq<&str> for Question {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl From<&str> for Question {
    fn from(text: &str) -> Self {
        Question::Text(text.to_owned())
    }
}

impl From<&String> for Question {
    fn from(text: &String) -> Self {
        Question::Text(text.clone())
    }
}

impl From<String> for Question {
    fn from(text: String) -> Self {
        Question::Text(text)
    }
}

/// A JSON string becomes a text. Other values are sent as they are; a peer may reject one that is neither an
/// object nor an array.
impl From<Json> for Question {
    fn from(json: Json) -> Self {
        json.parse().map_or(Question::Data(json), Question::Text)
    }
}

impl From<serde_json::Value> for Question {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::String(text) => Question::Text(text),
            data => Question::Data(data.into()),
        }
    }
}

impl Serialize for Question {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Question::Text(text) => serializer.serialize_str(text),
            Question::Data(data) => data.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Question {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        match json.get().as_bytes().first() {
            Some(b'"') => json.parse().map(Question::Text).map_err(serde::de::Error::custom),
            Some(b'{' | b'[') => Ok(Question::Data(json)),
            _ => Err(serde::de::Error::custom("`question` must be a text, an object or an array")),
        }
    }
}

schema_of!(inline Question, "Question", |_| schemars::json_schema!({ "type": ["string", "object", "array"] }));
