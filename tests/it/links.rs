//! The names in Markdown pages: links to files, the files of ARCHITECTURE.md, and items such as `Session::prompt`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::workspace::{root, rust_files};

/// Returns all Markdown pages below a folder, without generated and hidden folders.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules", "book"].contains(&&*name) {
            pages.extend(self::pages(&path));
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
    pages
}

/// Returns the targets of all links outside of code blocks.
fn links(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose
        .flat_map(|prose| prose.split("](").skip(1))
        .filter_map(|rest| Some(rest.split_once(')')?.0))
        .collect()
}

#[test]
fn links_to_files_are_not_dead() {
    let mut dead = Vec::new();
    let pages = pages(&root());
    assert!(pages.len() > 20, "too few pages: {pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().expect("a path");
            if !page.parent().expect("a folder").join(file).exists() {
                dead.push(format!("{} links to {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Published pages are shown outside of the repository, where relative links are dead.
#[test]
fn pages_of_published_crates_have_no_relative_links() {
    for folder in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let page = folder.expect("a folder").path().join("README.md");
        let Ok(text) = std::fs::read_to_string(&page) else { continue };
        let relative: Vec<&str> = links(&text).into_iter().filter(|link| !link.contains("://")).collect();
        assert!(relative.is_empty(), "{}: {relative:?}", page.display());
    }
}

/// Expands the first pair of braces: `src/{a,b}.rs` becomes `src/a.rs` and `src/b.rs`.
fn expanded(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    let Some((start, (names, end))) = braces else { return vec![path.to_owned()] };
    names.split(',').map(|name| format!("{start}{name}{end}")).collect()
}

#[test]
fn files_that_the_architecture_names_exist() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let spans = page.split('`').skip(1).step_by(2).filter(|span| !span.contains(char::is_whitespace));
    let names: Vec<String> = spans
        .filter(|span| span.starts_with("crates/") || span.contains("/src/"))
        .flat_map(expanded)
        .collect();
    assert!(names.len() > 40, "too few names: {names:?}");
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !root().join(name).exists() && !root().join("crates").join(name).exists())
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that do not exist: {missing:?}");
}

/// Returns the type and the member that a code span such as `Session::prompt(…)` names.
fn item(span: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let (name, member) = span.split('(').next()?.split_once("::")?;
    (is_name(name) && is_name(member) && name.starts_with(char::is_uppercase)).then_some((name, member))
}

#[test]
fn items_that_pages_name_exist() {
    let tools = ["bench", "microbench", "xtask"].map(|name| root().join("crates").join(name));
    let files = rust_files(&root().join("crates"));
    let sources = files.iter().filter(|file| !tools.iter().any(|folder| file.starts_with(folder)));
    let code: String =
        sources.map(|file| std::fs::read_to_string(file).expect("UTF-8")).collect::<Vec<_>>().join("\n");
    let words: Vec<&str> =
        code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let declared = |keywords: &[&str]| -> HashSet<&str> {
        words.windows(2).filter(|pair| keywords.contains(&pair[0])).map(|pair| pair[1]).collect()
    };
    let types = declared(&["struct", "enum", "trait", "type"]);
    let members = declared(&["fn", "const"]);
    // Variants and fields stand at the beginning of a line.
    let first_words: HashSet<&str> = code
        .lines()
        .filter_map(|line| {
            line.trim_start()
                .trim_start_matches("pub ")
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect();
    let (mut missing, mut count) = (Vec::new(), 0);
    for page in pages(&root()) {
        let text = std::fs::read_to_string(&page).expect("a page");
        let prose: String = text.split("```").step_by(2).collect();
        for (name, member) in prose.split('`').skip(1).step_by(2).filter_map(item) {
            count += 1;
            if !types.contains(name) || !(members.contains(member) || first_words.contains(member)) {
                missing.push(format!("{} names {name}::{member}", page.display()));
            }
        }
    }
    assert!(count > 100, "too few names: {count}");
    assert!(missing.is_empty(), "names that do not exist:\n{}", missing.join("\n"));
}
