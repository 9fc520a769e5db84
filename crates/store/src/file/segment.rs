//! The files of a log: their names, their first lines, and the search for a record in one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duologue_transcript::private_file::{locked, private};
use duologue_transcript::{Header, Transcript};

use crate::disk::{open_ordinary, remove_if_there, sync_folder};
use crate::error::{Error, Result};
use crate::line::{LogLine, check_record, first_of_two, life_of, micros};
use crate::log::LogRecord;
use crate::position::LogPosition;
use crate::tail::LineBatch;

/// The name of a segment while it is created. A crash can leave it behind.
pub(super) const NEW: &str = ".new";

/// The size up to which a segment is replaced by the one of the next life, which begins with its content.
pub(super) const SHORT_BYTES: u64 = 16 * 1024;

/// More than the bytes of the record that begins a life.
const LIFE_BYTES: u64 = 256;

/// The bytes of the shortest line with a record.
const LEAST_LINE: u64 = r#"{"at":0}"#.len() as u64 + 1;

/// The distance of the known offsets in a segment. Reading a page skips at most as much.
const POINT_BYTES: u64 = 64 * 1024;

/// A part of a log in one file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The position of its first record.
    pub(super) first: LogPosition,
    /// The last life that began in it, or the one that wrote it.
    pub(super) life: u32,
    /// The length of its accepted records, with the header.
    pub(super) bytes: u64,
    /// The places of its records, once they are known.
    pub(super) index: Option<Arc<SegmentIndex>>,
}

/// The digits of the number in the name of a segment. Longer ones would not sort by position.
const NUMBER_DIGITS: usize = 16;

impl Segment {
    /// Returns the name of the file. The names of a log sort by position.
    pub(super) fn name(&self) -> String {
        format!("{:0NUMBER_DIGITS$}-{}.jsonl", self.first.number(), self.life)
    }

    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.name())
    }

    /// Returns the first life that began in the segment, and the end of a life before `self.life`: the position before
    /// the next life began. Returns `None` if a record before that place is damaged.
    pub(super) fn life_end(&self, folder: &Path, life: u32) -> Result<Option<(u32, LogPosition)>> {
        let path = self.path(folder);
        let failed = |error| Error::file(&path, error);
        // Lives begin in the copy of a short segment, and behind it.
        let start = open_to_read(&path).map_err(failed)?.take(SHORT_BYTES + LIFE_BYTES);
        let mut lines = BufReader::new(start);
        lines.skip_until(b'\n').map_err(failed)?;
        let (mut line, mut first) = (Vec::new(), None);
        for before in self.first.number() - 1.. {
            line.clear();
            lines.read_until(b'\n', &mut line).map_err(failed)?;
            let Some(record) = line.strip_suffix(b"\n").filter(|line| check_record(line).is_ok()) else {
                break;
            };
            let Some(begun) = life_of(record) else { continue };
            let first = *first.get_or_insert(begun);
            if begun > life {
                return Ok(Some((first, LogPosition::new(before))));
            }
        }
        Ok(None)
    }

    /// Reads a name of [`name`](Self::name). Returns `None` for other files.
    pub(super) fn of_name(name: &str, bytes: u64) -> Option<Self> {
        let (first, life) = name.strip_suffix(".jsonl")?.split_once('-')?;
        let segment = Segment {
            first: LogPosition::new(first.parse().ok()?),
            life: life.parse().ok()?,
            bytes,
            index: None,
        };
        // A longer number was not written by a log.
        let is_written = first.len() == NUMBER_DIGITS && segment.name() == name;
        (is_written && segment.first > LogPosition::START).then_some(segment)
    }
}

/// The places of records in a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentIndex {
    /// Some records: the number of records before it, and its offset. The first is behind the header.
    points: Vec<(u64, u64)>,
    /// The number of records in whole lines behind the header.
    pub(super) records: u64,
    /// The length of the whole lines, with the header.
    pub(super) bytes: u64,
    /// The number of records before the first damage, whose positions are certain.
    sound: u64,
    /// The first record behind the damage, if the positions from there on are certain again.
    resumed: Option<u64>,
    /// Lines with two records count as two.
    pub(super) has_pairs: bool,
}

