//! What a value lost on its way through its type.

use serde_json::{Number, Value};

use super::Problem;
use super::typed::member;

/// Compares what was sent with what its type writes; the order of members does not count. Each difference is
/// a warning at its path.
pub(super) fn same(sent: &Value, written: &Value, path: &str, problems: &mut Vec<Problem>) -> bool {
    let before = problems.len();
    differences(sent, written, path, problems);
    problems.len() == before
}

fn differences(sent: &Value, written: &Value, path: &str, problems: &mut Vec<Problem>) {
    match (sent, written) {
        (Value::Object(sent), Value::Object(written)) => {
            for (key, value) in sent {
                let path = member(path, key);
                match written.get(key) {
                    Some(written) => differences(value, written, &path, problems),
                    // Often it means the same; that it is unknown cannot be told apart here.
                    None if says_little(value) => {
                        problems.push(Problem::warning(path, format!("is {value} and reads as left out")));
                    }
                    None => problems.push(Problem::warning(
                        path,
                        "is ignored: no such member is known, or it has not the form it should have",
                    )),
                }
            }
            let added = written.keys().filter(|key| !sent.contains_key(*key));
            problems.extend(added.map(|key| {
                let value = written.get(key).unwrap_or(&Value::Null);
                Problem::addition(member(path, key), value)
            }));
        }
        (Value::Array(sent), Value::Array(written)) if sent.len() == written.len() => {
            for (place, (sent, written)) in sent.iter().zip(written).enumerate() {
                differences(sent, written, &format!("{path}[{place}]"), problems);
            }
        }
        (Value::Array(sent), Value::Array(written)) => problems.push(Problem::warning(
            path,
            format!(
                "{} of {} items are read; the others have not the form they should have",
                written.len(),
                sent.len()
            ),
        )),
        (Value::Number(sent), Value::Number(written)) if equal(sent, written) => {}
        _ if sent == written => {}
        _ => problems.push(Problem::warning(path, format!("reads as {}", short(written)))),
    }
}

/// Whether a value is what a member that is left out may stand for.
fn says_little(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => matches!(text.as_str(), "" | "pending" | "other"),
        _ => false,
    }
}

/// `1` and `1.0` are one number in JSON.
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
