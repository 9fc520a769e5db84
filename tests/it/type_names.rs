//! A type has a name of its own in the whole workspace, unless it is private to its file.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{root, rust_files};

/// Names that several crates use for their own type, as a reader expects it.
const SHARED: [&str; 6] = ["Error", "Result", "Session", "Turn", "Client", "Agent"];

/// Folders of the versions of ACP that are not stable. Their types have the names of ACP, as those of version 1 have.
const VERSIONS: [&str; 2] = ["crates/schema/src/v2/", "crates/schema/src/unstable/"];

/// Files whose types stand in for those of a feature that is disabled, and have their names.
const STAND_INS: &str = "disabled.rs";

/// Returns the name of the type that a line declares for other files, if it declares one.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub")?;
    let line = match line.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => line,
    };
    let mut words = line.strip_prefix(' ')?.split_whitespace();
    let kind = words.find(|word| *word != "unsafe")?;
    let name = words.next().filter(|_| ["struct", "enum", "trait", "type", "union"].contains(&kind))?;
    // A macro declares `$name`.
    name.split(|char: char| !char.is_alphanumeric() && char != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn declarations_are_found() {
    for (line, name) in [
        ("pub struct One;", Some("One")),
        ("    pub(crate) enum Two<'a> {", Some("Two")),
        ("pub(in crate::a) type Three<T> = T;", Some("Three")),
        ("pub unsafe trait Four: Send {", Some("Four")),
        ("struct Five;", None),
        ("pub fn six() {", None),
        ("pub use seven::Seven;", None),
        ("published struct", None),
        ("pub struct $name(String);", None),
    ] {
        assert_eq!(declared(line), name, "{line}");
    }
}

#[test]
fn type_names_are_unique() {
    let root = root();
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in rust_files(&root.join("crates")) {
        let shown = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        // `interop/rust` is a package elsewhere, and the tests of a crate are programs of their own.
        if shown.split('/').nth(2) != Some("src")
            || path.ends_with(STAND_INS)
            || VERSIONS.iter().any(|folder| shown.starts_with(folder))
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        for name in text.lines().filter_map(declared).filter(|name| !SHARED.contains(name)) {
            // A file may declare one type twice, for two systems.
            files.entry(name.to_owned()).or_default().insert(shown.clone());
        }
    }
    assert!(files.len() > 300, "only {} types were found", files.len());
    let collisions: Vec<String> = files
        .iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|(name, files)| format!("{name} in {}", files.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert!(
        collisions.is_empty(),
        "{} names are declared in several files; rename all but one, or make it private:\n  {}",
        collisions.len(),
        collisions.join("\n  ")
    );
}
