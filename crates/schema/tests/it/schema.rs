//! The exported schemas: the committed files are up to date, and random values of every definition
//! survive the types.

use std::path::Path;

use duologue_schema::export::random::{RandomValues, same};
use duologue_schema::export::{Definition, Surface, extension_schemas, files};
use serde_json::Value;

/// Returns the number of values that are tried for each definition.
fn values() -> u64 {
    std::env::var("DUOLOGUE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(50)
}

#[test]
fn the_committed_files_are_those_the_types_make() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in files() {
        let committed = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        assert!(committed == text, "{path} is out of date; run `cargo xtask schema` and commit the result");
    }
}

#[test]
fn random_values_of_every_definition_survive_the_types() {
    for surface in Surface::ALL {
        survive(&surface.document(), &surface.definitions());
    }
    for scheme in extension_schemas() {
        survive(&scheme.document(), &scheme.definitions());
    }
}

/// Every definition that a document holds can be tried, and the other way round.
#[test]
fn the_definitions_of_a_scheme_are_those_of_its_document() {
    for scheme in extension_schemas() {
        let document = scheme.document();
        let mut held: Vec<&String> = document["$defs"].as_object().unwrap().keys().collect();
        held.sort();
        let definitions = scheme.definitions();
        let mut listed: Vec<&str> = definitions.iter().map(|definition| &*definition.name).collect();
        listed.sort_unstable();
        assert_eq!(held, listed, "{}", scheme.name);
    }
}

fn survive(document: &Value, definitions: &[Definition]) {
    let mut failures = Vec::new();
    for definition in definitions {
        for seed in 0..values() {
            let value = RandomValues::new(document, seed).definition(&definition.name);
            let failure = match (definition.round_trip)(&value.to_string()) {
                Err(error) => error,
                Ok(text) if !same(&value, &serde_json::from_str(&text).unwrap()) => text,
                Ok(_) => continue,
            };
            failures.push(format!("{} {seed}: {value}\n  -> {failure}", definition.name));
            break;
        }
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), definitions.len(), failures.join("\n"));
}
