//! The gate judges a change and not the machine, so its tests read no clock. `clocks.txt` lists the files that still do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::workspace::{root, rust_files};

/// A list of files, each with the number of its clocks and sleeps and the reason for them.
const LIST: &str = "tests/it/clocks.txt";
const CLOCKS: [&str; 3] = ["sleep(", "Instant::now()", ".elapsed()"];
/// The marks of a file whose tests run on a paused clock.
const PAUSED: [&str; 2] = ["start_paused", "time::pause()"];
/// Folders and files whose tests are no part of the gate.
const CAMPAIGNS: [&str; 4] = ["/campaign/", "/check_faults", "tests/reliability/", "tests/bin/"];

/// Returns the part of a file that is a test of the gate.
fn tests_of<'a>(path: &str, text: &'a str) -> &'a str {
    if CAMPAIGNS.iter().any(|campaign| path.contains(campaign)) || path == "tests/it/clocks.rs" {
        return "";
    }
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/simulation/");
    if is_test || path.starts_with("tests/it/") {
        return text;
    }
    text.find("#[cfg(test)]\nmod tests {").map_or("", |start| text.split_at(start).1)
}

/// Returns the number of clocks and sleeps in the tests of each file that has any.
fn found() -> BTreeMap<String, usize> {
    let root = root();
    let files = ["crates", "tests"].iter().flat_map(|folder| rust_files(&root.join(folder)));
    let mut found = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file");
        let path = file.strip_prefix(&root).expect("a file of the workspace").display().to_string();
        let tests = tests_of(&path, &text);
        if !PAUSED.iter().any(|mark| text.contains(mark)) {
            let count: usize = CLOCKS.iter().map(|clock| tests.matches(clock).count()).sum();
            if count > 0 {
                found.insert(path, count);
            }
        }
    }
    found
}

/// The list may only shrink: a file that has less is entered with less.
#[test]
fn tests_read_no_other_clocks() {
    let list = std::fs::read_to_string(root().join(LIST)).expect("the list");
    let mut listed = BTreeMap::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (path, count, reason) = (words.next(), words.next(), words.next());
        let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or_default();
        assert!(count > 0 && reason.is_some_and(|reason| !reason.is_empty()), "{LIST}: {line}");
        listed.insert(path.unwrap_or_default().to_owned(), count);
    }
    let found = found();
    let mut wrong = String::new();
    for path in found.keys().chain(listed.keys()).collect::<std::collections::BTreeSet<_>>() {
        let count = |list: &BTreeMap<String, usize>| list.get(path).copied().unwrap_or_default();
        let (has, may) = (count(&found), count(&listed));
        if has > may {
            _ = writeln!(wrong, "{path} has {has} and may have {may}: wait for a state, or pause the clock");
        } else if has < may {
            _ = writeln!(wrong, "{path} has {has} only: lower its number in {LIST}");
        }
    }
    assert!(wrong.is_empty(), "clocks and sleeps in tests of the gate:\n{wrong}");
}
