//! `cargo xtask prose [--counts] [PATH..]`: the rules for the English of comments and of Markdown.
//!
//! It reads the comments of all Rust files, the `#` comments of `.ci`, TOML and YAML files, and all Markdown pages.
//! Code spans, code blocks, link targets and quotations are exempt. There is no list of exceptions.

mod comments;
mod files;
mod markdown;
mod rules;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use rules::{Rule, Violation};

const USAGE: &str = "cargo xtask prose [--counts] [PATH..]";

/// Prints all findings below the given paths, and fails if there are any.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let (flags, prefixes): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let counts = match flags.as_slice() {
        [] => false,
        [flag] if *flag == "--counts" => true,
        _ => return Err(USAGE.into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let findings = check(&root, &prefixes)?;
    if counts {
        print!("{}", table(&findings));
        return Ok(());
    }
    for (path, finding) in &findings {
        println!("{}:{}: {}: {}", path.display(), finding.line, finding.rule.name(), finding.text);
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} lines break the rules of CONTRIBUTING.md for prose").into()),
    }
}

/// Returns all findings in the files below one of the prefixes, or in all files without a prefix.
fn check(root: &Path, prefixes: &[&String]) -> Result<Vec<(PathBuf, Violation)>, Box<dyn Error>> {
    let mut all = Vec::new();
    for path in files::below(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).to_owned();
        if !prefixes.is_empty() && !prefixes.iter().any(|prefix| shown.starts_with(prefix)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", shown.display()))?;
        all.extend(findings(&shown, &text).into_iter().map(|finding| (shown.clone(), finding)));
    }
    Ok(all)
}

/// Returns the findings of one file, in the order of its lines.
fn findings(path: &Path, text: &str) -> Vec<Violation> {
    let mut findings = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => rules::page(text, path.starts_with("rfds")),
        Some("rs") => comments::rust(text).iter().flat_map(rules::comment).collect(),
        _ => comments::hash(text).iter().flat_map(rules::comment).collect(),
    };
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// Returns the number of findings of each rule, with a row for each folder.
fn table(findings: &[(PathBuf, Violation)]) -> String {
    let mut rows: BTreeMap<String, [usize; Rule::ALL.len()]> = BTreeMap::new();
    for (path, finding) in findings {
        let column = Rule::ALL.iter().position(|rule| *rule == finding.rule).unwrap_or_default();
        for row in [folder(path), "total".to_owned()] {
            rows.entry(row).or_default()[column] += 1;
        }
    }
    let line = |name: &str, cells: [String; Rule::ALL.len()]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
        format!("{name:<24}{cells}\n")
    };
    let total = rows.remove("total").unwrap_or_default();
    let rows = rows.iter().map(|(name, counts)| line(name, counts.map(|count| count.to_string())));
    let head = line("", Rule::ALL.map(|rule| rule.name().to_owned()));
    head + &rows.collect::<String>() + &line("total", total.map(|count| count.to_string()))
}

/// Returns the folder that a file is counted in: the crate, or the first part of the path.
fn folder(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    match parts.as_slice() {
        [crates, name, ..] if crates == "crates" => format!("{crates}/{name}"),
        [_] => ".".to_owned(),
        [first, ..] => first.to_string(),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_keep_the_rules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder");
        let findings = check(&root, &[]).expect("readable files");
        let lines: Vec<String> = findings
            .iter()
            .map(|(path, finding)| {
                format!("{}:{}: {}: {}", path.display(), finding.line, finding.rule.name(), finding.text)
            })
            .collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}
