//! The links of Markdown pages to files of the repository, and the files that ARCHITECTURE.md names.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

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
