//! The files of the workspace.

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Returns all Rust files below a folder, but for hidden and generated ones.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !matches!(name, "target" | "node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The variable that makes [`compare_tables`] write the tables.
const WRITE: &str = "DUOLOGUE_WRITE_TABLES";

/// Compares tables, as lists of lines, with those of a page that have the same titles. The first line of a table is its
/// titles, and tables with equal titles are compared in their order.
pub(crate) fn compare_tables(page: &str, tables: &[Vec<String>]) {
    let path = root().join(page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let titles: Vec<&String> = tables.iter().filter_map(|table| table.first()).collect();
    let mut wanted = tables.iter();
    let (mut written, mut lines) = (String::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        if !titles.iter().any(|title| *title == line) {
            written += &format!("{line}\n");
            continue;
        }
        while lines.next_if(|line| line.starts_with('|')).is_some() {}
        let table = wanted.next().unwrap_or_else(|| panic!("{page} has more tables than the code"));
        written += &format!("{}\n", table.join("\n"));
    }
    assert_eq!(wanted.len(), 0, "{page} lacks a table");
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, written).expect("the page is written");
    }
    for (number, (line, other)) in text.lines().zip(written.lines()).enumerate() {
        assert_eq!(line, other, "{page}:{}: run the tests with {WRITE}=1 and commit the page", number + 1);
    }
    assert_eq!(text, written, "{page}: run the tests with {WRITE}=1 and commit the page");
}
