//! Across the fence: the schema files inside the npm package of the TypeScript SDK against our types. What fits
//! theirs must pass through ours, what is malformed in theirs must not, and what ours write must fit theirs.

use super::{InteropPaths, Result, finish};
use duologue_schema::export::random::{RandomValues, same};
use duologue_schema::export::{Definition, definitions, document};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

const INSTANCES: u64 = 200;

/// Runs the three checks and prints their results. An error lists the first differences.
pub(super) fn check(paths: &InteropPaths) -> Result<String> {
    let ts = std::path::absolute(paths.target.join("ts"))?;
    let their_file = ts.join("node_modules/@agentclientprotocol/sdk/schema/v1/schema.json");
    let theirs: Value = serde_json::from_str(&fs::read_to_string(&their_file)?)?;
    let ours: BTreeMap<_, _> = definitions().into_iter().map(|ours| (ours.name.to_string(), ours)).collect();
    let mut wrong = Vec::new();

    let names: Vec<_> =
        theirs["$defs"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut instances = 0;
    for name in &names {
        let Some(ours) = ours.get(*name) else {
            wrong.push(format!("{name}: we have no such definition"));
            continue;
        };
        for seed in 0..INSTANCES {
            instances += 1;
            wrong.extend(through(ours, &RandomValues::new(&theirs, seed).definition(name)).err());
        }
    }
    let broken = break_variants(&theirs, &ours, &mut wrong);

    let document = document();
    let mut lines = String::new();
    let mut written = 0;
    for (name, ours) in ours.iter().filter(|(name, _)| names.contains(&name.as_str())) {
        for seed in 0..INSTANCES {
            let Ok(text) =
                (ours.round_trip)(&RandomValues::new(&document, seed).definition(name).to_string())
            else {
                wrong.push(format!("{name}: we do not read what fits our own schema, seed {seed}"));
                continue;
            };
            // Clears are an extension of ours, sent only to peers that advertise it.
            if !text.contains("_clear\"") {
                written += 1;
                writeln!(lines, r#"{{"name":"{name}","seed":{seed},"value":{text}}}"#)?;
            }
        }
    }
    let file = ts.join("written.jsonl");
    fs::write(&file, lines)?;
    let problems = ts.join("problems.txt");
    let mut validate = Command::new("node");
    validate.arg(ts.join("validate.mjs")).arg(their_file).arg(file).arg(&problems);
    finish(&mut validate, Duration::from_secs(120))?;
    wrong.extend(fs::read_to_string(problems)?.lines().map(str::to_owned));

    if wrong.is_empty() {
        return Ok(format!(
            "the schema of the npm package, {} definitions: {instances} random instances pass through ours, \
             {broken} malformed ones do not, {written} of ours fit theirs",
            names.len()
        ));
    }
    let some: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
    Err(format!("{} things are wrong across the fence, such as\n{}", wrong.len(), some.join("\n")).into())
}

/// Decodes and encodes one instance; nothing may be lost.
fn through(ours: &Definition, instance: &Value) -> Result<(), String> {
    let text = instance.to_string();
    let written = (ours.round_trip)(&text).map_err(|error| format!("{}: {error}: {text}", ours.name))?;
    let written: Value = serde_json::from_str(&written).map_err(|error| error.to_string())?;
    if same(instance, &written) { Ok(()) } else { Err(format!("{}: {text} became {written}", ours.name)) }
}

/// Breaks every variant of every tagged union at every required field, and expects ours to refuse it: a tag we
/// know with a payload we cannot read is an error, never an unknown variant.
fn break_variants(theirs: &Value, ours: &BTreeMap<String, Definition>, wrong: &mut Vec<String>) -> usize {
    let mut broken = 0;
    for (name, definition) in theirs["$defs"].as_object().into_iter().flatten() {
        let variants = ["oneOf", "anyOf"].iter().filter_map(|key| definition[*key].as_array()).flatten();
        for variant in variants {
            let tag = variant["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .find(|(_, is)| is["const"].is_string());
            let (Some((tag, is)), Some(ours)) = (tag, ours.get(name.as_str())) else { continue };
            let payload = variant["allOf"][0]["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
            let Some(payload) = payload.map(|name| &theirs["$defs"][name]) else { continue };
            for field in payload["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let schema = &payload["properties"][field];
                let mut whole = instance(theirs, name, tag, &is["const"]);
                let mut without = whole.clone();
                without.as_object_mut().map(|object| object.remove(field));
                let mut attempts = vec![without];
                if schema["x-deserialize-default-on-error"] != true {
                    whole[field] = if is_object(theirs, schema) { json!([7]) } else { json!({"bad": 7}) };
                    attempts.push(whole);
                }
                for attempt in attempts {
                    broken += 1;
                    if (ours.round_trip)(&attempt.to_string()).is_ok() {
                        wrong.push(format!("{name}: the bad payload {attempt} was taken"));
                    }
                }
            }
        }
    }
    broken
}

fn is_object(theirs: &Value, schema: &Value) -> bool {
    match schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        Some(name) => is_object(theirs, &theirs["$defs"][name]),
        None => {
            schema["type"] == "object"
                || schema["allOf"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|part| is_object(theirs, part)))
        }
    }
}

/// Returns a random instance of a union with the wanted tag.
fn instance(theirs: &Value, name: &str, tag: &str, value: &Value) -> Value {
    let mut all = (0..).map(|seed| RandomValues::new(theirs, seed).definition(name));
    all.find(|made| made[tag] == *value).unwrap_or_default()
}
