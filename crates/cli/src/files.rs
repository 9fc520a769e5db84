//! Creates files, and names files in errors.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use duologue_proxy::PathMap;

use crate::error::{Error, Result};

/// Adds the name of its file to an error.
pub(crate) fn in_file(name: impl Display) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Returns the error about an existing file that was not to be replaced.
pub(crate) fn exists(path: &Path) -> Error {
    Error::Usage(format!("{} exists; --force replaces it", path.display()))
}

/// Reads the two folders of a map of paths, each absolute on any system. `form` is their form for an error.
///
/// # Errors
///
/// If one of them is not absolute, or leads out of itself by `..`.
pub(crate) fn folder_pair(text: &str, form: &str) -> Result<(String, String), String> {
    let pair = text
        .split_once('=')
        .filter(|(client, agent)| PathMap::is_absolute(client) && PathMap::is_absolute(agent));
    let (client, agent) = pair.ok_or_else(|| format!("{text} are not two absolute folders: {form}"))?;
    for folder in [client, agent] {
        if folder.split(['/', '\\']).any(|part| part == "..") {
            return Err(format!(
                "{folder} leads out of its folder by `..`; name the folder that is meant: {form}"
            ));
        }
    }
    Ok((client.to_owned(), agent.to_owned()))
}

/// Creates a file. An existing file is replaced only with `force`. A pipe is rejected, since opening it would wait for a
/// reader.
pub(crate) fn create(options: &mut OpenOptions, path: &Path, force: bool) -> Result<File> {
    #[cfg(unix)]
    if path.metadata().is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_fifo(&file.file_type())) {
        let path = path.display();
        return Err(Error::Usage(format!("{path} is a pipe; redirect the standard output to it instead")));
    }
    options.write(true).create(force).truncate(force).create_new(!force);
    options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => in_file(path.display())(error).into(),
    })
}