impl SegmentIndex {
    fn new(header_bytes: u64) -> Self {
        SegmentIndex { points: vec![(0, header_bytes)], bytes: header_bytes, ..SegmentIndex::default() }
    }

    /// Adds the next record.
    pub(super) fn add(&mut self, length: u64) {
        self.records += 1;
        self.sound = self.records;
        self.bytes += length;
        if self.points.last().is_none_or(|(_, offset)| self.bytes - offset >= POINT_BYTES) {
            self.points.push((self.records, self.bytes));
        }
    }

    /// Adds two records of one line, the first of which has this length.
    fn add_two(&mut self, first: u64, line: u64) {
        self.points.push((self.records + 1, self.bytes + first + 1));
        self.records += 2;
        self.sound = self.records;
        self.bytes += line;
        // A line is skipped as one record, so no place behind this one begins before it.
        self.points.push((self.records, self.bytes));
        self.has_pairs = true;
    }

    /// Returns the number of records from this one on whose positions are certain, and, if there are none, the number of those
    /// that are lost. `behind` is the number of records that there should be.
    pub(super) fn readable(&self, record: u64, behind: u64) -> (u64, u64) {
        match self.resumed {
            Some(resumed) if record >= resumed => (self.records - record, 0),
            resumed => (self.sound.saturating_sub(record), resumed.unwrap_or(behind) - record),
        }
    }

    /// Finds the last lines without damage. Their positions are certain, since that of the last one is: the next segment begins
    /// behind it. `sound` is the number of lines before the damage, and `expected` that of all records.
    fn resume(&mut self, mut file: File, sound: u64, expected: u64) -> io::Result<()> {
        self.sound = sound.min(expected);
        let (start, skip) = self.place(self.sound);
        file.seek(SeekFrom::Start(start))?;
        let length = file.metadata()?.len();
        let mut file = BufReader::with_capacity(256 * 1024, file);
        let (mut line, mut place, mut skipped) = (Vec::new(), start, 0);
        let (mut damage, mut offset, mut lines) = (start, start, 0);
        while read_line(&mut file, &mut line, false)? {
            place += line.len() as u64 + 1;
            if skipped < skip {
                skipped += 1;
                (damage, offset) = (place, place);
            } else if check_record(&line).is_ok() {
                lines += 1;
            } else {
                (offset, lines) = (place, 0);
            }
        }
        let lost = expected.checked_sub(self.sound + lines);
        // Lines that are missing at the end would change the numbers. The damage has to have room for the lost ones.
        if place == length
            && lines > 0
            && let Some(lost) = lost.filter(|lost| *lost <= (offset - damage) / LEAST_LINE)
        {
            self.points.retain(|(before, _)| *before <= self.sound);
            self.points.push((self.sound + lost, offset));
            (self.resumed, self.records, self.bytes) = (Some(self.sound + lost), expected, length);
        }
        Ok(())
    }

    /// Returns the place from which a record is found: its offset, and the number of records to skip.
    pub(super) fn place(&self, record: u64) -> (u64, u64) {
        let after = self.points.partition_point(|(before, _)| *before <= record);
        let point = after.checked_sub(1).and_then(|point| self.points.get(point));
        point.map_or((self.bytes, 0), |(before, offset)| (*offset, record - before))
    }
}

/// The whole lines at the start of a file.
#[derive(Debug)]
pub(super) struct SegmentScan {
    /// `None` if not even the header is whole.
    pub(super) index: Option<SegmentIndex>,
    /// The number of records before the first damaged line, if the lines were checked.
    undamaged: u64,
}

impl SegmentScan {
    /// Reads a file and checks its lines, up to its end or the first line with a hole. JSON has no NUL, but blocks that
    /// were lost in a power cut consist of them. They may have contained line feeds, so records behind them have no
    /// certain position. A line with one NUL is a damaged record: if that was a line feed, it is between two records.
    pub(super) fn check(file: impl Read) -> io::Result<Self> {
        SegmentScan::check_lines(file, true)
    }

    /// As [`check`](Self::check), and goes on behind holes. The numbers behind the first one are not certain.
    pub(super) fn check_behind_holes(file: impl Read) -> io::Result<Self> {
        SegmentScan::check_lines(file, false)
    }

