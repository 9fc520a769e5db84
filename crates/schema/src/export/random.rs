//! Creates random values that fit a JSON Schema, for round-trip tests.

use serde_json::{Map, Value, json};

/// A generator of values. Equal seeds create equal values.
pub struct RandomValues<'a> {
    root: &'a Value,
    state: u64,
}

impl<'a> RandomValues<'a> {
    /// Creates a generator for the definitions in the `$defs` of `root`.
    #[must_use]
    pub fn new(root: &'a Value, seed: u64) -> Self {
        RandomValues { root, state: seed }
    }

    /// Creates a value that fits the definition `name`.
    pub fn definition(&mut self, name: &str) -> Value {
        self.value(&self.root["$defs"][name], 0)
    }

    /// Returns a number below `bound` (splitmix64).
    pub fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }

    fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }

    /// Creates a value that fits `schema`.
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            let referenced = self.value(&self.root["$defs"][name], depth);
            // Properties beside the reference, such as the tag of a union.
            let own = self.own(schema, depth);
            return merge(referenced, own).unwrap_or_default();
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.pick(values).clone();
        }
        let mut made = self.own(schema, depth);
        for part in schema["allOf"].as_array().into_iter().flatten() {
            let part = self.value(part, depth);
            made = merge(part, made);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(variants) = schema[key].as_array() {
                let variant = self.pick(variants).clone();
                let variant = self.value(&variant, depth);
                // The tag of the variant wins over the any tag of the object.
                made = match made {
                    Some(under @ Value::Object(_)) if variant.is_object() => merge(under, Some(variant)),
                    _ => Some(variant),
                };
            }
        }
        match made {
            Some(value) => value,
            None => self.anything(depth),
        }
    }

    /// Creates a value for the keywords of `schema` itself. Returns `None` if there are none.
    fn own(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        let kind = match &schema["type"] {
            Value::String(kind) => kind.as_str(),
            Value::Array(kinds) => self.pick(kinds).as_str()?,
            _ if schema.get("properties").is_some() => "object",
            _ => return None,
        };
        Some(match kind {
            "null" => Value::Null,
            "boolean" => (self.below(2) == 0).into(),
            "string" => self.text(schema["minLength"].as_u64().unwrap_or(0) > 0).into(),
            "integer" => {
                let value = self.integer(schema["format"].as_str().unwrap_or("int32"));
                match (&schema["minimum"], value.as_i64()) {
                    (Value::Number(least), Some(value)) => value.max(least.as_i64().unwrap_or(value)).into(),
                    _ => value,
                }
            }
            "number" => {
                let value = (self.below(4000) as f64 - 2000.0) / 4.0;
                match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
                    (Some(least), Some(most)) => json!(value.clamp(least, most)),
                    _ => json!(value),
                }
            }
            "array" => {
                let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
                let length = self.below(if depth > 6 { 1 } else { 4 }).max(least);
                (0..length).map(|_| self.value(&schema["items"], depth + 1)).collect()
            }
            _ => self.object(schema, depth).into(),
        })
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Map<String, Value> {
        let mut object = Map::new();
        let required =
            |key: &str| schema["required"].as_array().is_some_and(|keys| keys.iter().any(|k| k == key));
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            // A property with only one possible value, such as a version, is always present.
            if required(key) || property.get("const").is_some() || self.below(2) == 0 {
                object.insert(key.clone(), self.value(property, depth + 1));
            }
        }
        match &schema["additionalProperties"] {
            Value::Bool(false) | Value::Null => {}
            any => {
                for _ in 0..self.below(3) {
                    object.insert(self.text(true), self.value(any, depth + 1));
                }
            }
        }
        object
    }

    fn integer(&mut self, format: &str) -> Value {
        let small = self.below(1000) as u64;
        match (format, self.below(4)) {
            ("uint16", 0) => u16::MAX.into(),
            ("uint32", 0) => u32::MAX.into(),
            ("uint64", 0) => u64::MAX.into(),
            ("int64", 0) => i64::MIN.into(),
            ("int64", 1) => i64::MAX.into(),
            ("int32", 0) => (-32_000 - self.below(900) as i64).into(),
            _ => small.into(),
        }
    }

    fn text(&mut self, filled: bool) -> String {
        const PARTS: [&str; 10] =
            ["a", "é", " ", "\"", "\\", "\u{1f600}", "\n", "/home/x", "\u{0}", "{\"type\":\"text\"}"];
        (0..self.below(4) + usize::from(filled)).map(|_| *self.pick(&PARTS)).collect()
    }

    fn anything(&mut self, depth: usize) -> Value {
        match self.below(if depth > 5 { 4 } else { 6 }) {
            0 => json!(self.below(2) == 0),
            1 => self.integer("int64"),
            2 => json!(0.5),
            3 => self.text(false).into(),
            4 => (0..self.below(3)).map(|_| self.anything(depth + 1)).collect(),
            _ => (0..self.below(3)).map(|_| (self.text(true), self.anything(depth + 1))).collect(),
        }
    }
}

/// Merges two objects, where `over` wins. Returns `under` if one of them is not an object.
fn merge(under: Value, over: Option<Value>) -> Option<Value> {
    match (under, over) {
        (Value::Object(mut under), Some(Value::Object(over))) => {
            under.extend(over);
            Some(under.into())
        }
        (under, _) => Some(under),
    }
}

/// Returns true if `after` can be the result of decoding and encoding `before`.
///
/// Encoding may drop a member whose absence means the same, and may add the default of an absent one.
#[must_use]
pub fn same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.iter().all(|(key, value)| match after.get(key) {
                Some(other) => same(value, other),
                None => droppable(value),
            }) && after.iter().all(|(key, value)| before.contains_key(key) || addable(value))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(before, after)| same(before, after))
        }
        (Value::Number(before), Value::Number(after)) => before == after || before.as_f64() == after.as_f64(),
        (before, after) => before == after || (before.is_null() && addable(after)),
    }
}

/// Returns true if the value may be the default of an absent member.
fn addable(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => matches!(text.as_str(), "" | "object" | "normal" | "medium" | "delivered"),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(addable),
        Value::Bool(true) => false,
    }
}

/// Returns true if a member with this value may be left out.
fn droppable(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(droppable),
        Value::String(text) => text == "other" || text == "pending",
        // A size over 63 bits reads as absent.
        Value::Number(number) => number.as_u64().is_some_and(|number| i64::try_from(number).is_err()),
        Value::Bool(true) => false,
    }
}
