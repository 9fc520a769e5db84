//! The file: made so that nobody else reads it, and gone on with so that no record is fused with
//! what a crash left behind. Operating-system code lives here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::format::{Header, Record};
use crate::reader::Reader;

/// How every header begins: tells the cut start of a transcript from somebody's notes.
const START: &[u8] = br#"{"format":"acp-transcript""#;

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// How long it is. All of it is whole records.
    pub(super) length: u64,
    /// Whether it can be cut: no pipe and no device.
    pub(super) is_regular: bool,
}

/// What an existing transcript says to whoever goes on with it.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) header: Header,
    /// What the time of the next record is, by the header's start.
    pub(super) at: Duration,
}

impl Target {
    /// A new file.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = private().append(true).create_new(true).open(path);
        Target::of(file.and_then(locked), path)
    }

    /// A new file in the place of what is there. Nothing is written into the old one, which may be
    /// readable by others; a pipe or a device is written to; a link is refused.
    pub(super) fn replace(path: &Path) -> Result<Self> {
        let old = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Target::create(path),
            old => old.map_err(|error| Error::file(path, error))?,
        };
        if old.is_file() {
            fs::remove_file(path).map_err(|error| Error::file(path, error))?;
            return Target::create(path);
        }
        Target::of(no_links(&mut private()).write(true).open(path), path)
    }

    /// An existing transcript, cut behind its last whole record, or a new file.
    pub(super) fn resume(path: &Path) -> Result<(Self, Option<Resumed>)> {
        let file = no_links(&mut private()).read(true).append(true).create(true).open(path);
        let mut target = Target::of(file.and_then(locked), path)?;
        let failed = |error| Error::file(path, error);
        if !target.is_regular {
            return Err(failed(io::Error::new(ErrorKind::InvalidInput, "only a file can be appended to")));
        }
        let mut input = BufReader::new(&target.file);
        let (mut header, mut whole) = (None, 0);
        let (mut line, mut last) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            let count = input.read_until(b'\n', &mut line).map_err(failed)?;
            if !line.ends_with(b"\n") {
                break;
            }
            if header.is_none() {
                header = Some(Reader::new(line.as_slice())?.header().clone());
            }
            whole += count as u64;
            std::mem::swap(&mut line, &mut last);
        }
        if header.is_none() && !line.starts_with(START) && !START.starts_with(&line) {
            return Err(Error::NoHeader { reason: "it is something else, and left as it is".into() });
        }
        target.file.set_len(whole).map_err(failed)?;
        target.length = whole;
        let resumed = header.map(|header| {
            let record = std::str::from_utf8(&last).ok().and_then(|text| Record::read(text).ok());
            let passed = SystemTime::now().duration_since(header.started).unwrap_or_default();
            Resumed { at: passed.max(record.map(|record| record.at).unwrap_or_default()), header }
        });
        Ok((target, resumed))
    }

    fn of(file: io::Result<File>, path: &Path) -> Result<Self> {
        let opened = file.and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| Error::file(path, error))?;
        let (length, is_regular) = (metadata.len(), metadata.is_file());
        Ok(Target { file, path: path.into(), length, is_regular })
    }
}

/// Prompts, files and keys are in it: for its owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A link that somebody laid in a shared folder must not lead a recording into another file.
fn no_links(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        options,
        rustix::fs::OFlags::NOFOLLOW.bits().cast_signed(),
    );
    options
}

/// One writer at a time: cutting what another one is about to finish would fuse records.
fn locked(file: File) -> io::Result<File> {
    #[cfg(unix)]
    if let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    {
        return Err(io::Error::new(ErrorKind::ResourceBusy, "another recorder is writing it"));
    }
    Ok(file)
}