    fn check_lines(file: impl Read, ends_at_hole: bool) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(256 * 1024, file);
        let mut line = Vec::new();
        let mut index: Option<SegmentIndex> = None;
        let mut undamaged = None;
        while read_line(&mut file, &mut line, ends_at_hole)? {
            let length = line.len() as u64 + 1;
            let Some(index) = &mut index else {
                let header = match first_of_two(&line) {
                    Some(header) => header as u64 + 1,
                    None if ends_at_hole && line.contains(&0) => break,
                    None => length,
                };
                let mut start = SegmentIndex::new(header);
                if header < length {
                    start.add(length - header);
                }
                index = Some(start);
                continue;
            };
            if check_record(&line).is_ok() {
                index.add(length);
                continue;
            }
            undamaged.get_or_insert(index.records);
            match first_of_two(&line) {
                Some(first) => index.add_two(first as u64, length),
                None => index.add(length),
            }
        }
        let undamaged = undamaged.or(index.as_ref().map(|index| index.records)).unwrap_or_default();
        Ok(SegmentScan { index, undamaged })
    }

    /// Counts the lines of a file up to its end or its first NUL.
    fn count(mut file: impl Read) -> io::Result<Self> {
        let mut block = vec![0; 256 * 1024];
        let (mut offset, mut start) = (0, 0);
        let mut index: Option<SegmentIndex> = None;
        loop {
            let length = match file.read(&mut block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                length => length?,
            };
            let bytes = block.get(..length).unwrap_or_default();
            let hole = memchr::memchr(0, bytes);
            for end in memchr::memchr_iter(b'\n', bytes.get(..hole.unwrap_or(length)).unwrap_or_default()) {
                let next = offset + end as u64 + 1;
                match &mut index {
                    None => index = Some(SegmentIndex::new(next)),
                    Some(index) => index.add(next - start),
                }
                start = next;
            }
            offset += length as u64;
            if length == 0 || hole.is_some() {
                return Ok(SegmentScan { index, undamaged: 0 });
            }
        }
    }
}

