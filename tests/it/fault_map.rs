//! The rows of `FAULTS.md`: the page is generated from them, every test they name exists and runs, and what has no test
//! has a reason. `RELIABILITY.md` has a number for every requirement with a test.

mod files;
mod flow;
mod lines;
mod processes;
mod recordings;
mod requirements;
mod sessions;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::workspace::{compare_tables, root};
use files::H;
use flow::{F, G};
use lines::{A, B, C};
use processes::E;
use recordings::{I, J};
use requirements::REQUIREMENTS;
use sessions::D;

/// The sections of the page, in their order.
const SECTIONS: [&[Row]; 10] = [A, B, C, D, E, F, G, H, I, J];
/// The number of faults in each section. `H4b` is one more.
const COUNTS: [(char, usize); 10] =
    [('A', 13), ('B', 8), ('C', 7), ('D', 5), ('E', 14), ('F', 8), ('G', 10), ('H', 13), ('I', 4), ('J', 10)];
const REQUIREMENT_COUNT: usize = 32;

/// A row of either table.
struct Row {
    id: &'static str,
    fault: &'static str,
    /// Our rule; requirements have none.
    rule: &'static str,
    /// Tests by file and function, lines of a table by file and case, fuzz targets, and commands.
    shown_by: &'static [&'static str],
    reason: &'static str,
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let tests: Vec<String> = self.shown_by.iter().map(|name| format!("`{name}`")).collect();
        let tests = if tests.is_empty() { "—".to_owned() } else { tests.join("<br>") };
        let rule = (!self.rule.is_empty()).then(|| self.rule.to_owned());
        let first = [self.id.to_owned(), self.fault.to_owned()].into_iter();
        first.chain(rule).chain([tests, self.reason.to_owned()]).collect()
    }
}

/// Returns all rows, those of the requirements last.
fn rows() -> Vec<&'static Row> {
    SECTIONS.into_iter().flatten().chain(REQUIREMENTS).collect()
}

/// Returns the lines of a table.
fn table(titles: &str, rows: &[Row]) -> Vec<String> {
    let rule = "| --- ".repeat(titles.matches('|').count() - 1) + "|";
    let rows = rows.iter().map(|row| format!("| {} |", row.cells().join(" | ")));
    [titles.to_owned(), rule].into_iter().chain(rows).collect()
}

#[test]
fn the_page_has_the_rows() {
    let mut tables: Vec<Vec<String>> = SECTIONS
        .into_iter()
        .map(|rows| table("| | fault | our rule | shown by | not shown, and why |", rows))
        .collect();
    tables.push(table("| | requirement | shown by | not shown, and why |", REQUIREMENTS));
    compare_tables("tests/FAULTS.md", &tables);
}

fn ids() -> Vec<String> {
    let faults =
        COUNTS.iter().flat_map(|(section, count)| (1..=*count).map(move |n| format!("{section}{n}")));
    let requirements = (1..=REQUIREMENT_COUNT).map(|number| format!("R{number}"));
    faults.chain(["H4b".to_owned()]).chain(requirements).collect()
}

/// Says what is wrong with a name, if something is.
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

/// Returns true if a row or a headline of a page names a requirement.
fn names(page: &str, requirement: &str) -> bool {
    let is_requirement = |word: &str| word == requirement;
    let mut lines = page.lines().filter(|line| line.starts_with('|') || line.starts_with('#'));
    lines.any(|line| line.split(|char: char| !char.is_ascii_alphanumeric()).any(is_requirement))
}

/// A requirement with a test has a number too, except the one about this page (R32).
#[test]
fn every_requirement_that_is_shown_has_a_number() {
    let read = |page: &str| std::fs::read_to_string(root().join(page)).expect("a page");
    let numbers = read("tests/RELIABILITY.md");
    let requirements = REQUIREMENTS.iter().filter(|row| row.id != "R32" && !row.shown_by.is_empty());
    let missing: Vec<&str> =
        requirements.map(|row| row.id).filter(|requirement| !names(&numbers, requirement)).collect();
    assert!(missing.is_empty(), "tests/RELIABILITY.md has no row or section for {missing:?}");
}

#[test]
#[allow(clippy::print_stdout, reason = "how much is covered is worth knowing")]
fn every_fault_has_its_tests_or_a_reason() {
    let rows = rows();
    let mut wrong = Vec::new();
    let mut times: BTreeMap<&str, usize> = rows.iter().map(|row| (row.id, 0)).collect();
    for row in &rows {
        *times.entry(row.id).or_default() += 1;
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
        if row.shown_by.is_empty() && row.reason.is_empty() {
            wrong.push(format!("{} has neither a test nor a reason", row.id));
        }
    }
    let (requirements, faults): (Vec<&Row>, Vec<&Row>) =
        rows.into_iter().partition(|row| row.id.starts_with('R'));
    for (what, rows) in [("faults", faults), ("requirements", requirements)] {
        let shown: Vec<_> = rows.iter().filter(|row| !row.shown_by.is_empty()).collect();
        let tests: usize = shown.iter().map(|row| row.shown_by.len()).sum();
        println!("{what}: {} of {} are shown, by {tests} tests and commands", shown.len(), rows.len());
    }
    assert!(wrong.is_empty(), "{} things are wrong in tests/FAULTS.md:\n{}", wrong.len(), wrong.join("\n"));
}
