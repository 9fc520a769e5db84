//! The folder of a session of a server, whose files are one transcript together.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

/// A file of the log of a session. Files sort by the number of their first record, and then by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogFile {
    first: u64,
    life: u32,
    path: PathBuf,
}

impl LogFile {
    /// Returns `None` for the name of another file.
    fn of(path: PathBuf) -> Option<Self> {
        let (first, life) = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.split_once('-')?;
        Some(LogFile { first: first.parse().ok()?, life: life.parse().ok()?, path })
    }
}

/// A reader of the header and the records of a session, as the server would read them.
pub(crate) struct SessionFolder {
    /// The files behind the one that is read.
    files: VecDeque<LogFile>,
    current: Option<BufReader<File>>,
    /// The records that are left in it. The records behind them are in the next file too.
    left: u64,
    /// The rest of the line that is read.
    line: Vec<u8>,
    read: usize,
    has_header: bool,
}

impl SessionFolder {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            files.extend(LogFile::of(entry?.path()));
        }
        if files.is_empty() {
            let reason =
                "no recording is in this folder; name a file, or the folder of a session of a server";
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        files.sort();
        let (current, left, has_header) = (None, 0, false);
        Ok(SessionFolder { files: files.into(), current, left, line: Vec::new(), read: 0, has_header })
    }

    /// Reads the next line. Returns false at the end.
    fn next_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.read = 0;
        loop {
            if let Some(reader) = &mut self.current
                && self.left > 0
                && reader.read_until(b'\n', &mut self.line)? > 0
            {
                self.left -= 1;
                return Ok(true);
            }
            let Some(file) = self.files.pop_front() else { return Ok(false) };
            let next = self.files.front().map_or(u64::MAX, |next| next.first);
            let mut reader = BufReader::new(File::open(&file.path)?);
            self.left = next - file.first;
            if self.has_header {
                reader.skip_until(b'\n')?;
            } else if self.left > 0 {
                self.left = self.left.saturating_add(1);
                self.has_header = true;
            }
            self.current = Some(reader);
        }
    }
}

impl Read for SessionFolder {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.read == self.line.len() && !self.next_line()? {
            return Ok(0);
        }
        let mut rest = self.line.get(self.read..).unwrap_or_default();
        let count = rest.read(space)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_session_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let read = || {
            let mut text = String::new();
            SessionFolder::open(folder.path())
                .map(|mut opened| opened.read_to_string(&mut text))
                .map(|_| text)
        };
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::NotFound);
        for (name, text) in [
            ("0000000000000001-1.jsonl", "header\n1\n2\n3\nlost\n"),
            // The one of the next life has its content.
            ("0000000000000001-2.jsonl", "header\n1\n2\n3\nfour\nfive\n"),
            ("0000000000000004-3.jsonl", "header\n4\n5\n"),
            ("0000000000000006-3.jsonl", "header\n6\ncut"),
            ("session.json", "{}"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(read().unwrap(), "header\n1\n2\n3\n4\n5\n6\ncut");
    }
}
