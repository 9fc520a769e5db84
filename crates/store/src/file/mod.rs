//! A log in files.

mod recover;
mod segment;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use duologue_rpc::Lock as _;
use duologue_transcript::Header;

use crate::disk::{length_at, open_ordinary, remove_if_there};
use crate::error::{CursorGoneReason, Error, Result};
use crate::line::{LogLine, time_of};
use crate::log::{Log, LogPage};
use crate::position::{LogCursor, LogPosition};
use crate::root::{NameGuard, RootShared};
use crate::settings::LogSettings;
use crate::tail::{LineBatch, Tail, TailPage};
use recover::EarlierLives;
pub use recover::LogRecovery;
use segment::{PagePlace, SHORT_BYTES, Segment, SegmentStart, create_segment, index_segment, open_to_append};

/// A log in the files of a folder, opened with [`LogRoot::open`](crate::LogRoot::open).
///
/// Clones are the same log. Its file is closed when many other logs are written, and opened again by the next
/// append.
#[derive(Clone, Debug)]
pub struct FileLog(Arc<FileLogInner>);

#[derive(Debug)]
pub(crate) struct FileLogInner {
    root: Arc<RootShared>,
    /// Keeps the log from being opened twice.
    name: NameGuard,
    folder: PathBuf,
    header: Header,
    life: u32,
    opened_at: Duration,
    opened: Instant,
    recovery: LogRecovery,
    /// The time of the last use, in milliseconds since the folder was opened.
    used: AtomicU64,
    has_file: AtomicBool,
    /// Locked during writes, and before `state` where both are needed.
    writer: Mutex<SegmentWriter>,
    /// Never locked while a file is read or written.
    state: Mutex<FileLogState>,
}

#[derive(Debug, Default)]
struct SegmentWriter {
    /// The newest segment, if it is open.
    file: Option<Arc<File>>,
    /// The file may be longer than its accepted records, since removing a part of a batch has failed.
    is_longer: bool,
    /// The error of a sync.
    failed: Option<Arc<io::Error>>,
}

#[derive(Debug)]
struct FileLogState {
    /// The segments in order, at least one.
    segments: Vec<Segment>,
    /// The bytes of all of them.
    bytes: u64,
    end: LogPosition,
    synced: LogPosition,
    tail: Tail,
}

/// The source of a page.
enum PageSource {
    Tail(TailPage),
    File(PagePlace),
    /// A segment whose records have not been counted.
    Unknown {
        path: PathBuf,
        first: LogPosition,
        expected: u64,
    },
}

impl FileLog {
    /// Opens the log of a folder and begins a life.
    pub(crate) fn open(
        root: Arc<RootShared>,
        name: NameGuard,
        folder: PathBuf,
        header: &Header,
    ) -> Result<Self> {
        let lives = EarlierLives::open(&folder)?;
        let EarlierLives { mut segments, has_header, life: before, at, report, .. } = lives;
        let header = lives.header.unwrap_or_else(|| header.clone());
        let opened_at = SystemTime::now().duration_since(header.started).unwrap_or_default().max(at);
        let life = before.saturating_add(1);
        let first = LogPosition::new(report.end.number() + 1);
        let mut records = lives.moved;
        records.insert(0, LogLine::opened(opened_at, life));
        let end = LogPosition::new(report.end.number() + records.len() as u64);
        let short = SHORT_BYTES.min(root.settings.segment_bytes / 4);
        let replaced = segments.pop_if(|newest| has_header && newest.life < life && newest.bytes <= short);
        let mut segment = Segment { first, life, bytes: 0, index: None };
        let start = match &replaced {
            Some(older) => {
                segment.first = older.first;
                SegmentStart::copy(&folder, older)?
            }
            None => SegmentStart::header(&header, opened_at, &segment)?,
        };
        let (file, segment) = create_segment(&folder, segment, start, &records)?;
        for (path, length) in lives.cuts {
            // The bytes are not read again if that fails: the segment ends where this one begins.
            let _ = cut(&path, length);
        }
        if let Some(older) = replaced {
            // The next start removes it if that fails now.
            let _ = remove_if_there(&older.path(&folder));
        }
        segments.push(segment);
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let state = FileLogState { segments, bytes, end, synced: end, tail: Tail::default() };
        let inner = Arc::new(FileLogInner {
            used: AtomicU64::new(root.now()),
            root,
            name,
            folder,
            header,
            life,
            opened_at,
            opened: Instant::now(),
            recovery: report,
            has_file: AtomicBool::new(false),
            writer: Mutex::default(),
            state: Mutex::new(state),
        });
        inner.root.register(&inner.name, &inner);
        inner.writer.lock_unpoisoned().file = Some(inner.opened(file));
        Ok(FileLog(inner))
    }

