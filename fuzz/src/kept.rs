//! Values that are decoded and encoded again stay the same.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::marked::is_marked;

/// The name of a method, a line end, and JSON. Without a name of the table the first byte picks one, so
/// that no input is in vain.
pub(crate) fn method_and_json<'a>(
    input: &'a [u8],
    methods: &[&'static str],
) -> Option<(&'static str, &'a RawValue)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let named = methods.iter().find(|method| method.as_bytes() == &input[..end]);
    let picked = || methods.get(usize::from(*input.first()?) % methods.len().max(1));
    let json = std::str::from_utf8(&input[end + 1..]).ok()?;
    Some((named.or_else(picked)?, serde_json::from_str(json).ok()?))
}

/// Checks that decoding, encoding and decoding give the same value. The second encoding is equal to the first one, and has
/// no member that was not in the input.
pub(crate) fn survives<T: Serialize + PartialEq + Debug>(
    json: &RawValue,
    read: impl Fn(&RawValue) -> Option<T>,
) {
    let Some(first) = read(json) else { return };
    let written = serde_json::value::to_raw_value(&first).expect("what was read can be written");
    let second = read(&written).unwrap_or_else(|| panic!("{written} cannot be read again"));
    assert_eq!(first, second, "{written}");
    let again = serde_json::to_string(&second).expect("it can be written again");
    assert_eq!(again, written.get());
    if let (Ok(before), Ok(after), false) = (json_value(json), json_value(&written), is_marked(json.get())) {
        nothing_made_up(&before, &after, &mut String::new());
    }
}

fn json_value(json: &RawValue) -> serde_json::Result<Value> {
    serde_json::from_str(json.get())
}

/// Checks that members of the same type are equal in both. A missing member may have its default, a bad one in a
/// lenient place may be gone, and an unknown one is ignored.
fn nothing_made_up(before: &Value, after: &Value, path: &mut String) {
    let length = path.len();
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, after) in after {
                if let Some(before) = before.get(key) {
                    path.push('/');
                    path.push_str(key);
                    nothing_made_up(before, after, path);
                    path.truncate(length);
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert!(after.len() <= before.len(), "more items at {path}");
            // Which of a list's items were bad and left out is not known here.
            if before.len() == after.len() {
                before.iter().zip(after).for_each(|(before, after)| nothing_made_up(before, after, path));
            }
        }
        (Value::Number(before), Value::Number(after)) => {
            assert_eq!(before.as_f64(), after.as_f64(), "at {path}")
        }
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => {
            assert_eq!(before, after, "at {path}");
        }
        _ => {}
    }
}
