//! The file of a recording. It is private to its owner, and appending never joins a record to one that a
//! crash cut short.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use duologue_rpc::Lock;

use crate::error::{Error, Result};
use crate::format::{Header, Record};
use crate::line_reader::LineReader;
use crate::private_file::{close_to_others, locked, no_links, private};
use crate::reader::Reader;
use crate::transcript::Transcript;

/// The first bytes of each header. They distinguish a transcript that was cut within them from other files.
const START: &[u8] = br#"{"format":"acp-transcript""#;

/// The latest time after which a recording can go on: 2^53 microseconds, or 285 years. Numbers in JSON are
/// exact up to this limit.
const LONGEST: Duration = Duration::from_micros(1 << 53);

/// An open file that records are appended to.
#[derive(Debug)]
pub(super) struct TranscriptFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// The length of the file, which consists of whole records.
    pub(super) length: u64,
    /// True if the file can be truncated: it is neither a pipe nor a device.
    pub(super) is_regular: bool,
    /// The file that this one replaces.
    replaces: Option<Replacement>,
    pub(super) current: FilePlace,
}

/// The path of a file that may be renamed while it is written.
#[derive(Clone, Debug)]
pub(super) struct FilePlace(Arc<Mutex<PathBuf>>);

impl FilePlace {
    /// Reads the transcript so far.
    pub(super) fn read(&self) -> Result<Transcript> {
        let (path, file) = {
            let path = self.0.lock_unpoisoned();
            (path.clone(), File::open(path.as_path()).map_err(|error| Error::file(path.as_path(), error))?)
        };
        Transcript::read(BufReader::new(file)).map_err(|error| error.in_file(&path))
    }
}

/// A new file beside the one that it replaces. It takes its place once it has its header, and is deleted if
/// that fails.
#[derive(Debug)]
struct Replacement {
    new: PathBuf,
    /// Locked until then, so that no other recorder writes or replaces it.
    _old: File,
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After the rename there is no file of this name.
        let _ = fs::remove_file(&self.new);
    }
}

/// The point at which the recording of an existing transcript goes on.
#[derive(Debug)]
pub(super) struct ResumePoint {
    pub(super) header: Header,
    /// The time of the next record since the start in the header.
    pub(super) at: Duration,
}

impl TranscriptFile {
    /// Creates a new file.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = private().append(true).create_new(true).open(path);
        TranscriptFile::of(file.and_then(|file| locked(file, path)), path)
    }

    /// Creates a new file that replaces an old one on [`place`](Self::place). The old file may be readable by
    /// others, so nothing is written to it. Pipes and devices are opened instead. A symbolic link is rejected.
    pub(super) fn replace(path: &Path) -> Result<Self> {
        let failed = |error| Error::file(path, error);
        let old = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return TranscriptFile::create(path),
            old => old.map_err(failed)?,
        };
        if !old.is_file() {
            return TranscriptFile::of(open_device(path), path);
        }
        let old = no_links(OpenOptions::new().read(true)).open(path).and_then(|file| locked(file, path));
        let old = old.map_err(failed)?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!(".duologue-{}-{}.jsonl", std::process::id(), since_1970.as_nanos());
        let new = path.with_file_name(name);
        let mut target = TranscriptFile::create(&new)?;
        target.path = path.into();
        target.replaces = Some(Replacement { new, _old: old });
        Ok(target)
    }

    /// Renames the new file to the one that it replaces, if there is one.
    pub(super) fn place(&mut self) -> Result<()> {
        let Some(replaces) = self.replaces.take() else { return Ok(()) };
        let mut current = self.current.0.lock_unpoisoned();
        fs::rename(&replaces.new, &self.path).map_err(|error| Error::file(&self.path, error))?;
        current.clone_from(&self.path);
        Ok(())
    }

    /// Opens a transcript and cuts it after its last whole record, or creates a new file.
    pub(super) fn resume(path: &Path) -> Result<(Self, Option<ResumePoint>)> {
        let file = no_links(&mut private()).read(true).append(true).create(true).open(path);
        let mut target = TranscriptFile::of(file.and_then(|file| locked(file, path)), path)?;
        let failed = |error| Error::file(path, error);
        let refused = |why| failed(io::Error::new(ErrorKind::InvalidInput, why));
        if !target.is_regular {
            return Err(refused("only a file can be appended to"));
        }
        let mut lines = LineReader::new(BufReader::new(&target.file));
        let (mut header, mut whole, mut last, mut lacks_its_end) = (None, 0, Vec::new(), false);
        while let Some(line) = lines.raw().map_err(|error| error.in_file(path))? {
            if !line.ends_with(b"\n") {
                // A whole record may lack only its line feed.
                lacks_its_end = match header {
                    None => Reader::new(line).is_ok(),
                    Some(_) => record(line).is_some(),
                };
                if !lacks_its_end && header.is_none() && !line.starts_with(START) && !START.starts_with(line)
                {
                    return Err(Error::NoHeader {
                        reason: "the file is not a recording and was not changed".into(),
                    });
                }
                if !lacks_its_end {
                    break;
                }
            }
            if header.is_none() {
                header = Some(Reader::new(line)?.header().clone());
            }
            whole += line.len() as u64;
            last.clear();
            last.extend_from_slice(line);
        }
        let at = record(&last).map(|record| record.at).unwrap_or_default();
        if at > LONGEST {
            return Err(refused("its last record is more than 285 years after the first"));
        }
        close_to_others(&target.file).map_err(failed)?;
        target.file.set_len(whole).map_err(failed)?;
        target.length = whole;
        if lacks_its_end {
            target.append(b"\n")?;
        }
        let resumed = header.map(|header| {
            let passed = SystemTime::now().duration_since(header.started).unwrap_or_default();
            ResumePoint { at: passed.max(at), header }
        });
        Ok((target, resumed))
    }

    fn of(file: io::Result<File>, path: &Path) -> Result<Self> {
        let opened = file.and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| Error::file(path, error))?;
        let (length, is_regular) = (metadata.len(), metadata.is_file());
        let current = FilePlace(Arc::new(Mutex::new(path.into())));
        Ok(TranscriptFile { file, path: path.into(), length, is_regular, replaces: None, current })
    }
}

/// Parses a line as a record.
fn record(line: &[u8]) -> Option<Record> {
    std::str::from_utf8(line).ok().and_then(|text| Record::read(text).ok())
}

/// Opens a pipe or a device. A pipe without a reader is an error, since opening it would wait for one.
fn open_device(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
                io::Error::new(ErrorKind::NotConnected, "no program reads this pipe; start the reader first")
            }
            _ => error,
        })?;
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    }
    #[cfg(not(unix))]
    OpenOptions::new().write(true).open(path)
}