    /// Reads records behind a position as [`read`](Log::read), if the first of them is in memory. It does not block.
    #[must_use]
    pub fn read_tail(&self, after: LogPosition, max_bytes: usize) -> Option<LogPage> {
        self.0.read_tail(after, max_bytes)
    }

    /// Returns the time of a record that is written now, since the start in the header. It continues
    /// [`opened_at`](Log::opened_at) by a monotonic clock.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.0.opened_at + self.0.opened.elapsed()
    }

    /// Returns the report of the repair when the log was opened.
    #[must_use]
    pub fn recovery(&self) -> &LogRecovery {
        &self.0.recovery
    }

    /// Returns the folder of the log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Returns the bytes of the log on the disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.state.lock_unpoisoned().bytes
    }

    /// Returns the bytes of the newest records that the log keeps in memory.
    #[must_use]
    pub fn tail_bytes(&self) -> usize {
        self.0.state.lock_unpoisoned().tail.memory()
    }
}

impl FileLogInner {
    /// Counts an open file, and closes those of other logs if there are too many.
    fn opened(&self, file: File) -> Arc<File> {
        self.has_file.store(true, Ordering::Relaxed);
        self.root.file_opened(self);
        Arc::new(file)
    }

    /// Returns the time of the last use, unless the log has no open file.
    pub(crate) fn open_since(&self) -> Option<u64> {
        self.has_file.load(Ordering::Relaxed).then(|| self.last_use())
    }

    pub(crate) fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn touch(&self) {
        self.used.store(self.root.now(), Ordering::Relaxed);
    }

    /// Closes the file, unless it is in use. Returns true if it was open.
    pub(crate) fn close_file(&self) -> bool {
        let Ok(mut writer) = self.writer.try_lock() else { return false };
        // A file that is being synced is still open and locked after it was closed here.
        if writer.file.as_ref().is_none_or(|file| Arc::strong_count(file) > 1) {
            return false;
        }
        writer.file = None;
        self.has_file.store(false, Ordering::Relaxed);
        self.root.file_closed();
        true
    }

    /// Removes from memory what can be read from the files.
    pub(crate) fn free_memory(&self) {
        let mut state = self.state.lock_unpoisoned();
        self.resize_tail(&mut state, |tail| tail.shrink(0));
        if let Some((_newest, older)) = state.segments.split_last_mut() {
            older.iter_mut().for_each(|segment| segment.index = None);
        }
    }

    /// Changes the tail, and counts its memory with that of the other logs.
    fn resize_tail(&self, state: &mut FileLogState, change: impl FnOnce(&mut Tail)) {
        let before = state.tail.memory();
        change(&mut state.tail);
        let too_much = self.root.tails_changed(before, state.tail.memory());
        if too_much && state.tail.memory() > LogSettings::SMALL_TAIL_BYTES {
            let before = state.tail.memory();
            state.tail.shrink(LogSettings::SMALL_TAIL_BYTES);
            self.root.tails_changed(before, state.tail.memory());
        }
    }

    fn append(&self, lines: &[LogLine], limit: u64) -> Result<LogPosition> {
        self.touch();
        let mut writer = self.writer.lock_unpoisoned();
        if lines.is_empty() {
            return Ok(self.state.lock_unpoisoned().end);
        }
        self.check_failed(&writer)?;
        let batch = Arc::new(LineBatch::of(lines));
        let more = batch.text.len() as u64;
        let (size, active, header) = {
            let state = self.state.lock_unpoisoned();
            let newest = state.newest();
            let header = newest.and_then(|it| it.index.as_ref()).map_or(0, |index| index.place(0).0);
            (state.bytes, newest.map_or(0, |newest| newest.bytes), header)
        };
        let begins_segment =
            active > header && active.saturating_add(more) > self.root.settings.segment_bytes;
        if size.saturating_add(more).saturating_add(if begins_segment { header } else { 0 }) > limit {
            let limit = self.root.settings.log_bytes;
            return Err(Error::LogFull { size, more, limit, setting: "LogSettings::log_bytes" });
        }
        if begins_segment {
            let at = lines.first().and_then(|line| time_of(line.bytes())).unwrap_or(self.opened_at);
            self.begin_segment(&mut writer, at)?;
        }
        let (file, length) = self.active(&mut writer)?;
        if let Err(error) = write_all(&file, &batch.text) {
            // The next append removes it if that fails now.
            writer.is_longer = file.set_len(length).is_err();
            return Err(Error::file(self.newest_path(), error));
        }
        let mut state = self.state.lock_unpoisoned();
        let first = LogPosition::new(state.end.number() + 1);
        state.end = LogPosition::new(state.end.number() + lines.len() as u64);
        state.bytes += more;
        if let Some(newest) = state.segments.last_mut() {
            newest.bytes += more;
            let index = Arc::make_mut(newest.index.get_or_insert_default());
            lines.iter().for_each(|line| index.add(line.written_len() as u64));
        }
        let most = self.root.settings.tail_bytes;
        self.resize_tail(&mut state, |tail| {
            tail.push(first, batch);
            tail.shrink(most);
        });
        Ok(state.end)
    }

