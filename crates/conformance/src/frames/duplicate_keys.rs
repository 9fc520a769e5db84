//! Finds duplicate members of an object, of which parsers choose different ones.

use std::collections::HashSet;

use duologue_rpc::{JsonScanner, JsonTokenKind};

use super::Problem;
use super::typed::member;

/// An object or array that is not closed yet.
struct OpenContainer {
    path: String,
    /// The members so far, and the path of the current one; `None` for an array.
    members: Option<(HashSet<String>, String)>,
    /// The index of the current item of an array.
    index: usize,
}

impl OpenContainer {
    /// Returns the path of the current value.
    fn value_path(&self) -> String {
        match &self.members {
            Some((_, path)) => path.clone(),
            None => format!("{}[{}]", self.path, self.index),
        }
    }
}

/// Warns of each duplicate member in a valid JSON text.
pub(super) fn warn(text: &str, problems: &mut Vec<Problem>) {
    let mut open: Vec<OpenContainer> = Vec::new();
    for token in JsonScanner::new(text.as_bytes()) {
        match token.kind {
            JsonTokenKind::ObjectStart | JsonTokenKind::ArrayStart => {
                let path = open.last().map_or_else(|| "$".to_owned(), OpenContainer::value_path);
                let is_object = token.kind == JsonTokenKind::ObjectStart;
                let members = is_object.then(|| (HashSet::new(), String::new()));
                open.push(OpenContainer { path, members, index: 0 });
            }
            JsonTokenKind::ObjectEnd | JsonTokenKind::ArrayEnd => drop(open.pop()),
            JsonTokenKind::Comma => {
                if let Some(container) = open.last_mut() {
                    container.index += 1;
                }
            }
            JsonTokenKind::Key => {
                let Some(OpenContainer { path, members: Some((keys, current)), .. }) = open.last_mut() else {
                    continue;
                };
                let key = text.get(token.span).and_then(|key| serde_json::from_str::<String>(key).ok());
                let key = key.unwrap_or_default();
                *current = member(path, &key);
                if !keys.insert(key) {
                    let problem = "is a duplicate; parsers differ in the one they use";
                    problems.push(Problem::warning(current.clone(), problem));
                }
            }
            _ => {}
        }
    }
}
