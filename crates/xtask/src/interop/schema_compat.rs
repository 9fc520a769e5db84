//! Across the fence: the schemas of the newest published crate against our types. What fits theirs must pass through ours, what
//! is malformed in theirs must not, and what ours write must fit theirs. Each difference has a name.

use super::{InteropPaths, Result, finish, install};
use duologue_schema::export::random::{RandomValues, same};
use duologue_schema::export::{Definition, Surface, differences};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const INSTANCES: u64 = 200;

/// Checks each published schema: both versions, with and without their unstable part.
pub(super) fn check(paths: &InteropPaths) -> Vec<Result<String>> {
    match install::published_schemas(paths) {
        Ok((folder, version)) => {
            Surface::ALL.iter().map(|surface| check_surface(paths, &folder, &version, *surface)).collect()
        }
        Err(error) => vec![Err(error)],
    }
}

/// Returns the file of the published crate for one of our schemas.
fn their_file(folder: &Path, surface: Surface) -> PathBuf {
    let part = if surface.path().ends_with(".unstable") { "unstable" } else { "stable" };
    folder.join(part).join(format!("v{}.json", surface.version()))
}

/// Prints each difference between the newest published schemas and ours. With `--write` the copies that the tests of
/// `duologue-schema` read become those schemas.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(super) fn show_differences(paths: &InteropPaths, write: bool) -> Result<()> {
    let (folder, version) = install::published_schemas(paths)?;
    for surface in Surface::ALL {
        let theirs: Value = serde_json::from_str(&fs::read_to_string(their_file(&folder, *surface))?)?;
        let found = differences(&theirs, &surface.document());
        println!("{} and version {version} of the crate: {} differences", surface.path(), found.len());
        found.iter().for_each(|difference| println!("  {difference}"));
        if write && *surface == Surface::V1 {
            let name = surface.path().replace("/schema", "");
            let file = format!("../../schema/tests/fixtures/published/{name}.json");
            fs::write(paths.sources.join(file), reduced(&theirs, &version)?)?;
        }
    }
    Ok(())
}

/// Writes a schema without descriptions, one definition a line.
fn reduced(schema: &Value, version: &str) -> Result<String> {
    let comment = format!("From agent-client-protocol-schema {version} (Apache-2.0), without descriptions.");
    let mut text = format!("{{\n\"$comment\": {},\n\"$defs\": {{\n", Value::from(comment));
    let all = schema["$defs"].as_object().ok_or("the schema has no definitions")?;
    let lines: Vec<_> = all
        .iter()
        .map(|(name, definition)| {
            let mut definition = definition.clone();
            strip(&mut definition);
            format!("{}: {definition}", Value::from(name.as_str()))
        })
        .collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n}\n}\n");
    Ok(text)
}

/// Removes the descriptions of a schema and of its parts.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| !(key == "description" && value.is_string()));
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Runs the checks of one schema and returns their result. An error lists the first differences.
fn check_surface(paths: &InteropPaths, folder: &Path, version: &str, surface: Surface) -> Result<String> {
    let ts = std::path::absolute(paths.target.join("ts"))?;
    let path = format!("{}.json", surface.path());
    let their_file = their_file(folder, surface);
    let theirs: Value = serde_json::from_str(&fs::read_to_string(&their_file)?)?;
    let ours: BTreeMap<_, _> =
        surface.definitions().into_iter().map(|ours| (ours.name.to_string(), ours)).collect();
    let mut wrong = Vec::new();
    let methods = methods(&theirs, surface, &mut wrong);
    let updates = updates(&theirs, &mut wrong, &ours);

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

    let document = surface.document();
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
            "{path} of version {version} of the crate, {} definitions, {methods} methods, {updates} updates: {instances} random \
             instances pass through ours, {broken} malformed ones do not, {written} of ours fit theirs",
            names.len()
        ));
    }
    let some: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
    Err(format!("{path}: {} things are wrong across the fence, such as\n{}", wrong.len(), some.join("\n"))
        .into())
}

/// Compares the methods with their params and results. Returns the number of methods.
fn methods(theirs: &Value, surface: Surface, wrong: &mut Vec<String>) -> usize {
    let ours: BTreeSet<(&str, &str)> = surface
        .methods()
        .iter()
        .flat_map(|row| [Some(row.params), row.result].into_iter().flatten().map(|name| (row.method, name)))
        .collect();
    let theirs: BTreeSet<(&str, &str)> = theirs["$defs"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, definition)| Some((definition["x-method"].as_str()?, name.as_str())))
        .collect();
    wrong.extend(
        theirs
            .symmetric_difference(&ours)
            .map(|(method, name)| format!("{method}: only one of both tables has {name}")),
    );
    theirs.iter().map(|(method, _)| method).collect::<BTreeSet<_>>().len()
}

/// Reads one instance of each kind of update. Returns their number.
fn updates(theirs: &Value, wrong: &mut Vec<String>, ours: &BTreeMap<String, Definition>) -> usize {
    let update = &theirs["$defs"]["SessionUpdate"];
    let kinds = ["oneOf", "anyOf"].iter().filter_map(|key| update[*key].as_array()).flatten();
    let tags: Vec<&Value> = kinds
        .map(|kind| &kind["properties"]["sessionUpdate"]["const"])
        .filter(|tag| tag.is_string())
        .collect();
    for tag in &tags {
        let made = instance(theirs, "SessionUpdate", "sessionUpdate", tag);
        match ours.get("SessionUpdate") {
            Some(ours) => wrong.extend(through(ours, &made).err()),
            None => wrong.push("SessionUpdate: we have no such definition".to_owned()),
        }
    }
    tags.len()
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
            let payload = variant["$ref"].as_str().or_else(|| variant["allOf"][0]["$ref"].as_str());
            let payload = payload.and_then(|path| path.strip_prefix("#/$defs/"));
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