    fn check_failed(&self, writer: &SegmentWriter) -> Result<()> {
        let Some(error) = &writer.failed else { return Ok(()) };
        Err(Error::SyncFailed { path: self.folder.clone(), error: error.clone() })
    }

    /// Returns an error if another program has removed, replaced or changed the newest segment while it is open.
    fn check_changed(&self, file: &File, expected: u64) -> Result<()> {
        let path = self.newest_path();
        let found = length_at(&path, file).map_err(|error| Error::file(&path, error))?;
        if found == expected { Ok(()) } else { Err(Error::Changed { path, expected, found }) }
    }

    fn newest_path(&self) -> PathBuf {
        self.state.lock_unpoisoned().newest().map(|newest| newest.path(&self.folder)).unwrap_or_default()
    }

    /// Returns the newest segment and its length, and opens it if it is closed.
    fn active(&self, writer: &mut SegmentWriter) -> Result<(Arc<File>, u64)> {
        let length = self.state.lock_unpoisoned().newest().map_or(0, |newest| newest.bytes);
        let file = match &writer.file {
            Some(file) => file.clone(),
            None => {
                let path = self.newest_path();
                let file = open_to_append(&path)?;
                let found = file.metadata().map_err(|error| Error::file(&path, error))?.len();
                if found != length && !(writer.is_longer && found > length) {
                    return Err(Error::Changed { path, expected: length, found });
                }
                writer.file.insert(self.opened(file)).clone()
            }
        };
        if writer.is_longer {
            file.set_len(length).map_err(|error| Error::file(self.newest_path(), error))?;
            writer.is_longer = false;
        }
        Ok((file, length))
    }

    /// Syncs the newest segment and begins another.
    fn begin_segment(&self, writer: &mut SegmentWriter, at: Duration) -> Result<()> {
        let end = self.state.lock_unpoisoned().end;
        let (file, length) = self.active(writer)?;
        self.check_changed(&file, length)?;
        // Without this a power cut could leave a hole before the new segment.
        if let Err(error) = file.sync_all() {
            return Err(self.sync_failed(writer, error));
        }
        let first = LogPosition::new(end.number() + 1);
        let segment = Segment { first, life: self.life, bytes: 0, index: None };
        let start = SegmentStart::header(&self.header, at, &segment)?;
        let (file, segment) = create_segment(&self.folder, segment, start, &[])?;
        writer.file = Some(Arc::new(file));
        let mut state = self.state.lock_unpoisoned();
        state.bytes += segment.bytes;
        state.synced = end;
        state.segments.push(segment);
        Ok(())
    }

    fn sync_failed(&self, writer: &mut SegmentWriter, error: io::Error) -> Error {
        let error = Arc::new(error);
        writer.failed = Some(error.clone());
        Error::SyncFailed { path: self.folder.clone(), error }
    }

    fn sync(&self) -> Result<LogPosition> {
        let (file, end) = {
            let mut writer = self.writer.lock_unpoisoned();
            self.check_failed(&writer)?;
            let (end, synced) = {
                let state = self.state.lock_unpoisoned();
                (state.end, state.synced)
            };
            if synced == end {
                return Ok(end);
            }
            let (file, length) = self.active(&mut writer)?;
            self.check_changed(&file, length)?;
            (file, end)
        };
        // Appends may go on meanwhile.
        if let Err(error) = file.sync_data() {
            return Err(self.sync_failed(&mut self.writer.lock_unpoisoned(), error));
        }
        let mut state = self.state.lock_unpoisoned();
        state.synced = state.synced.max(end);
        Ok(state.synced)
    }

