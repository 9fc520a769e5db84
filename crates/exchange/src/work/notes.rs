//! Notes without names.

use duologue_schema::work::Note;
use serde_json::Value;

/// The note with `name`, where it stands as a word, replaced by `action`.
pub(super) fn renamed(note: &Note, name: &str, action: &str) -> Note {
    let Ok(mut value) = note.as_json().parse::<Value>() else { return note.clone() };
    // Mostly there is nothing to do, and then the note keeps its spelling.
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
        // All of them, so no `any`.
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
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let (mut new, mut rest) = (String::new(), text);
    let mut before = None;
    while let Some((left, right)) = rest.split_once(name) {
        let is_word = !left.chars().next_back().or(before).is_some_and(part_of_a_word)
            && !right.chars().next().is_some_and(part_of_a_word);
        new.push_str(left);
        new.push_str(if is_word { action } else { name });
        before = name.chars().next_back();
        rest = right;
    }
    new.push_str(rest);
    (new != text).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_words() {
        fn check(note: Value, after: Value) {
            assert_eq!(renamed(&note.into(), "val", "validate"), after.into());
        }
        check(json!("val: two cases"), json!("validate: two cases"));
        check(json!("(val), val"), json!("(validate), validate"));
        check(json!("valid interval val-2 val_2 éval"), json!("valid interval val-2 val_2 éval"));
        check(json!("valval val"), json!("valval validate"));
        check(json!("val"), json!("validate"));
        check(
            json!({ "by": "val", "val": [7, ["val", null]] }),
            json!({ "by": "validate", "val": [7, ["validate", null]] }),
        );
        check(json!(7), json!(7));
    }

    #[test]
    fn no_name_changes_nothing() {
        let note: Note = serde_json::from_str("1.50").unwrap();
        assert_eq!(renamed(&note, "", "x").to_string(), "1.50");
        assert_eq!(renamed(&"a b".into(), "", "x"), "a b".into());
    }
}
