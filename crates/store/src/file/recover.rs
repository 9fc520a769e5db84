//! Opening the files of an earlier life: removes what was cut short and finds the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duologue_transcript::private_file::{close_to_others, private};
use duologue_transcript::{Header, Reader};

use crate::disk::{open_ordinary, remove_if_there, sync_folder};
use crate::error::{Error, Result};
use crate::file::segment::{NEW, Segment, SegmentScan, open_to_append, open_to_read};
use crate::line::time_of;
use crate::position::LogPosition;

/// The result of opening a log after a crash or a power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecovery {
    /// The last record that is still there, or zero in a new log.
    pub end: LogPosition,
    /// The bytes behind it that were removed. After a crash they are a part of one record that was not accepted.
    pub removed_bytes: u64,
    /// The whole lines among them. After a power cut they are behind a hole and were not synced.
    pub removed_lines: u64,
    /// The file that they were removed from. This life may continue it under another name.
    pub removed_from: Option<PathBuf>,
    /// The file with the removed bytes, if there were whole lines.
    pub saved_to: Option<PathBuf>,
}

/// A log of earlier lives.
#[derive(Debug)]
pub(super) struct EarlierLives {
    pub(super) segments: Vec<Segment>,
    /// `None` if no segment is left.
    pub(super) header: Option<Header>,
    /// The newest segment has a readable header.
    pub(super) has_header: bool,
    /// The number of the last life, or zero.
    pub(super) life: u32,
    /// The time of the last record.
    pub(super) at: Duration,
    pub(super) report: LogRecovery,
}

impl EarlierLives {
    /// Reads the segments of a folder, and repairs the newest.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let failed = |error| Error::file(folder, error);
        remove_if_there(&folder.join(NEW)).map_err(failed)?;
        let mut segments = segments(folder).map_err(failed)?;
        let life = segments.iter().map(|segment| segment.life).max().unwrap_or_default();
        let (mut at, mut report) = (Duration::ZERO, LogRecovery::default());
        while let Some(newest) = segments.last_mut() {
            if repair(folder, newest, &mut report)? {
                let records = newest.index.as_ref().map_or(0, |index| index.records);
                report.end = LogPosition::new(newest.first.number() - 1 + records);
                at = last_time(folder, newest)?;
                break;
            }
            report.end = LogPosition::new(newest.first.number() - 1);
            segments.pop();
        }
        remove_replaced(folder, &mut segments).map_err(failed)?;
        let (header, has_header) = match segments.is_empty() {
            true => (None, false),
            false => header(folder, &segments).map(|(header, is_newest)| (Some(header), is_newest))?,
        };
        Ok(EarlierLives { segments, header, has_header, life, at, report })
    }
}

/// Returns the segments that have a header, with the index of the newest, and the position of the last whole record.
pub(super) fn readable_segments(folder: &Path) -> Result<(Vec<Segment>, LogPosition)> {
    let mut segments = segments(folder).map_err(|error| Error::file(folder, error))?;
    while let Some(newest) = segments.last_mut() {
        let path = newest.path(folder);
        let scan = open_to_read(&path).and_then(SegmentScan::check);
        if let Some(index) = scan.map_err(|error| Error::file(&path, error))?.index {
            let end = LogPosition::new(newest.first.number() - 1 + index.records);
            newest.bytes = index.bytes;
            newest.index = Some(Arc::new(index));
            return Ok((segments, end));
        }
        segments.pop();
    }
    Ok((segments, LogPosition::START))
}

/// Lists the segments in their order.
fn segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| Segment::of_name(name, 0).is_some()) else { continue };
        let found = entry.metadata()?;
        // A pipe or a socket would block its reader. A link is refused when it is opened.
        if found.is_file() || found.is_symlink() {
            segments.extend(Segment::of_name(name, found.len()));
        }
    }
    segments.sort_by_key(|segment| (segment.first, segment.life));
    Ok(segments)
}