    fn read_tail(&self, after: LogPosition, max_bytes: usize) -> Option<LogPage> {
        let (page, end) = {
            let state = self.state.lock_unpoisoned();
            if state.gone(after).is_err() || after == state.end {
                return None;
            }
            match state.source(&self.folder, after, max_bytes) {
                PageSource::Tail(page) => (page, state.end),
                PageSource::File(_) | PageSource::Unknown { .. } => return None,
            }
        };
        Some(LogPage { records: page.records(max_bytes), end })
    }

    fn read(&self, after: LogPosition, max_bytes: usize) -> Result<LogPage> {
        self.touch();
        read_page(&self.folder, &self.state, after, max_bytes)
    }

    fn check(&self, cursor: LogCursor) -> Result<LogPosition> {
        let LogCursor { life, position } = cursor;
        let gone = |reason| Err(Error::CursorGone { position, reason });
        let (first, end) = {
            let state = self.state.lock_unpoisoned();
            if life == self.life {
                return state.gone(position).map(|()| position);
            }
            (state.first(), state.end_of_life(life))
        };
        if position.number().saturating_add(1) < first.number() {
            return gone(CursorGoneReason::Removed { first });
        }
        let Some(segment) = end.filter(|_| life > 0) else { return gone(CursorGoneReason::UnknownLife) };
        let end = match segment.life_end(&self.folder, life) {
            // The segment may have been removed in the meantime.
            Err(error) => return self.state.lock_unpoisoned().gone(position).and(Err(error)),
            Ok(end) => end,
        };
        let is_oldest = segment.first == first;
        // The oldest segment also begins with the rest of the life before the first one that began in it.
        match end.filter(|(begun, _)| !is_oldest || *begun <= life.saturating_add(1)) {
            Some((_, last)) => {
                if position > last {
                    return gone(CursorGoneReason::Lost { last });
                }
                Ok(position)
            }
            None if is_oldest && first > LogPosition::new(1) => gone(CursorGoneReason::Removed { first }),
            None => gone(CursorGoneReason::UnknownLife),
        }
    }

    fn remove_before(&self, keep: LogPosition) -> Result<LogPosition> {
        // No segment begins meanwhile.
        let _writer: MutexGuard<'_, SegmentWriter> = self.writer.lock_unpoisoned();
        let (removed, first) = {
            let mut state = self.state.lock_unpoisoned();
            let old = state
                .segments
                .iter()
                .skip(1)
                .take_while(|next| next.first <= keep && next.first <= state.end);
            let count = old.count();
            let removed: Vec<Segment> = state.segments.drain(..count).collect();
            state.bytes -= removed.iter().map(|segment| segment.bytes).sum::<u64>();
            (removed, state.first())
        };
        for segment in removed {
            let path = segment.path(&self.folder);
            remove_if_there(&path).map_err(|error| Error::file(path, error))?;
        }
        Ok(first)
    }
}

