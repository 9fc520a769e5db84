//! Opening the files of an earlier life: removes what was cut short and finds the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duologue_transcript::private_file::{close_to_others, private};
use duologue_transcript::{Error as TranscriptError, Header, Reader};

use crate::disk::{open_ordinary, remove_if_there, sync_folder};
use crate::error::{Error, Result};
use crate::file::segment::{NEW, Segment, SegmentScan, open_to_append, open_to_read};
use crate::line::{LogLine, check_record, time_of};
use crate::position::LogPosition;

/// The result of opening a log after a crash or a power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecovery {
    /// The last record that has kept its number, or zero in a new log.
    pub end: LogPosition,
    /// The bytes behind it that were lost. After a crash they are a part of one record that was not accepted.
    pub removed_bytes: u64,
    /// The whole lines among them.
    pub removed_lines: u64,
    /// The records behind the lost bytes. They are records of this life now, with other numbers.
    pub moved_records: u64,
    /// The file that all of them were removed from. This life may continue it under another name.
    pub removed_from: Option<PathBuf>,
    /// The file with the removed bytes and records, if there were whole lines.
    pub saved_to: Option<PathBuf>,
}

/// A log of earlier lives.
#[derive(Debug, Default)]
pub(super) struct EarlierLives {
    pub(super) segments: Vec<Segment>,
    /// `None` if no segment has one.
    pub(super) header: Option<Header>,
    /// The newest segment has a readable header.
    pub(super) has_header: bool,
    /// The number of the last life, or zero.
    pub(super) life: u32,
    /// The time of the last record.
    pub(super) at: Duration,
    /// The records for this life to begin with: those behind lost bytes, and a record in the place of each lost part.
    pub(super) moved: Vec<LogLine>,
    /// The segments with lost bytes, and the length of their accepted records. They are cut when `moved` is on the disk.
    pub(super) cuts: Vec<(PathBuf, u64)>,
    pub(super) report: LogRecovery,
}

impl EarlierLives {
    /// Reads the segments of a folder, and repairs the newest.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let failed = |error| Error::file(folder, error);
        remove_if_there(&folder.join(NEW)).map_err(failed)?;
        let mut segments = segments(folder).map_err(failed)?;
        let life = segments.iter().map(|segment| segment.life).max().unwrap_or_default();
        let mut lives = EarlierLives { life, ..EarlierLives::default() };
        while let Some(newest) = segments.last_mut() {
            if lives.repair(folder, newest)? {
                let records = newest.index.as_ref().map_or(0, |index| index.records);
                lives.report.end = LogPosition::new(newest.first.number() - 1 + records);
                lives.at = last_time(folder, newest)?;
                break;
            }
            lives.report.end = LogPosition::new(newest.first.number() - 1);
            segments.pop();
        }
        lives.at = lives.moved.iter().filter_map(|line| time_of(line.bytes())).fold(lives.at, Duration::max);
        remove_replaced(folder, &mut segments).map_err(failed)?;
        if let Some((header, is_newest)) = header(folder, &segments)? {
            (lives.header, lives.has_header) = (Some(header), is_newest);
        }
        lives.segments = segments;
        Ok(lives)
    }

    /// Finds the end of the records of the newest segment, and those behind lost bytes. Returns false if the segment is not
    /// used any more.
    fn repair(&mut self, folder: &Path, segment: &mut Segment) -> Result<bool> {
        let path = segment.path(folder);
        let failed = |error| Error::file(&path, error);
        let mut file = open_to_append(&path)?;
        close_to_others(&file).map_err(failed)?;
        let index = SegmentScan::check(&file).map_err(failed)?.index;
        let length = file.metadata().map_err(failed)?.len();
        let whole = index.as_ref().map_or(0, |index| index.bytes);
        if whole < length {
            let Rest { records, moved, moved_bytes, lines } = Rest::read(&mut file, whole).map_err(failed)?;
            let report = &mut self.report;
            report.removed_bytes += length - whole - moved_bytes;
            report.removed_lines += lines;
            report.moved_records += moved;
            report.removed_from = Some(path.clone());
            if lines + moved > 0 {
                let lost = lost_path(&path);
                save(&mut file, whole, &lost)
                    .and_then(|()| sync_folder(folder))
                    .map_err(|error| Error::file(&lost, error))?;
                report.saved_to = Some(lost);
            }
            self.moved.splice(0..0, records);
        }
        if whole < length || index.is_none() {
            self.cuts.push((path.clone(), whole));
        }
        let Some(index) = index else { return Ok(false) };
        // The records become older than those of a new life, so none of them may be lost any more.
        file.sync_all().map_err(failed)?;
        segment.bytes = whole;
        segment.index = Some(Arc::new(index));
        Ok(true)
    }
}

