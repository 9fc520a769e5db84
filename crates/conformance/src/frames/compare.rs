//! Compares a value with its decoded and encoded form.

use serde_json::{Map, Number, Value};

use super::path::JsonPath;
use super::problems::Problems;

/// Compares a received value with the encoding of its type, without regard to the order of members. Each
/// difference is a warning at its path.
pub(super) fn same(sent: &Value, written: &Value, path: &str, problems: &mut Problems) -> bool {
    let before = problems.len();
    differences(sent, written, &JsonPath::Base(path), problems);
    problems.len() == before
}

fn differences(sent: &Value, written: &Value, path: &JsonPath<'_>, problems: &mut Problems) {
    match (sent, written) {
        (Value::Object(sent), Value::Object(written)) => {
            for (key, value) in sent {
                let path = JsonPath::Member(path, key);
                match written.get(key) {
                    Some(written) => differences(value, written, &path, problems),
                    None if is_unknown_capability(&path, value) => {
                        problems.warning(path, "is an unknown capability and is ignored");
                    }
                    // It means the same as a member that is left out.
                    None if is_default_like(value) => {}
                    None if value.is_object() && is_group(key) => {
                        differences(value, &Value::Object(Map::new()), &path, problems);
                    }
                    None => problems.warning(
                        path,
                        "is ignored: no such member is known, or it has not the form it should have",
                    ),
                }
            }
            for (key, value) in written.iter().filter(|(key, _)| !sent.contains_key(*key)) {
                problems.addition(JsonPath::Member(path, key), value);
            }
        }
        (Value::Array(sent), Value::Array(written)) if sent.len() == written.len() => {
            for (place, (sent, written)) in sent.iter().zip(written).enumerate() {
                differences(sent, written, &JsonPath::Item(path, place), problems);
            }
        }
        (Value::Array(sent), Value::Array(written)) => problems.warning(
            path,
            format_args!(
                "{} of {} items are read; the others have not the form they should have",
                written.len(),
                sent.len()
            ),
        ),
        (Value::Number(sent), Value::Number(written)) if equal(sent, written) => {}
        _ if sent == written => {}
        _ => problems.warning(path, format_args!("reads as {}", short(written))),
    }
}

/// Returns true for an unknown member of capabilities that advertises something. Known ones are kept, except for
/// groups of capabilities without any.
fn is_unknown_capability(path: &JsonPath<'_>, value: &Value) -> bool {
    let JsonPath::Member(parent, key) = path else { return false };
    let advertises = matches!(value, Value::Object(_) | Value::Bool(true));
    advertises && !is_group(key) && parent.name().ends_with("apabilities")
}

/// Returns true for the name of a group of capabilities, which is left out if none of them is known.
fn is_group(name: &str) -> bool {
    name.ends_with("Capabilities") || matches!(name, "fs" | "auth")
}

/// Returns true if a member that is left out can mean this value.
fn is_default_like(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_default_like),
        Value::String(text) => matches!(text.as_str(), "" | "pending" | "other"),
        _ => false,
    }
}

/// Compares numbers: `1` and `1.0` are equal in JSON.
fn equal(left: &Number, right: &Number) -> bool {
    left == right || ((left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64())
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
