//! Finds duplicate members of an object, of which parsers choose different ones.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::Problem;
use super::typed::member;

/// Warns of each duplicate member in a JSON text.
pub(super) fn warn(text: &str, problems: &mut Vec<Problem>) {
    let walk = Walk { path: "$".into(), problems };
    // Invalid JSON has been reported.
    let _ = walk.deserialize(&mut serde_json::Deserializer::from_str(text));
}

/// Visits a value at a path.
struct Walk<'a> {
    path: String,
    problems: &'a mut Vec<Problem>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            let path = member(&self.path, &key);
            if !seen.insert(key) {
                let problem = "stands twice; readers differ in which one they take";
                self.problems.push(Problem::warning(path.clone(), problem));
            }
            members.next_value_seed(Walk { path, problems: self.problems })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut place = 0;
        loop {
            let path = format!("{}[{place}]", self.path);
            if items.next_element_seed(Walk { path, problems: self.problems })?.is_none() {
                return Ok(());
            }
            place += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