/// Removes what follows the last whole record of the newest segment. Returns false if nothing is left of it.
fn repair(folder: &Path, segment: &mut Segment, report: &mut LogRecovery) -> Result<bool> {
    let path = segment.path(folder);
    let failed = |error| Error::file(&path, error);
    let mut file = open_to_append(&path)?;
    close_to_others(&file).map_err(failed)?;
    let index = SegmentScan::check(&file).map_err(failed)?.index;
    let length = file.metadata().map_err(failed)?.len();
    let whole = index.as_ref().map_or(0, |index| index.bytes);
    if whole < length {
        report.removed_bytes += length - whole;
        report.removed_from = Some(path.clone());
        let lines = count_lines(&mut file, whole).map_err(failed)?;
        report.removed_lines += lines;
        if lines > 0 {
            let lost = lost_path(&path);
            save(&mut file, whole, &lost)
                .and_then(|()| sync_folder(folder))
                .map_err(|error| Error::file(&lost, error))?;
            report.saved_to = Some(lost);
        }
    }
    let Some(index) = index else {
        // Its life keeps its number, see `EarlierLives::life`.
        fs::remove_file(&path).and_then(|()| sync_folder(folder)).map_err(failed)?;
        return Ok(false);
    };
    if whole < length {
        file.set_len(whole).map_err(failed)?;
    }
    // The records become older than those of a new life, so none of them may be lost any more.
    file.sync_all().map_err(failed)?;
    segment.bytes = whole;
    segment.index = Some(Arc::new(index));
    Ok(true)
}

/// Removes segments that the newest has replaced, since it begins with their records. A crash can leave them. A segment with
/// other records is kept under another name.
fn remove_replaced(folder: &Path, segments: &mut Vec<Segment>) -> io::Result<()> {
    while let [.., older, newest] = segments.as_slice()
        && older.first == newest.first
    {
        let (path, newest) = (older.path(folder), newest.path(folder));
        if begins_with(&newest, &path)? {
            remove_if_there(&path)?;
        } else {
            let lost = lost_path(&path);
            tracing::error!(saved_to = %lost.display(), newest = %newest.display(), "a part of a log differs from the one in its place");
            fs::rename(&path, &lost).and_then(|()| sync_folder(folder))?;
        }
        segments.remove(segments.len() - 2);
    }
    Ok(())
}

/// Returns true if a file begins with the bytes of another one.
fn begins_with(file: &Path, start: &Path) -> io::Result<bool> {
    let open = |path| Ok::<_, io::Error>(BufReader::new(open_ordinary(path, OpenOptions::new().read(true))?));
    let (mut file, mut start) = (open(file)?, open(start)?);
    loop {
        let (found, expected) = (file.fill_buf()?, start.fill_buf()?);
        let length = found.len().min(expected.len());
        if expected.is_empty() || found.get(..length) != expected.get(..length) || length == 0 {
            return Ok(expected.is_empty());
        }
        file.consume(length);
        start.consume(length);
    }
}

/// Returns the name of the file for the removed lines of a segment.
fn lost_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lost");
    name.into()
}

fn count_lines(file: &mut File, from: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(from))?;
    let (mut block, mut lines) = (vec![0; 256 * 1024], 0);
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(lines),
            Ok(length) => {
                lines += memchr::memchr_iter(b'\n', block.get(..length).unwrap_or_default()).count() as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Copies the end of a file, since lines behind damage may be all that is left of a session.
fn save(file: &mut File, from: u64, to: &Path) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    let mut lost = open_ordinary(to, private().write(true).create(true).truncate(true))?;
    io::copy(file, &mut lost)?;
    lost.sync_all()
}

/// Reads the header from the newest segment that has one. Returns true if that is the newest of all.
fn header(folder: &Path, segments: &[Segment]) -> Result<(Header, bool)> {
    let mut reason = String::new();
    for (age, segment) in segments.iter().rev().enumerate() {
        let path = segment.path(folder);
        let file = open_to_read(&path).map_err(|error| Error::file(&path, error))?;
        match Reader::new(BufReader::new(file)) {
            Ok(reader) => return Ok((reader.header().clone(), age == 0)),
            Err(error) => reason = format!("{}: {error}", segment.name()),
        }
    }
    Err(Error::NoHeader { path: folder.into(), reason })
}

/// Returns the time of the last line of a segment.
fn last_time(folder: &Path, segment: &Segment) -> Result<Duration> {
    let path = segment.path(folder);
    let Some(index) = &segment.index else { return Ok(Duration::ZERO) };
    let read = || {
        let mut file = open_to_read(&path)?;
        // A segment without records has a time in its header.
        let (offset, skip) = match index.records.checked_sub(1) {
            Some(last) => index.place(last),
            None => (0, 0),
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut lines = BufReader::new(file.take(index.bytes - offset));
        for _ in 0..skip {
            lines.skip_until(b'\n')?;
        }
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line)?;
        Ok(time_of(line.trim_ascii_end()).unwrap_or_default())
    };
    read().map_err(|error| Error::file(&path, error))
}
