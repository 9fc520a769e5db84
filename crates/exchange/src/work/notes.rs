//! Removal of agent names from notes.

use duologue_schema::work::WorkNote;
use serde_json::Value;

/// Replaces `name` by `action` in the texts of a note, where it stands alone. Parts of longer
/// words, paths and keys of objects are unchanged.
pub(super) fn renamed(note: &WorkNote, name: &str, action: &str) -> WorkNote {
    let Ok(mut value) = note.as_json().parse::<Value>() else { return note.clone() };
    // Usually nothing changes, and the note keeps its spelling.
    if !name.is_empty() && rename(&mut value, name, action) { value.into() } else { note.clone() }
}

fn rename(value: &mut Value, name: &str, action: &str) -> bool {
    match value {
        Value::String(text) => match replaced(text, name, action) {
            Some(new) => {
                *text = new;
                true
            }
            None => false,
        },
        // Every item must be visited, so this is not `any`.
        Value::Array(items) => {
            items.iter_mut().fold(false, |changed, item| rename(item, name, action) | changed)
        }
        Value::Object(members) => {
            members.values_mut().fold(false, |changed, item| rename(item, name, action) | changed)
        }
        _ => false,
    }
}

fn replaced(text: &str, name: &str, action: &str) -> Option<String> {
    // The name stands between adjacent pieces.
    let pieces: Vec<&str> = text.split(name).collect();
    let (mut new, mut changed) = (String::new(), false);
    for (number, piece) in pieces.iter().enumerate() {
        new.push_str(piece);
        let Some(next) = pieces.get(number + 1) else { break };
        let (first, last) = (number == 0, number + 2 == pieces.len());
        let before = piece.trim_end_matches(MARKS).chars().next_back();
        let after = next.trim_start_matches(MARKS).chars().next();
        let alone = before.map_or(first, char::is_whitespace) && after.map_or(last, char::is_whitespace);
        new.push_str(if alone { action } else { name });
        changed |= alone;
    }
    changed.then_some(new)
}

/// Punctuation between a word and the space beside it. Inside `val/notes.md` or `val.md` it does
/// not separate words.
const MARKS: &[char] = &['.', ',', ':', ';', '!', '?', '(', ')', '[', ']', '"', '\'', '`', '*'];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_replaced_as_words() {
        fn check(note: Value, after: Value) {
            assert_eq!(renamed(&note.into(), "val", "validate"), after.into());
        }
        check(json!("val: two cases"), json!("validate: two cases"));
        check(json!("(val), val"), json!("(validate), validate"));
        check(json!("**val**\n`val`: \"val!\""), json!("**validate**\n`validate`: \"validate!\""));
        check(json!("valval val"), json!("valval validate"));
        let others = "valid interval val-2 val_2 éval val/notes.md val.md:7 ./val agent://val val's";
        check(json!(others), json!(others));
        check(json!("val"), json!("validate"));
        check(
            json!({ "by": "val", "val": [7, ["val", null]] }),
            json!({ "by": "validate", "val": [7, ["validate", null]] }),
        );
        check(json!(7), json!(7));
    }

    #[test]
    fn no_name_changes_nothing() {
        let note: WorkNote = serde_json::from_str("1.50").unwrap();
        assert_eq!(renamed(&note, "", "x").to_string(), "1.50");
        assert_eq!(renamed(&"a b".into(), "", "x"), "a b".into());
    }
}