/// Reads a page without a lock during the work with files.
fn read_page(
    folder: &Path,
    shared: &Mutex<FileLogState>,
    after: LogPosition,
    max_bytes: usize,
) -> Result<LogPage> {
    loop {
        let (source, end) = {
            let state = shared.lock_unpoisoned();
            state.gone(after)?;
            if after == state.end {
                return Ok(LogPage { records: Vec::new(), end: after });
            }
            (state.source(folder, after, max_bytes), state.end)
        };
        let read = match source {
            PageSource::Tail(page) => Ok(page.records(max_bytes)),
            PageSource::File(place) => place.read(max_bytes),
            PageSource::Unknown { path, first, expected } => match index_segment(&path, expected) {
                Ok(index) => {
                    let mut state = shared.lock_unpoisoned();
                    if let Some(segment) = state.segments.iter_mut().find(|it| it.path(folder) == path) {
                        debug_assert_eq!(segment.first, first);
                        segment.index = Some(Arc::new(index));
                    }
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        return match read {
            Ok(records) => Ok(LogPage { records, end }),
            // The segment may have been removed in the meantime.
            Err(error) => shared.lock_unpoisoned().gone(after).and(Err(error)),
        };
    }
}

/// The records of a log at one time, for reading. It begins no life of the log, repairs nothing and writes nothing.
///
/// Another process or task can have the log open at the same time. Records that it appends later are not seen.
#[derive(Debug)]
pub struct LogSnapshot {
    folder: PathBuf,
    state: Mutex<FileLogState>,
}

impl LogSnapshot {
    pub(crate) fn of(folder: PathBuf) -> Result<Self> {
        let (segments, end) = recover::readable_segments(&folder)?;
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let state = FileLogState { segments, bytes, end, synced: end, tail: Tail::default() };
        Ok(LogSnapshot { folder, state: Mutex::new(state) })
    }

    /// Reads records behind a position, as [`Log::read`].
    ///
    /// # Errors
    ///
    /// As [`Log::read`], and [`Error::File`] if the log was removed in the meantime.
    pub fn read(&self, after: LogPosition, max_bytes: usize) -> Result<LogPage> {
        read_page(&self.folder, &self.state, after, max_bytes)
    }

    /// Returns the position of the last record.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.state.lock_unpoisoned().end
    }
}

impl FileLogState {
    fn newest(&self) -> Option<&Segment> {
        self.segments.last()
    }

    fn first(&self) -> LogPosition {
        self.segments.first().map(|segment| segment.first).unwrap_or_default()
    }

    /// Returns an error if the records behind a position are not there.
    fn gone(&self, position: LogPosition) -> Result<()> {
        let reason = if position > self.end {
            CursorGoneReason::BehindEnd { end: self.end }
        } else if position.number() + 1 < self.first().number() {
            CursorGoneReason::Removed { first: self.first() }
        } else {
            return Ok(());
        };
        Err(Error::CursorGone { position, reason })
    }

    /// Returns the source of the page behind a position that is not the end.
    fn source(&self, folder: &Path, after: LogPosition, max_bytes: usize) -> PageSource {
        if let Some(page) = self.tail.page(after, max_bytes) {
            return PageSource::Tail(page);
        }
        let first = LogPosition::new(after.number() + 1);
        // Of segments with the same first record, all but the last are empty.
        let next = self.segments.partition_point(|segment| segment.first <= first);
        let behind = self.segments.get(next).map_or(self.end.number() + 1, |next| next.first.number());
        let segment = next.checked_sub(1).and_then(|it| self.segments.get(it));
        let (path, segment_first) = segment.map(|it| (it.path(folder), it.first)).unwrap_or_default();
        let Some((segment, index)) = segment.and_then(|it| Some((it, it.index.as_deref()?))) else {
            return PageSource::Unknown {
                path,
                first: segment_first,
                expected: behind - segment_first.number(),
            };
        };
        let record = first.number() - segment.first.number();
        let (offset, skip) = index.place(record);
        let (sound, expected) = index.readable(record, behind - segment.first.number());
        PageSource::File(PagePlace {
            path,
            segment_first,
            first,
            offset,
            skip,
            limit: index.bytes,
            has_pairs: index.has_pairs,
            sound,
            expected,
        })
    }

    /// Returns the segment with the end of an earlier life. That is the first one in which a later life began.
    fn end_of_life(&self, life: u32) -> Option<Segment> {
        self.segments.iter().find(|segment| segment.life > life).cloned()
    }
}

/// Removes what follows the records of a segment, and a segment without records.
fn cut(path: &Path, length: u64) -> io::Result<()> {
    match length {
        0 => remove_if_there(path),
        length => open_ordinary(path, OpenOptions::new().write(true))?.set_len(length),
    }
}

/// Writes all bytes. Most batches take one write.
fn write_all(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Drop for FileLogInner {
    fn drop(&mut self) {
        if self.has_file.load(Ordering::Relaxed) {
            self.root.file_closed();
        }
        self.root.tails_changed(self.state.lock_unpoisoned().tail.memory(), 0);
    }
}

impl Log for FileLog {
    fn header(&self) -> &Header {
        &self.0.header
    }

    fn life(&self) -> u32 {
        self.0.life
    }

    fn opened_at(&self) -> Duration {
        self.0.opened_at
    }

    fn append(&self, lines: &[LogLine]) -> Result<LogPosition> {
        self.0.root.require_room(lines.iter().map(|line| line.written_len() as u64).sum())?;
        self.0.append(lines, self.0.root.settings.log_bytes)
    }

    fn append_reserved(&self, lines: &[LogLine]) -> Result<LogPosition> {
        self.0.append(lines, self.0.root.settings.log_bytes.saturating_add(LogSettings::RESERVE_BYTES))
    }

    fn sync(&self) -> Result<LogPosition> {
        self.0.sync()
    }

    fn read(&self, after: LogPosition, max_bytes: usize) -> Result<LogPage> {
        self.0.read(after, max_bytes)
    }

    fn first(&self) -> LogPosition {
        self.0.state.lock_unpoisoned().first()
    }

    fn end(&self) -> LogPosition {
        self.0.state.lock_unpoisoned().end
    }

    fn check(&self, cursor: LogCursor) -> Result<LogPosition> {
        self.0.check(cursor)
    }

    fn remove_before(&self, keep: LogPosition) -> Result<LogPosition> {
        self.0.remove_before(keep)
    }
}
