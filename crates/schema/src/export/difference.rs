//! Compares two schemas by the JSON that they describe, for example ours with the published one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// The facts about each definition of a schema.
type Facts = BTreeMap<String, BTreeSet<String>>;

/// Returns the differences of two schemas, one a line: the side that has it alone, the definition, and the fact about
/// that definition, if the other side has the definition too.
///
/// Compared are names, properties with their types, required properties, tags, values, limits, hints for malformed
/// values, and methods. Descriptions, default values, and the ways to write the same rule are not.
#[must_use]
pub fn differences(theirs: &Value, ours: &Value) -> Vec<String> {
    let (theirs, ours) = (facts(theirs), facts(ours));
    let only = |side: &'static str, these: &Facts, others: &Facts| {
        let of_definition = |(name, facts): (&String, &BTreeSet<String>)| match others.get(name) {
            None => vec![format!("only {side}: {name}")],
            Some(others) => {
                facts.difference(others).map(|fact| format!("only {side}: {name} {fact}")).collect()
            }
        };
        these.iter().flat_map(of_definition).collect::<Vec<String>>()
    };
    [only("theirs", &theirs, &ours), only("ours", &ours, &theirs)].concat()
}

fn facts(document: &Value) -> Facts {
    let Some(all) = document["$defs"].as_object() else { return Facts::new() };
    all.iter().map(|(name, schema)| (name.clone(), facts_of(all, schema))).collect()
}

/// Returns the facts about a definition.
fn facts_of(all: &Map<String, Value>, schema: &Value) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    if let Some(method) = schema["x-method"].as_str() {
        facts.insert(format!("belongs to {method}"));
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    facts.extend(required.map(|key| format!("requires {key}")));
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        facts.insert(format!("has {key}: {}", form(all, property)));
        facts.extend(rules(property).map(|rule| format!("has {key} with {rule}")));
    }
    for key in ["anyOf", "oneOf"] {
        for variant in schema[key].as_array().into_iter().flatten() {
            facts.insert(format!("is {}", form(all, variant)));
        }
    }
    if facts.is_empty() {
        facts.insert(format!("is {}", form(all, schema)));
    }
    facts
}

/// Returns the limits of a property, and the hints for malformed values.
fn rules(property: &Value) -> impl Iterator<Item = String> {
    let members = property.as_object().into_iter().flatten();
    members
        .filter(|(key, _)| key.starts_with("x-deserialize") || key.starts_with("m") || *key == "pattern")
        .map(|(key, value)| format!("{key} {value}"))
}

/// Returns the types, values, tags and definitions that a schema names, in order.
fn form(all: &Map<String, Value>, schema: &Value) -> String {
    let mut parts = BTreeSet::new();
    add_parts(all, schema, &mut parts);
    parts.into_iter().collect::<Vec<_>>().join("|")
}

fn add_parts(all: &Map<String, Value>, schema: &Value, parts: &mut BTreeSet<String>) {
    let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
    // The name of a plain type, such as an id, is not on the wire.
    match name.map(|name| (name, all.get(name))) {
        Some((_, Some(plain))) if is_plain(plain) => add_parts(all, plain, parts),
        Some((name, _)) => _ = parts.insert(name.to_owned()),
        None => {}
    }
    match &schema["type"] {
        Value::String(kind) if kind != "object" => _ = parts.insert(kind.clone()),
        Value::Array(kinds) => parts.extend(kinds.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    }
    parts.extend(schema.get("const").map(Value::to_string));
    parts.extend(schema["enum"].as_array().into_iter().flatten().map(Value::to_string));
    parts.extend(schema.get("items").map(|items| format!("[{}]", form(all, items))));
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        parts.extend(property.get("const").map(|tag| format!("{key}={tag}")));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            add_parts(all, part, parts);
        }
    }
}

/// Returns true for a definition that is a string, a number or a boolean.
fn is_plain(schema: &Value) -> bool {
    matches!(schema["type"].as_str(), Some("string" | "integer" | "number" | "boolean"))
        && schema.get("enum").is_none()
        && schema.get("const").is_none()
}