/// The end of a segment, from its first hole on.
#[derive(Default)]
struct Rest {
    /// The records, and one in the place of each lost part.
    records: Vec<LogLine>,
    /// The number and the bytes of the former.
    moved: u64,
    moved_bytes: u64,
    /// The whole lines that are lost.
    lines: u64,
}

impl Rest {
    fn read(file: &mut File, from: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(from))?;
        let mut file = BufReader::with_capacity(256 * 1024, file);
        let (mut rest, mut line, mut lost) = (Rest::default(), Vec::new(), LostPart::default());
        let mut at = Duration::ZERO;
        loop {
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                // A record that was not written to its end is no loss: it was not accepted.
                if lost.lines > 0 || lost.has_zeros {
                    rest.end_part(at, &mut lost);
                }
                return Ok(rest);
            }
            // Zeros can end between two records.
            let zeros = line.iter().take_while(|byte| **byte == 0).count();
            let record = line.get(zeros..).and_then(|line| line.strip_suffix(b"\n"));
            let record = record.filter(|line| check_record(line).is_ok());
            let record = record.and_then(|line| Some((time_of(line)?, LogLine::new(line.to_vec()).ok()?)));
            let Some((time, record)) = record else {
                lost.add(&line);
                continue;
            };
            at = time;
            lost.add(line.get(..zeros).unwrap_or_default());
            if lost.bytes > 0 {
                rest.end_part(at, &mut lost);
            }
            rest.moved += 1;
            rest.moved_bytes += record.written_len() as u64;
            rest.records.push(record);
        }
    }

    fn end_part(&mut self, at: Duration, lost: &mut LostPart) {
        let LostPart { lines, bytes, .. } = std::mem::take(lost);
        self.lines += lines;
        // The lost line feeds are not known.
        self.records.push(LogLine::dropped(at, lines.max(1), bytes));
    }
}

/// A part of a segment that contains no record.
#[derive(Default)]
struct LostPart {
    lines: u64,
    bytes: u64,
    has_zeros: bool,
}

impl LostPart {
    fn add(&mut self, line: &[u8]) {
        self.bytes += line.len() as u64;
        self.lines += u64::from(line.ends_with(b"\n"));
        self.has_zeros |= line.contains(&0);
    }
}

/// Returns the segments that can be read, with the index of the newest, and the position of the last whole record. The
/// numbers behind a hole in the newest are those until the log is opened.
pub(super) fn readable_segments(folder: &Path) -> Result<(Vec<Segment>, LogPosition)> {
    let mut segments = segments(folder).map_err(|error| Error::file(folder, error))?;
    while let Some(newest) = segments.last_mut() {
        let path = newest.path(folder);
        let scan = open_to_read(&path).and_then(SegmentScan::check_behind_holes);
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

/// Copies the end of a file, since lines behind damage may be all that is left of a session.
fn save(file: &mut File, from: u64, to: &Path) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    let mut lost = open_ordinary(to, private().write(true).create(true).truncate(true))?;
    io::copy(file, &mut lost)?;
    lost.sync_all()
}

/// Reads the header from the newest segment that has one. Returns true if that is the newest of all.
fn header(folder: &Path, segments: &[Segment]) -> Result<Option<(Header, bool)>> {
    for (age, segment) in segments.iter().rev().enumerate() {
        let path = segment.path(folder);
        let file = open_to_read(&path).map_err(|error| Error::file(&path, error))?;
        match Reader::new(BufReader::new(file)) {
            Ok(reader) => return Ok(Some((reader.header().clone(), age == 0))),
            Err(TranscriptError::Io(error)) => {
                return Err(Error::file(&path, io::Error::new(error.kind(), error)));
            }
            Err(error @ TranscriptError::Version { .. }) => {
                return Err(Error::LaterVersion { path, reason: error.to_string() });
            }
            Err(error) => tracing::error!(path = %path.display(), %error, "a segment has no readable header"),
        }
    }
    Ok(None)
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
