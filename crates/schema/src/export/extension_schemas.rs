//! What agents say to each other, which is not ACP's: a document for each scheme.

use serde_json::{Map, Value, json};

use super::registry::Definition;
use super::{dialogue, envelope, generated, references, work};
use crate::MethodRow;

/// A scheme of messages between agents.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ExtensionSchema {
    /// Its name, that of the module with its types.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [MethodRow],
    pub(super) title: &'static str,
    pub(super) definitions: fn() -> Vec<Definition>,
    /// Adds what the Rust types do not say.
    pub(super) refine: fn(&mut Map<String, Value>),
}

/// The schemes.
#[must_use]
pub fn extension_schemas() -> [ExtensionSchema; 3] {
    [envelope::SCHEME, dialogue::SCHEME, work::SCHEME]
}

impl ExtensionSchema {
    /// Every definition of the scheme.
    #[must_use]
    pub fn definitions(&self) -> Vec<Definition> {
        (self.definitions)()
    }

    /// The whole schema: at its root what its methods take and answer.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut all = generated(&self.definitions(), self.methods.iter());
        (self.refine)(&mut all);
        all.values_mut().for_each(plain);
        let mut names: Vec<&str> = Vec::new();
        for name in self.methods.iter().flat_map(|row| std::iter::once(row.params).chain(row.result)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.title,
            "anyOf": references(names.into_iter()),
            "$defs": all,
        })
    }

    /// The methods by their names, requests and notifications. Either side may send each.
    #[must_use]
    pub fn meta(&self) -> Value {
        let (requests, notifications): (Vec<_>, Vec<_>) =
            self.methods.iter().partition(|row| row.result.is_some());
        let by_name = |rows: Vec<&MethodRow>| -> Map<String, Value> {
            rows.into_iter()
                .map(|row| (row.method.trim_start_matches("_session/").to_owned(), row.method.into()))
                .collect()
        };
        json!({ "requests": by_name(requests), "notifications": by_name(notifications) })
    }
}

/// Makes descriptions of documentation: without its examples, and its links to Rust names as names.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = described(text);
            }
            members.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn described(doc: &str) -> String {
    let mut rest = doc.split("\n\n```").next().unwrap_or_default();
    let mut text = String::new();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        text.push_str(&format!("{before}`{name}`"));
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    text + rest
}
