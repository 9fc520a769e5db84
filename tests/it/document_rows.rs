//! The chapter `docs/src/documents.md`: the tests that its rows name exist and run, its routes are those of the
//! description, and a row without a test has a reason.

use std::collections::HashMap;

use crate::fault_map::fault;
use crate::workspace::root;

const PAGE: &str = "docs/src/documents.md";

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the code spans of a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the cells of all rows of the page that have three.
fn rows(page: &str) -> Vec<[String; 3]> {
    let lines = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let cells = lines.map(|line| line.trim_matches('|').replace("\\|", "\0"));
    let rows = cells.filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
        <[String; 3]>::try_from(cells).ok()
    });
    rows.filter(|[_, _, shown]| shown != "shown by").collect()
}

/// Returns the folder that a name in the page is relative to.
fn test_name(name: &str) -> String {
    match name.split_once('/') {
        Some(("hub", rest)) => format!("crates/hub/tests/it/{rest}"),
        Some(("store", rest)) => format!("crates/store/tests/it/{rest}"),
        Some(("http", rest)) => format!("crates/http/tests/it/{rest}"),
        Some(("cli", rest)) => format!("crates/cli/tests/it/{rest}"),
        Some(("exchange", rest)) => format!("crates/exchange/tests/it/{rest}"),
        _ => name.to_owned(),
    }
}

#[test]
fn each_row_has_its_tests_or_a_reason() {
    let page = read(PAGE);
    let rows = rows(&page);
    assert!(rows.len() > 80, "{} rows", rows.len());
    let (mut wrong, mut files) = (Vec::new(), HashMap::new());
    for [asked, _, shown] in &rows {
        if let Some(refused) = shown.strip_prefix("refused, RFD ") {
            let number = refused.split(':').next().unwrap_or_default();
            let rfd = std::fs::read_dir(root().join("rfds")).expect("the RFDs").any(|file| {
                file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with(&format!("{number}-")))
            });
            if !rfd || !refused.contains(": ") {
                wrong.push(format!("{asked}: a refusal names an RFD and a reason"));
            }
        } else if !shown.starts_with("not built") {
            let names: Vec<_> = spans(shown).filter(|name| name.contains("::")).collect();
            if names.is_empty() {
                wrong.push(format!("{asked}: neither a test, `refused` nor `not built`"));
            }
            wrong.extend(names.iter().filter_map(|name| {
                fault(&test_name(name), &mut files).map(|fault| format!("{asked}: {fault}"))
            }));
        }
    }
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

#[test]
fn its_routes_are_described() {
    let description: serde_json::Value =
        serde_json::from_str(&read("schema/hub.openapi.json")).expect("the description");
    let page = read(PAGE);
    let mut unknown = Vec::new();
    for span in spans(&page) {
        let Some((method, path)) = span.split_once(" /") else { continue };
        let is_method = ["GET", "PUT", "POST", "DELETE"].contains(&method);
        let path = format!("/{}", path.split('?').next().unwrap_or_default());
        if is_method && description["paths"][&path][method.to_lowercase()].is_null() {
            unknown.push(span);
        }
    }
    assert!(unknown.is_empty(), "{PAGE} has routes that the description lacks: {unknown:?}");
}
