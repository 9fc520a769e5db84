//! The files that the rules apply to.

use std::io;
use std::path::{Path, PathBuf};

/// Hidden folders that are read; all others are passed over.
const HIDDEN: [&str; 3] = [".ci", ".cargo", ".github"];
/// Folders of generated or installed files.
const GENERATED: [&str; 2] = ["target", "node_modules"];
const EXTENSIONS: [&str; 5] = ["rs", "md", "toml", "yml", "yaml"];

/// Returns all Rust, Markdown, TOML and YAML files below a folder and all files of `.ci`, sorted.
pub(super) fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let all = folder.file_name().is_some_and(|name| name == ".ci");
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                let skipped =
                    GENERATED.contains(&&*name) || name.starts_with('.') && !HIDDEN.contains(&&*name);
                if !skipped {
                    folders.push(path);
                }
            } else if all
                || path.extension().is_some_and(|ext| EXTENSIONS.iter().any(|wanted| ext == *wanted))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
