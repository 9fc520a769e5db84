//! Reading a text file, or some lines of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, OpenOptions};

use super::folders::FileError;
use super::system;
use crate::host::HostResult;

/// Opens a file to be read. `path` is what the agent calls it.
pub(super) fn open(dir: &Dir, way: &Path, path: &Path) -> Result<File, FileError> {
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
) -> Result<cap_std::fs::File, FileError> {
    let kind = |metadata: Metadata| match metadata {
        folder if folder.is_dir() => Err(FileError::about(path, "is a folder")),
        file if file.is_file() => Ok(()),
        _ => Err(FileError::about(path, "is no file but a pipe, a socket or a device")),
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
pub(super) fn names_file(path: &Path) -> Result<(), FileError> {
    let path_ends = |end: &str| path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes());
    if path_ends("/") || path_ends("/.") { Err(FileError::about(path, "names a folder")) } else { Ok(()) }
}

/// Which lines of a file are read, and how many bytes at most.
pub(super) struct LineRange {
    /// Counted from 1; 0 means 1.
    pub(super) line: u32,
    pub(super) limit: Option<u32>,
    pub(super) max_read: u64,
    pub(super) max_scan: u64,
}

/// A read at work. It goes on slice by slice, so that a long one lets others have their turn.
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
    /// There is more to read.
    Unfinished(Box<TextRead>),
    /// The text.
    Finished(String),
}

/// Bytes of a file that are looked at in one slice: a few milliseconds.
const SLICE_BYTES: usize = 8 * 1024 * 1024;

impl TextRead {
    /// Begins to read a file. `path` is its name in errors.
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
        // A file that is too large to be sent whole is not read at all.
        if reading.is_whole() && size > reading.extent.max_read {
            return Err(reading.too_long());
        }
        Ok(reading)
    }

    /// Reads the next slice.
    pub(super) fn slice(mut self: Box<Self>) -> Result<Slice, FileError> {
        let mut looked_at = 0;
        while looked_at < SLICE_BYTES {
            if self.extent.limit.is_some_and(|limit| self.read_lines >= limit) {
                return self.finish();
            }
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return self.finish();
            }
            let skips = self.skipped_lines < self.extent.line.saturating_sub(1);
            // Without a limit, line ends do not matter any more.
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
            looked_at += used;
            if self.text.len() as u64 > self.extent.max_read {
                return Err(self.too_long());
            }
            if self.skipped_bytes > self.extent.max_scan {
                return Err(self.too_far());
            }
        }
        Ok(Slice::Unfinished(self))
    }

    /// Reads the next slice, for a request.
    pub(super) fn next(self: Box<Self>) -> HostResult<Slice> {
        let path = self.path.clone();
        self.slice().map_err(|fault| fault.into_wire(&path))
    }

    fn is_whole(&self) -> bool {
        self.extent.line <= 1 && self.extent.limit.is_none()
    }

    fn finish(self) -> Result<Slice, FileError> {
        let text = String::from_utf8(self.text);
        text.map(Slice::Finished).map_err(|_| FileError::about(&self.path, "is no text in UTF-8"))
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
                "has line {line} further than {max} bytes from its start (max_scan); read earlier lines, or use a program"
            ),
        )
    }
}
