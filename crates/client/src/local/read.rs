//! Reads text files, or lines of them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, OpenOptions};

use super::folders::FileError;
use super::system;
use crate::host::HostResult;

/// Opens a file for reading. `path` is its path in the request.
pub(super) fn open(dir: &Dir, way: &Path, path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.read(true);
    Ok(open_file(dir, way, path, &mut options)?.into_std())
}

/// Opens a regular file. Pipes, terminals and devices are rejected without blocking.
pub(super) fn open_file(
    dir: &Dir,
    way: &Path,
    path: &Path,
    options: &mut OpenOptions,
) -> Result<cap_std::fs::File, FileError> {
    let kind = |metadata: Metadata| match metadata {
        folder if folder.is_dir() => Err(FileError::about(path, "is a folder")),
        file if file.is_file() => Ok(()),
        _ => Err(FileError::about(path, "is a pipe, a socket or a device, not a file")),
    };
    names_file(path)?;
    match dir.open_with(way, system::at_once(options)) {
        Ok(file) => {
            kind(file.metadata()?)?;
            Ok(file)
        }
        Err(error) => {
            // Some of these cannot be opened, with an obscure error of the system.
            dir.metadata(way).map_or(Ok(()), kind)?;
            Err(error.into())
        }
    }
}

/// Rejects a path that ends like the path of a folder. Its components alone could name a file.
pub(super) fn names_file(path: &Path) -> Result<(), FileError> {
    let path_ends = |end: &str| path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes());
    if path_ends("/") || path_ends("/.") { Err(FileError::about(path, "names a folder")) } else { Ok(()) }
}

/// The lines of a file to read, with limits on the bytes.
pub(super) struct LineRange {
    /// The first line, counted from 1; 0 means 1.
    pub(super) line: u32,
    pub(super) limit: Option<u32>,
    pub(super) max_read: u64,
    pub(super) max_scan: u64,
}

/// A running read. It works in slices, so that a long read lets others have their turn.
pub(super) struct TextRead {
    input: BufReader<File>,
    path: PathBuf,
    extent: LineRange,
    size: u64,
    skipped_lines: u32,
    skipped_bytes: u64,
    read_lines: u32,
    text: Vec<u8>,
}

/// The outcome of a slice.
pub(super) enum Slice {
    /// The read is not finished.
    Unfinished(Box<TextRead>),
    /// The text of the lines.
    Finished(String),
}

/// The bytes of a file in one slice. They take a few milliseconds.
const SLICE_BYTES: usize = 8 * 1024 * 1024;

impl TextRead {
    /// Begins to read a file. `path` is its path in errors.
    pub(super) fn new(file: File, path: &Path, extent: LineRange) -> Result<Self, FileError> {
        let size = file.metadata()?.len();
        let whole = extent.line <= 1 && extent.limit.is_none();
        let expected = if whole { size.min(extent.max_read) } else { 0 };
        let reading = TextRead {
            input: BufReader::with_capacity(64 * 1024, file),
            path: path.to_owned(),
            extent,
            size,
            skipped_lines: 0,
            skipped_bytes: 0,
            read_lines: 0,
            text: Vec::with_capacity(usize::try_from(expected).unwrap_or_default()),
        };
        // A whole file over the limit is rejected before it is read.
        if reading.is_whole() && size > reading.extent.max_read {
            return Err(reading.too_long());
        }
        Ok(reading)
    }

    /// Reads the next slice.
    pub(super) fn slice(mut self: Box<Self>) -> Result<Slice, FileError> {
        let mut examined = 0;
        while examined < SLICE_BYTES {
            if self.extent.limit.is_some_and(|limit| self.read_lines >= limit) {
                return self.finish();
            }
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return self.finish();
            }
            let skips = self.skipped_lines < self.extent.line.saturating_sub(1);
            // Without a limit, line ends after the first line do not matter.
            let line_end = match skips || self.extent.limit.is_some() {
                true => memchr::memchr(b'\n', buffer),
                false => None,
            };
            let used = line_end.map_or(buffer.len(), |end| end + 1);
            let lines = u32::from(line_end.is_some());
            if skips {
                self.skipped_lines += lines;
                self.skipped_bytes += used as u64;
            } else {
                self.read_lines += lines;
                self.text.extend_from_slice(buffer.get(..used).unwrap_or_default());
            }
            self.input.consume(used);
            examined += used;
            if self.text.len() as u64 > self.extent.max_read {
                return Err(self.too_long());
            }
            if self.skipped_bytes > self.extent.max_scan {
                return Err(self.too_far());
            }
        }
        Ok(Slice::Unfinished(self))
    }

    /// Reads the next slice. The error is the one for the agent.
    pub(super) fn next(self: Box<Self>) -> HostResult<Slice> {
        let path = self.path.clone();
        self.slice().map_err(|fault| fault.into_wire(&path))
    }

    fn is_whole(&self) -> bool {
        self.extent.line <= 1 && self.extent.limit.is_none()
    }

    fn finish(self) -> Result<Slice, FileError> {
        let text = String::from_utf8(self.text);
        text.map(Slice::Finished).map_err(|_| FileError::about(&self.path, "is not UTF-8 text"))
    }

    fn too_long(&self) -> FileError {
        let (size, max) = (self.size, self.extent.max_read);
        let what =
            if self.is_whole() { format!("has {size} bytes") } else { "has more in these lines".into() };
        let way_out = "ask for fewer lines with line and limit";
        FileError::about(
            &self.path,
            format_args!("{what}; at most {max} are read at once (max_read): {way_out}"),
        )
    }

    fn too_far(&self) -> FileError {
        let (line, max) = (self.extent.line, self.extent.max_scan);
        FileError::about(
            &self.path,
            format_args!(
                "has line {line} more than {max} bytes after its start (max_scan); read earlier lines, or use a program"
            ),
        )
    }
}
