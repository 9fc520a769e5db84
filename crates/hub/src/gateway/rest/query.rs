//! Reads the query of a request.

use std::fmt::Display;

use serde::de::value::{Error as ValueError, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Parses a query. A parameter that is there twice, or that the type does not know, is an error.
pub(crate) fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, String> {
    let pairs = pairs(query)?;
    let values = pairs.iter().map(|(name, text)| (name.as_str(), QueryText { name, text }));
    T::deserialize(MapDeserializer::new(values)).map_err(|error: ValueError| error.to_string())
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, text) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(text)?))
        })
        .collect()
}

/// Decodes `%20` and `+`.
fn decode(text: &str) -> Result<String, String> {
    let spaced = text.replace('+', " ");
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(&spaced).collect();
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// A parameter. It becomes a text or a number, as its type needs.
struct QueryText<'a> {
    name: &'a str,
    text: &'a str,
}

impl QueryText<'_> {
    fn failed(&self, error: impl Display) -> ValueError {
        ValueError::custom(format!("`{}`: {error}", self.name))
    }
}

impl<'de> IntoDeserializer<'de> for QueryText<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for QueryText<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_str(self.text).map_err(|error: ValueError| self.failed(error))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let value = self.text.parse().map_err(|_| self.failed("use `true` or `false`"))?;
        visitor.visit_bool(value)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        // `parse` would accept a sign.
        let is_number = self.text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { self.text.parse().ok() } else { None };
        let number: u64 = number.ok_or_else(|| self.failed("use a whole number"))?;
        visitor.visit_u64(number).map_err(|error: ValueError| self.failed(error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let text: serde::de::value::StrDeserializer<'_, ValueError> = self.text.into_deserializer();
        text.deserialize_enum(name, variants, visitor).map_err(|error| self.failed(error))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Page {
        tag: Option<String>,
        limit: Option<u64>,
        all: Option<bool>,
    }

    #[test]
    fn a_query_is_read_strictly() {
        let page = |query: &str| parse_query::<Page>(query);
        assert_eq!(page(""), Ok(Page::default()));
        let expected = Page { tag: Some("a b/ü".to_owned()), limit: Some(7), all: Some(true) };
        assert_eq!(page("all=true&limit=7&tag=a+b%2F%C3%BC"), Ok(expected));
        for (query, part) in [
            ("limit=x", "`limit`: use a whole number"),
            ("limit=-1", "`limit`: use a whole number"),
            ("limit=99999999999999999999", "`limit`: use a whole number"),
            ("limit=1&limit=2", "duplicate field `limit`"),
            ("all=1", "`all`: use `true` or `false`"),
            ("limits=1", "unknown field `limits`"),
            ("tag=%ff", "not UTF-8"),
        ] {
            let error = page(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
