//! Finds duplicate members of an object, of which parsers choose different ones.

use std::collections::HashSet;

use duologue_rpc::{JsonScanner, JsonTokenKind};

use super::path::JsonPath;
use super::problems::Problems;

/// An object or array that is not closed yet.
enum OpenContainer {
    /// An object, with its members so far and the current one.
    Object(HashSet<String>, String),
    /// An array, with the index of the current item.
    Array(usize),
}

/// Warns of each duplicate member in a valid JSON text.
pub(super) fn warn(text: &str, problems: &mut Problems) {
    let mut open: Vec<OpenContainer> = Vec::new();
    for token in JsonScanner::new(text.as_bytes()) {
        match token.kind {
            JsonTokenKind::ObjectStart => open.push(OpenContainer::Object(HashSet::new(), String::new())),
            JsonTokenKind::ArrayStart => open.push(OpenContainer::Array(0)),
            JsonTokenKind::ObjectEnd | JsonTokenKind::ArrayEnd => drop(open.pop()),
            JsonTokenKind::Comma => {
                if let Some(OpenContainer::Array(index)) = open.last_mut() {
                    *index += 1;
                }
            }
            JsonTokenKind::Key => {
                let Some(OpenContainer::Object(keys, current)) = open.last_mut() else { continue };
                let key = text.get(token.span).and_then(|key| serde_json::from_str::<String>(key).ok());
                *current = key.unwrap_or_default();
                if !keys.insert(current.clone()) {
                    warn_of(&JsonPath::Base("$"), &open, problems);
                }
            }
            _ => {}
        }
    }
}

/// Warns of the current member of the innermost of these containers, the first of which is at `path`.
fn warn_of(path: &JsonPath<'_>, open: &[OpenContainer], problems: &mut Problems) {
    match open.split_first() {
        None => problems.warning(path, "is a duplicate; parsers differ in the one they use"),
        Some((OpenContainer::Object(_, current), inner)) => {
            warn_of(&JsonPath::Member(path, current), inner, problems);
        }
        Some((OpenContainer::Array(index), inner)) => {
            warn_of(&JsonPath::Item(path, *index), inner, problems);
        }
    }
}
