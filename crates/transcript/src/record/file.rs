//! The file: made so that nobody else reads it, and gone on with so that no record is fused with
//! what a crash left behind. Operating-system code lives here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::format::{Header, Record};
use crate::reader::Reader;
use crate::transcript::Transcript;

/// How every header begins: tells the cut start of a transcript from somebody's notes.
const START: &[u8] = br#"{"format":"acp-transcript""#;

/// Records whose times go beyond this cannot be gone on from: what counts microseconds in JSON is exact up to
/// here, which is 285 years.
const LONGEST: Duration = Duration::from_micros(1 << 53);

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct TranscriptFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// How long it is. All of it is whole records.
    pub(super) length: u64,
    /// Whether it can be cut: no pipe and no device.
    pub(super) is_regular: bool,
    /// What it is to take the place of.
    replaces: Option<Replacement>,
}

/// A new file beside the one whose place it takes once it has its header. Goes away if it does not come to that.
#[derive(Debug)]
struct Replacement {
    new: PathBuf,
    /// Locked until then, so that nobody else writes or replaces it.
    _old: File,
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After it was renamed, there is nothing of this name.
        let _ = fs::remove_file(&self.new);
    }
}

/// What an existing transcript says to whoever goes on with it.
#[derive(Debug)]
pub(super) struct ResumePoint {
    pub(super) header: Header,
    /// What the time of the next record is, by the header's start.
    pub(super) at: Duration,
}

impl TranscriptFile {
    /// A new file.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = private().append(true).create_new(true).open(path);
        TranscriptFile::of(file.and_then(|file| locked(file, path)), path)
    }

    /// A new file that takes the place of what is there by [`place`](Self::place). Nothing is written into the
    /// old one, which may be readable by others; a pipe or a device is written to; a link is refused.
    pub(super) fn replace(path: &Path) -> Result<Self> {
        let failed = |error| Error::file(path, error);
        let old = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return TranscriptFile::create(path),
            old => old.map_err(failed)?,
        };
        if !old.is_file() {
            return TranscriptFile::of(no_links(&mut private()).write(true).open(path), path);
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

    /// Takes the place of the file that is replaced, if there is one.
    pub(super) fn place(&mut self) -> Result<()> {
        let Some(replaces) = self.replaces.take() else { return Ok(()) };
        fs::rename(&replaces.new, &self.path).map_err(|error| Error::file(&self.path, error))
    }

    /// An existing transcript, cut behind its last whole record, or a new file.
    pub(super) fn resume(path: &Path) -> Result<(Self, Option<ResumePoint>)> {
        let file = no_links(&mut private()).read(true).append(true).create(true).open(path);
        let mut target = TranscriptFile::of(file.and_then(|file| locked(file, path)), path)?;
        let failed = |error| Error::file(path, error);
        let refused = |why| failed(io::Error::new(ErrorKind::InvalidInput, why));
        if !target.is_regular {
            return Err(refused("only a file can be appended to"));
        }
        let mut input = BufReader::new(&target.file);
        let (mut header, mut whole) = (None, 0);
        let (mut line, mut last) = (Vec::new(), Vec::new());
        let (mut lacks_its_end, mut lines) = (false, 0);
        loop {
            line.clear();
            let longest = Transcript::LINE_BYTES + 1;
            let count = (&mut input).take(longest).read_until(b'\n', &mut line).map_err(failed)? as u64;
            if count == 0 {
                break;
            }
            lines += 1;
            if count == longest {
                return Err(Error::LineTooLong { line: lines });
            }
            if !line.ends_with(b"\n") {
                // A whole record may lack nothing but its end.
                lacks_its_end = match header {
                    None => Reader::new(line.as_slice()).is_ok(),
                    Some(_) => record(&line).is_some(),
                };
                if !lacks_its_end {
                    break;
                }
            }
            if header.is_none() {
                header = Some(Reader::new(line.as_slice())?.header().clone());
            }
            whole += count;
            std::mem::swap(&mut line, &mut last);
        }
        if header.is_none() && !line.starts_with(START) && !START.starts_with(&line) {
            return Err(Error::NoHeader { reason: "it is something else, and left as it is".into() });
        }
        let at = record(&last).map(|record| record.at).unwrap_or_default();
        if at > LONGEST {
            return Err(refused("its last record claims to be centuries after the first"));
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
        Ok(TranscriptFile { file, path: path.into(), length, is_regular, replaces: None })
    }
}

/// The record of a line, if it is one.
fn record(line: &[u8]) -> Option<Record> {
    std::str::from_utf8(line).ok().and_then(|text| Record::read(text).ok())
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

/// What was opened to others before prompts were appended to it is closed now.
fn close_to_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// One writer at a time: cutting what another one is about to finish would fuse records, and a file that was
/// replaced meanwhile is nobody's any more.
fn locked(file: File, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let busy = || io::Error::new(ErrorKind::ResourceBusy, "another recorder is writing it");
        let taken = || {
            let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            lock == Err(rustix::io::Errno::WOULDBLOCK)
        };
        // A program that is being started holds what we had open for a moment: from fork to exec.
        let mut patience = 20;
        while taken() {
            if patience == 0 {
                return Err(busy());
            }
            patience -= 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        let (ours, there) = (file.metadata()?, fs::symlink_metadata(path));
        if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Err(busy());
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(file)
}
