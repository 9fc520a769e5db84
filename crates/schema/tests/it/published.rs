//! The published schema of the stable version 1 against ours. `fixtures/published` has it without descriptions.

use std::collections::BTreeMap;

use duologue_schema::export::random::{RandomValues, same};
use duologue_schema::export::{Definition, Surface, differences};
use serde_json::Value;

/// The number of values that are tried for each definition.
const VALUES: u64 = 200;

const STABLE: &str = include_str!("../fixtures/published/v1.json");

/// The differences of the stable schemas, each with its reason. A new difference is built, or gets a reason here.
const DIFFERENCES: &[(&str, &str)] = &[
    ("only ours: MessageClear", CLEARS),
    ("only ours: SessionUpdate is MessageClear|sessionUpdate=\"agent_message_clear\"", CLEARS),
    ("only ours: SessionUpdate is MessageClear|sessionUpdate=\"agent_thought_clear\"", CLEARS),
    ("only theirs: CompactionCapabilities is ", KEPT_META),
    ("only theirs: NoticeCapabilities is ", KEPT_META),
    ("only ours: CompactionCapabilities has _meta with x-deserialize-default-on-error true", KEPT_META),
    ("only ours: CompactionCapabilities has _meta: null|object", KEPT_META),
    ("only ours: NoticeCapabilities has _meta with x-deserialize-default-on-error true", KEPT_META),
    ("only ours: NoticeCapabilities has _meta: null|object", KEPT_META),
    ("only theirs: IdleStateUpdate has stopReason with x-deserialize-default-on-error true", TAG),
    ("only theirs: IdleStateUpdate has stopReason: null|string", TAG),
    ("only theirs: PlanItems has entries with x-deserialize-default-on-error true", STRICT),
];

const CLEARS: &str = "the additions of RFD 0001, sent to clients that advertise them";
const KEPT_META: &str = "extension data is kept in every object";
const TAG: &str = "the same rule: our variants have the tag, and one without it";
const STRICT: &str = "a list that is malformed as a whole is an error, as in version 2, and no empty plan";

fn published(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn by_name(surface: Surface) -> BTreeMap<String, Definition> {
    surface.definitions().into_iter().map(|ours| (ours.name.to_string(), ours)).collect()
}

#[test]
fn the_stable_schema_differs_from_the_published_one_as_listed() {
    let found = differences(&published(STABLE), &Surface::V1.document());
    let listed: Vec<&str> = DIFFERENCES.iter().map(|(difference, _)| *difference).collect();
    let news: Vec<_> = found.iter().filter(|found| !listed.contains(&found.as_str())).collect();
    assert!(news.is_empty(), "{} new differences: {news:#?}", news.len());
    let gone: Vec<_> = listed.iter().filter(|listed| !found.iter().any(|found| found == *listed)).collect();
    assert!(gone.is_empty(), "these are differences no longer: {gone:#?}");
}

#[test]
fn random_values_of_every_published_definition_survive_the_types() {
    every_definition_survives("v1.json", &published(STABLE), &by_name(Surface::V1));
}

/// Decodes and encodes values of each definition that we have, and prints their number.
#[expect(clippy::print_stdout, reason = "the number is the result")]
fn every_definition_survives(file: &str, theirs: &Value, ours: &BTreeMap<String, Definition>) {
    let names: Vec<&String> = theirs["$defs"].as_object().unwrap().keys().collect();
    let mut failures = Vec::new();
    let mut values = 0;
    for ours in names.iter().filter_map(|name| ours.get(*name)) {
        for seed in 0..VALUES {
            let value = RandomValues::new(theirs, seed).definition(&ours.name);
            values += 1;
            let failure = match (ours.round_trip)(&value.to_string()) {
                Err(error) => error,
                Ok(text) if !same(&value, &serde_json::from_str(&text).unwrap()) => text,
                Ok(_) => continue,
            };
            failures.push(format!("{} {seed}: {value}\n  -> {failure}", ours.name));
            break;
        }
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), names.len(), failures.join("\n"));
    let known = names.iter().filter(|name| ours.contains_key(**name)).count();
    println!("{file}: {values} values of {known} definitions of {}", names.len());
}
