//! Reading a text file, or some lines of it.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Weak;

use cap_std::fs::{Dir, Metadata, OpenOptions};

use super::folders::Fault;
use super::system;

/// Opens a file to be read. `path` is what the agent calls it.
pub(super) fn open(dir: &Dir, way: &Path, path: &Path) -> Result<std::fs::File, Fault> {
    let mut options = OpenOptions::new();
    options.read(true);
    Ok(open_file(dir, way, path, &mut options)?.into_std())
}

/// Opens a file of the ordinary kind. Whatever else has the name is neither waited for nor read: a pipe
/// without a writer, a terminal, a device without an end.
pub(super) fn open_file(
    dir: &Dir,
    way: &Path,
    path: &Path,
    options: &mut OpenOptions,
) -> Result<cap_std::fs::File, Fault> {
    let kind = |metadata: Metadata| match metadata {
        folder if folder.is_dir() => Err(Fault::about(path, "is a folder")),
        file if file.is_file() => Ok(()),
        _ => Err(Fault::about(path, "is no file but a pipe, a socket or a device")),
    };
    names_file(path)?;
    match dir.open_with(way, system::at_once(options)) {
        Ok(file) => {
            kind(file.metadata()?)?;
            Ok(file)
        }
        Err(error) => {
            // Some of these cannot even be opened, and the system's reasons are obscure.
            dir.metadata(way).map_or(Ok(()), kind)?;
            Err(error.into())
        }
    }
}

/// Refuses a path that ends like that of a folder: by its components it could be a file.
pub(super) fn names_file(path: &Path) -> Result<(), Fault> {
    let path_ends = |end: &str| path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes());
    if path_ends("/") || path_ends("/.") { Err(Fault::about(path, "names a folder")) } else { Ok(()) }
}

/// Reads from line `line`, counted from 1, at most `limit` lines and at most `max` bytes. Stops when
/// `wanted` is gone.
pub(super) fn read(
    file: std::fs::File,
    path: &Path,
    line: u32,
    limit: Option<u32>,
    max: u64,
    wanted: Weak<()>,
) -> Result<String, Fault> {
    let whole = line <= 1 && limit.is_none();
    let size = file.metadata()?.len();
    let mut input = BufReader::with_capacity(64 * 1024, WhileWanted { file, wanted });
    let mut text = Vec::new();
    // Nothing of a file that is too large is of use, so none of it is read.
    if !whole || size <= max {
        for _ in 1..line {
            if input.skip_until(b'\n')? == 0 {
                break;
            }
        }
        let mut input = input.take(max.saturating_add(1));
        match limit {
            None => {
                input.read_to_end(&mut text)?;
            }
            Some(limit) => {
                for _ in 0..limit {
                    if input.read_until(b'\n', &mut text)? == 0 {
                        break;
                    }
                }
            }
        }
    }
    if text.len() as u64 > max || whole && size > max {
        let what = if whole { format!("has {size} bytes") } else { "has more in these lines".into() };
        return Err(Fault::about(
            path,
            format_args!(
                "{what}, and at most {max} are sent at once: ask for fewer lines with line and limit"
            ),
        ));
    }
    String::from_utf8(text).map_err(|_| Fault::about(path, "is no text in UTF-8"))
}

/// A file that ends with an error once nobody waits for what it holds: lines can be a long way into it.
struct WhileWanted {
    file: std::fs::File,
    wanted: Weak<()>,
}

impl Read for WhileWanted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.wanted.strong_count() == 0 {
            return Err(io::Error::other("the request was withdrawn"));
        }
        self.file.read(buffer)
    }
}