/// Reads the next line, without its line feed. Returns false for a cut line, one that is too long for a record, and, if
/// `ends_at_hole`, one with more than one NUL.
fn read_line(file: &mut BufReader<impl Read>, line: &mut Vec<u8>, ends_at_hole: bool) -> io::Result<bool> {
    line.clear();
    let mut holes = 0;
    loop {
        let bytes = match file.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let end = memchr::memchr(b'\n', bytes);
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        holes += memchr::memchr_iter(0, part).take(2).count();
        line.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        file.consume(used);
        if used == 0 || ends_at_hole && holes > 1 || line.len() as u64 > Transcript::LINE_BYTES {
            return Ok(false);
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Opens a segment for reading, or the one that has replaced it. That begins with the same bytes.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let open = |path: &Path| open_ordinary(path, OpenOptions::new().read(true));
    match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match replacement(path) {
            Some(path) => open(&path),
            None => Err(error),
        },
        opened => opened,
    }
}

/// Returns the path of the segment with the same first record and the latest life.
fn replacement(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let segment = Segment::of_name(path.file_name()?.to_str()?, 0)?;
    let others = std::fs::read_dir(folder).ok()?;
    let others = others.filter_map(|other| Segment::of_name(other.ok()?.file_name().to_str()?, 0));
    let later = others.filter(|other| other.first == segment.first && other.life > segment.life);
    later.max_by_key(|later| later.life).map(|later| later.path(folder))
}

/// Opens a segment for writing at its end, with its lock.
pub(super) fn open_to_append(path: &Path) -> Result<File> {
    let file = open_ordinary(path, private().read(true).append(true));
    file.and_then(|file| locked(file, path)).map_err(|error| Error::file(path, error))
}

/// Finds the records of a segment that is not written any more and should have `expected` records.
pub(super) fn index_segment(path: &Path, expected: u64) -> Result<SegmentIndex> {
    let failed = |error| Error::file(path, error);
    let scan = |scan: fn(File) -> io::Result<SegmentScan>| open_to_read(path).and_then(scan).map_err(failed);
    let counted = scan(SegmentScan::count)?.index.unwrap_or_default();
    if counted.records == expected {
        return Ok(counted);
    }
    let SegmentScan { index, undamaged } = scan(SegmentScan::check)?;
    let mut index = index.unwrap_or_default();
    if index.records != expected {
        // Lines are missing or were added. The positions before the first damage are certain.
        open_to_read(path).and_then(|file| index.resume(file, undamaged, expected)).map_err(failed)?;
    }
    Ok(index)
}

/// The part of a segment that a page is read from.
#[derive(Debug)]
pub(super) struct PagePlace {
    pub(super) path: PathBuf,
    /// The position of the first record of the segment, and of the page.
    pub(super) segment_first: LogPosition,
    pub(super) first: LogPosition,
    /// The offset to begin at, and the number of records to skip from there.
    pub(super) offset: u64,
    pub(super) skip: u64,
    /// The end of the accepted records.
    pub(super) limit: u64,
    /// Lines with two records count as two.
    pub(super) has_pairs: bool,
    /// The number of records from `first` on that can be read, and, if there are none, that are lost.
    pub(super) sound: u64,
    pub(super) expected: u64,
}

impl PagePlace {
    /// Reads the page. Its first record may be longer than `max_bytes`.
    pub(super) fn read(&self, max_bytes: usize) -> Result<Vec<LogRecord>> {
        let failed = |error| Error::file(&self.path, error);
        if self.sound == 0 {
            let lost = self.expected;
            return Err(self.damaged(lost, format!("{lost} records of the file have no certain numbers")));
        }
        let mut file = open_to_read(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
        let part = file.take(self.limit.saturating_sub(self.offset));
        let mut lines = BufReader::with_capacity(64 * 1024, part);
        for _ in 0..self.skip {
            lines.skip_until(b'\n').map_err(failed)?;
        }
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        while (ends.len() as u64) < self.sound {
            let start = text.len();
            lines.read_until(b'\n', &mut text).map_err(failed)?;
            let line = text.get(start..).unwrap_or_default();
            let mut first = None;
            let checked = match line.strip_suffix(b"\n") {
                Some(line) => check_record(line).or_else(|reason| {
                    first = first_of_two(line).filter(|_| self.has_pairs);
                    first.map(drop).ok_or(reason)
                }),
                None => Err("the file ends before it".into()),
            };
            match checked {
                Err(reason) if ends.is_empty() => return Err(self.damaged(1, reason)),
                Ok(()) if ends.is_empty() || text.len() <= max_bytes => {
                    ends.extend(first.map(|first| start + first + 1));
                    ends.push(text.len());
                }
                // The next page begins with it.
                _ => {
                    text.truncate(start);
                    break;
                }
            }
        }
        let (mut page, mut room) = (Vec::with_capacity(ends.len()), usize::MAX);
        LineBatch::of_text(text, ends).page(self.first, 0, &mut room, &mut page);
        Ok(page)
    }

    fn damaged(&self, records: u64, reason: String) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            // The first line is the header.
            line: self.first.number() - self.segment_first.number() + 2,
            first: self.first,
            last: LogPosition::new(self.first.number() + records.saturating_sub(1)),
            reason,
        }
    }
}

/// The content with which a segment is created.
#[derive(Debug)]
pub(super) struct SegmentStart {
    text: Vec<u8>,
    index: SegmentIndex,
}

impl SegmentStart {
    /// Returns a header alone.
    pub(super) fn header(header: &Header, at: Duration, segment: &Segment) -> Result<Self> {
        let text = header_line(header, at, segment).map_err(|error| Error::file(segment.name(), error))?;
        Ok(SegmentStart { index: SegmentIndex::new(text.len() as u64), text })
    }

    /// Returns the content of a segment whose records are known.
    pub(super) fn copy(folder: &Path, segment: &Segment) -> Result<Self> {
        let path = segment.path(folder);
        let mut text = Vec::new();
        let read = open_to_read(&path).and_then(|file| file.take(segment.bytes).read_to_end(&mut text));
        read.map_err(|error| Error::file(&path, error))?;
        let index = segment.index.as_deref().cloned().unwrap_or_default();
        if text.len() as u64 != index.bytes {
            return Err(Error::Changed { path, expected: index.bytes, found: text.len() as u64 });
        }
        Ok(SegmentStart { text, index })
    }
}

