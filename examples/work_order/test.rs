//! The files for agent authors: the order and its output fit the schema and the types, an agent makes the
//! one from the other, and the page misses no field.

#[path = "../workflow/agents.rs"]
#[allow(dead_code, reason = "half of them is enough")]
mod agents;

use duologue_client::exchange::work::{WorkInput, WorkOutput, apply_artifacts};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::steps;

const SKILL: &str = include_str!("SKILL.md");
const INPUT: &str = include_str!("input.json");
const OUTPUT: &str = include_str!("output.json");

fn schema() -> Value {
    serde_json::from_str(include_str!("../../schema/duologue/work.json")).expect("JSON")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Through the type, which has to keep all of it.
fn through<T: Serialize + DeserializeOwned>(value: &Value) -> Option<Value> {
    let read: T = serde_json::from_str(&value.to_string()).ok()?;
    serde_json::to_value(read).ok()
}

#[test]
fn both_fit_the_schema_and_the_types() {
    let schema = schema();
    for (name, file) in [("Input", json(INPUT)), ("Output", json(OUTPUT))] {
        assert_eq!(fits(&schema, &schema["$defs"][name], &file), Ok(()));
    }
    assert_eq!(through::<WorkInput>(&json(INPUT)), Some(json(INPUT)));
    assert_eq!(through::<WorkOutput>(&json(OUTPUT)), Some(json(OUTPUT)));
}

/// The schema and the types require the same members; otherwise the test above shows little.
#[test]
fn the_schema_and_the_types_require_the_same() {
    fn check<T: Serialize + DeserializeOwned>(name: &str, file: &Value, at: &str, required: &[&str]) {
        let schema = schema();
        let keys: Vec<String> =
            file.pointer(at).and_then(Value::as_object).expect(at).keys().cloned().collect();
        for key in keys {
            let mut less = file.clone();
            less.pointer_mut(at).and_then(Value::as_object_mut).expect(at).remove(&key);
            let needed = required.contains(&key.as_str());
            assert_eq!(through::<T>(&less).is_none(), needed, "{at}/{key}");
            assert_eq!(fits(&schema, &schema["$defs"][name], &less).is_err(), needed, "{at}/{key}");
        }
    }
    let (input, output) = (json(INPUT), json(OUTPUT));
    check::<WorkInput>("Input", &input, "", &["context", "paths", "task"]);
    check::<WorkInput>("Input", &input, "/context", &["feature_id", "workflow", "iteration"]);
    check::<WorkInput>("Input", &input, "/paths", &[]);
    check::<WorkInput>("Input", &input, "/task", &["action", "params"]);
    check::<WorkOutput>("Output", &output, "", &["success", "summary", "artifacts", "recommendation"]);
    check::<WorkOutput>("Output", &output, "/artifacts/0", &["path", "operation", "content"]);
}

#[tokio::test]
async fn the_output_is_what_an_agent_makes_of_the_order() {
    let project = tempfile::tempdir().expect("a folder");
    steps::prepare(project.path()).expect("a project");
    std::fs::create_dir_all(project.path().join("features/login")).expect("a folder");
    std::fs::write(project.path().join("features/login/spec.md"), "# login\n").expect("a file");
    // The agent looks where it is started. No other test of this program may.
    std::env::set_current_dir(project.path()).expect("a folder");

    let input: WorkInput = serde_json::from_str(INPUT).expect("an order");
    let output = agents::specify(input.clone().into()).await.expect("an output");
    assert_eq!(serde_json::to_value(&output).expect("JSON"), json(OUTPUT));
    apply_artifacts(project.path(), &input, &output).expect("written");
}

#[test]
fn the_page_misses_no_field() {
    let schema = schema();
    let mut names: Vec<&String> = Vec::new();
    for definition in ["Input", "Context", "Task", "Output", "Artifact"] {
        names.extend(schema["$defs"][definition]["properties"].as_object().expect("properties").keys());
    }
    for name in names {
        let named = [format!("`{name}`"), format!("`{name}."), format!(".{name}`"), format!("`{name}[")];
        assert!(named.iter().any(|form| SKILL.contains(form)), "SKILL.md does not name `{name}`");
    }
    for definition in ["Operation", "Recommendation"] {
        let variants = schema["$defs"][definition]["oneOf"].as_array();
        let variants = variants.or(schema["$defs"][definition]["anyOf"].as_array()).expect("variants");
        for name in variants.iter().filter_map(|variant| variant["const"].as_str()) {
            assert!(SKILL.contains(&format!("`{name}`")), "SKILL.md does not name `{name}`");
        }
    }
}

/// Validates `value` with the part of JSON Schema that our schema uses. Any other keyword is an error.
fn fits(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let fault = |keyword: &str| Err(format!("{value} does not fit {keyword} of {schema}"));
    for (keyword, wanted) in schema.as_object().ok_or("a schema is an object")? {
        let good = match keyword.as_str() {
            "$ref" => {
                let path = wanted.as_str().unwrap_or_default().trim_start_matches('#');
                fits(root, root.pointer(path).ok_or("a reference to nothing")?, value).is_ok()
            }
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "const" => value == wanted,
            "minimum" => value.as_f64() >= wanted.as_f64(),
            "required" => wanted
                .as_array()
                .into_iter()
                .flatten()
                .all(|key| value.get(key.as_str().unwrap_or_default()).is_some()),
            "properties" => wanted
                .as_object()
                .into_iter()
                .flatten()
                .all(|(key, schema)| value.get(key).is_none_or(|value| fits(root, schema, value).is_ok())),
            "additionalProperties" if wanted.is_object() => {
                value.as_object().into_iter().flatten().all(|(_, value)| fits(root, wanted, value).is_ok())
            }
            "items" => value.as_array().into_iter().flatten().all(|item| fits(root, wanted, item).is_ok()),
            "anyOf" | "oneOf" => {
                wanted.as_array().into_iter().flatten().any(|schema| fits(root, schema, value).is_ok())
            }
            "additionalProperties" | "description" | "title" | "format" => true,
            other if other.starts_with("x-") => true,
            other => return Err(format!("the test does not know {other}")),
        };
        if !good {
            return fault(keyword);
        }
    }
    Ok(())
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}
