//! The tables of `tests/FAULTS.md`: each fault and requirement has its row, every test that a row names exists and runs,
//! and a row without a test has a reason.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::workspace::root;

const PAGE: &str = "tests/FAULTS.md";

/// The number of faults in each section. `H4b` is one more.
const COUNTS: [(char, usize); 10] =
    [('A', 13), ('B', 8), ('C', 7), ('D', 5), ('E', 14), ('F', 8), ('G', 10), ('H', 13), ('I', 4), ('J', 10)];
const REQUIREMENT_COUNT: usize = 32;

/// A row of a table. Faults have one more cell, our rule.
struct Row {
    id: String,
    /// Tests by file and function, lines of a table by file and case, fuzz targets, and commands.
    shown_by: Vec<String>,
    has_reason: bool,
}

fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
    page.lines().filter_map(row).collect()
}

/// Reads a row. `None` for other lines.
fn row(line: &str) -> Option<Row> {
    let line = line.strip_prefix("| ")?.strip_suffix('|')?.replace("\\|", "\0");
    let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
    let [id, .., shown, reason] = cells.as_slice() else { return None };
    let is_id = id.starts_with(|first: char| first.is_ascii_uppercase());
    is_id.then(|| Row {
        id: (*id).to_owned(),
        shown_by: shown
            .split("<br>")
            .map(|name| name.trim_matches('`').replace('\0', "|"))
            .filter(|name| name != "—")
            .collect(),
        has_reason: !reason.is_empty(),
    })
}

fn ids() -> Vec<String> {
    let faults =
        COUNTS.iter().flat_map(|(section, count)| (1..=*count).map(move |n| format!("{section}{n}")));
    let requirements = (1..=REQUIREMENT_COUNT).map(|number| format!("R{number}"));
    faults.chain(["H4b".to_owned()]).chain(requirements).collect()
}

/// Returns the fault of a name, if it has one.
pub(crate) fn fault(name: &str, files: &mut HashMap<PathBuf, String>) -> Option<String> {
    let mut read = |path: &str| {
        let path = root().join(path);
        let text =
            files.entry(path).or_insert_with_key(|path| std::fs::read_to_string(path).unwrap_or_default());
        text.clone()
    };
    if let Some(command) = name.strip_prefix("cargo xtask ") {
        let mut words = command.split(' ');
        let subcommand = format!("\"{}\" =>", words.next().unwrap_or_default());
        let requirement = words
            .next()
            .map(|requirement| format!("\"{requirement}\""))
            .filter(|requirement| requirement.starts_with("\"R"));
        let known = read("crates/xtask/src/commands.rs").contains(&subcommand)
            && requirement.is_none_or(|requirement| {
                read("crates/xtask/src/reliability/requirements.rs").contains(&requirement)
            });
        return (!known).then(|| format!("`{name}` is no command"));
    }
    let Some((path, item)) = name.split_once("::") else {
        let missing = !name.starts_with("fuzz/fuzz_targets/") || read(name).is_empty();
        return missing.then(|| format!("`{name}` is no fuzz target"));
    };
    let text = read(path);
    if text.is_empty() {
        return Some(format!("{path} is not there"));
    }
    let found = match path.strip_suffix(".jsonl") {
        Some(_) => text.contains(&format!("\"case\": {}", serde_json::Value::from(item))),
        None => is_test(&text, item),
    };
    (!found).then(|| format!("{path} has no {item} that runs"))
}

/// Returns true if a file has a test of that name: a function with the attribute, or one in the list of a macro
/// that makes tests of functions.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    let Some(at) = lines.iter().position(|line| line.contains(&head)) else { return false };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    let attributes: Vec<&&str> = above.filter(|line| line.starts_with("#[")).collect();
    let marked = attributes.iter().any(|line| line.contains("test]") || line.contains("test("));
    let ignored = attributes.iter().any(|line| line.starts_with("#[ignore"));
    let listed = ["over_every_wire!(", "in_time_tests!(", "on_each_store!(", "on_each_durable_store!("]
        .iter()
        .any(|list| {
            text.split(list)
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
                .any(|names| names.split(',').any(|listed| listed.trim() == name))
        });
    (marked || listed) && !ignored
}

#[test]
#[allow(clippy::print_stdout, reason = "how much is covered is worth knowing")]
fn every_fault_has_its_tests_or_a_reason() {
    let rows = rows();
    let mut wrong = Vec::new();
    let mut times: BTreeMap<&str, usize> = rows.iter().map(|row| (&*row.id, 0)).collect();
    for row in &rows {
        *times.entry(&*row.id).or_default() += 1;
    }
    for id in ids() {
        match times.remove(&*id) {
            Some(1) => {}
            times => wrong.push(format!("{id} is there {} times", times.unwrap_or_default())),
        }
    }
    wrong.extend(times.keys().map(|id| format!("nobody knows {id}")));
    let mut files = HashMap::new();
    for row in &rows {
        let faults = row.shown_by.iter().filter_map(|name| fault(name, &mut files));
        wrong.extend(faults.map(|fault| format!("{}: {fault}", row.id)));
        if row.shown_by.is_empty() && !row.has_reason {
            wrong.push(format!("{} has neither a test nor a reason", row.id));
        }
    }
    let (requirements, faults): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.id.starts_with('R'));
    for (what, rows) in [("faults", faults), ("requirements", requirements)] {
        let shown: Vec<_> = rows.iter().filter(|row| !row.shown_by.is_empty()).collect();
        let tests: usize = shown.iter().map(|row| row.shown_by.len()).sum();
        println!("{what}: {} of {} are shown, by {tests} tests and commands", shown.len(), rows.len());
    }
    assert!(wrong.is_empty(), "{} things are wrong in {PAGE}:\n{}", wrong.len(), wrong.join("\n"));
}