/// Creates a segment that is on the disk, with its name. `records` follow its start.
pub(super) fn create_segment(
    folder: &Path,
    mut segment: Segment,
    start: SegmentStart,
    records: &[LogLine],
) -> Result<(File, Segment)> {
    let (new, path) = (folder.join(NEW), segment.path(folder));
    let SegmentStart { mut text, mut index } = start;
    for line in records {
        text.extend_from_slice(line.bytes());
        text.push(b'\n');
        index.add(line.written_len() as u64);
    }
    let written = || {
        remove_if_there(&new)?;
        let mut file = locked(private().append(true).create_new(true).open(&new)?, &new)?;
        file.write_all(&text)?;
        // The name appears when the content is on the disk, so no segment lacks its header.
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        if let Err(error) = sync_folder(folder) {
            // Records that go into the segment before this one would be hidden by its name.
            remove_if_there(&path)?;
            return Err(error);
        }
        Ok(file)
    };
    let file = written().map_err(|error| {
        let _ = remove_if_there(&new);
        Error::file(&path, error)
    })?;
    segment.bytes = index.bytes;
    segment.index = Some(Arc::new(index));
    Ok((file, segment))
}

/// Returns the first line of a segment. Behind other segments it is a record with an event that readers do not
/// know, so the segments in their order are one transcript, and each is one of its own.
fn header_line(header: &Header, at: Duration, segment: &Segment) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(header)?;
    line.pop();
    let (at, first, life) = (micros(at), segment.first, segment.life);
    writeln!(line, r#","at":{at},"log":{{"first":{first},"life":{life}}}}}"#)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_segment_has_its_first_record_and_its_life() {
        let segment = Segment::of_name("0000000000000812-3.jsonl", 0).expect("a segment");
        assert_eq!((segment.first.number(), segment.life), (812, 3));
        for other in [
            "18446744073709551615-9.jsonl",
            "812-3.jsonl",
            "0000000000000000-1.jsonl",
            "0000000000000812-3.jsonl.lost",
            ".new",
            "lock",
        ] {
            assert!(Segment::of_name(other, 0).is_none(), "{other}");
        }
    }

    #[test]
    fn a_record_is_found_from_the_point_before_it() {
        let mut index = SegmentIndex::new(100);
        for _ in 0..10_000 {
            index.add(50);
        }
        for record in [0, 1, 1310, 1311, 1312, 9_999] {
            let (offset, skip) = index.place(record);
            assert_eq!(offset + 50 * skip, 100 + 50 * record);
            assert!(50 * skip <= POINT_BYTES);
        }
    }

    #[test]
    fn a_scan_ends_at_the_first_hole_or_cut_line() {
        for (text, records, bytes) in [
            ("h\n", 0, 2),
            ("h\na\nb\n", 2, 6),
            ("h\na\nb", 1, 4),
            ("h\na\nb\0\0\nc\n", 1, 4),
            ("h\na\n\0\0\0\0", 1, 4),
        ] {
            for scan in [SegmentScan::count, SegmentScan::check] {
                let index = scan(text.as_bytes()).expect("read").index.expect("a header");
                assert_eq!((index.records, index.bytes), (records, bytes), "{text:?}");
            }
        }
        for text in ["", "h", "\0\nh\n"] {
            for scan in [SegmentScan::count, SegmentScan::check] {
                assert!(scan(text.as_bytes()).expect("read").index.is_none(), "{text:?}");
            }
        }
    }

    #[test]
    fn two_records_in_a_line_have_places() {
        let text = "h\n{}\n{\"a\":1}x{}\n{\"b\":2}\nx\0\n{}";
        let scan = SegmentScan::check(text.as_bytes()).expect("read");
        let index = scan.index.expect("a header");
        assert_eq!((index.records, index.bytes, scan.undamaged), (5, text.len() as u64 - 2, 1));
        let places = [0, 1, 2, 3, 4].map(|record| index.place(record));
        assert_eq!(places, [(2, 0), (2, 1), (13, 0), (16, 0), (16, 1)]);
    }
}
