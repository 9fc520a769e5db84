//! The description of the interface: it is up to date, it is served, and its links fit.

use std::path::Path;

use duologue_hub::gateway::openapi_json;
use serde_json::Value;

use crate::rest::world::{ADMIN, RestWorld};

const COMMITTED: &str = "schema/hub.openapi.json";

#[test]
fn the_committed_description_is_that_of_the_routes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(COMMITTED);
    let text = openapi_json();
    if std::env::var_os("DUOLOGUE_WRITE_TABLES").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == text,
        "{COMMITTED} is out of date; run `DUOLOGUE_WRITE_TABLES=1 cargo test -p duologue-hub --all-features --test it description` and commit the result"
    );
}

/// Returns the method, the path and the description of each operation.
pub(crate) fn described() -> Vec<(String, String, Value)> {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    assert!(operations.len() >= 31, "{} operations", operations.len());
    operations
}

/// Returns the names of the parameters of an operation that are in a place, such as `path`.
fn parameters_in<'a>(operation: &'a Value, place: &str) -> Vec<&'a str> {
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = parameters.iter().filter(|parameter| parameter["in"] == place);
    found.map(|parameter| parameter["name"].as_str().unwrap()).collect()
}

/// Checks that the texts of a value are expressions with something of the source, or parts of one.
fn check_expressions(place: &str, value: &Value, source: &Value) {
    match value {
        Value::String(text) => {
            let is_in_path = text
                .strip_prefix("$request.path.")
                .is_some_and(|name| parameters_in(source, "path").contains(&name));
            assert!(is_in_path || text.starts_with("$response.body#/"), "{place}: {text}");
        }
        Value::Object(members) => members.values().for_each(|value| check_expressions(place, value, source)),
        other => panic!("{place}: {other}"),
    }
}

#[test]
fn links_lead_to_operations_with_their_parameters() {
    let operations = described();
    let mut count = 0;
    for (_, _, source) in &operations {
        for (status, response) in source["responses"].as_object().unwrap() {
            for (name, link) in response["links"].as_object().into_iter().flatten() {
                let place = format!("{} {status} {name}", source["operationId"]);
                let target =
                    operations.iter().find(|(_, _, target)| target["operationId"] == link["operationId"]);
                let (_, _, target) = target.unwrap_or_else(|| panic!("{place}: no such operation"));
                let given = link["parameters"].as_object().unwrap();
                let (path, query) = (parameters_in(target, "path"), parameters_in(target, "query"));
                assert!(path.iter().all(|name| given.contains_key(*name)), "{place}");
                for (name, expression) in given {
                    assert!(path.contains(&&**name) || query.contains(&&**name), "{place}: {name}");
                    check_expressions(&place, expression, source);
                }
                if let Some(body) = link.get("requestBody") {
                    assert!(target["requestBody"].is_object(), "{place}");
                    check_expressions(&place, body, source);
                }
                count += 1;
            }
        }
    }
    assert!(count >= 50, "{count} links");
}

#[tokio::test]
async fn the_description_is_served() {
    let world = RestWorld::start("").await;
    let served = world.get(ADMIN, "/openapi.json").await;
    assert_eq!(served.text, openapi_json());
    assert_eq!(world.get("", "/ready").await.text, "ready");
    world.stop().await;
}
