//! The schemas of the messages between agents, which are not part of ACP.

use serde_json::{Map, Value, json};

use super::registry::Definition;
use super::{dialogue, envelope, generated, references, work};
use crate::MethodRow;

/// The schema of one family of messages between agents.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ExtensionSchema {
    /// The name, which is that of the module with the types.
    pub name: &'static str,
    /// The methods.
    pub methods: &'static [MethodRow],
    pub(super) title: &'static str,
    pub(super) definitions: fn() -> Vec<Definition>,
    /// Adds constraints that the Rust types do not express.
    pub(super) refine: fn(&mut Map<String, Value>),
}

/// Returns the schemas of all families.
#[must_use]
pub fn extension_schemas() -> [ExtensionSchema; 3] {
    [envelope::SCHEME, dialogue::SCHEME, work::SCHEME]
}

impl ExtensionSchema {
    /// Returns every definition of the schema.
    #[must_use]
    pub fn definitions(&self) -> Vec<Definition> {
        (self.definitions)()
    }

    /// Returns the whole schema. Its root accepts the params and results of the methods.
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

    /// Returns the requests and notifications by name. Both sides may send them.
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

/// Converts doc comments into descriptions: drops examples and turns links to Rust items into names.
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
