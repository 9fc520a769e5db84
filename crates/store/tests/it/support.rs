//! Records with numbers, and readers that check them.

use std::fs;
use std::path::{Path, PathBuf};

use duologue_store::transcript::{Header, Record, RecordEvent, Transcript};
use duologue_store::{FileLog, Log, LogLine, LogPosition, LogRoot, LogSettings};

pub(crate) const NAME: &str = "session";

pub(crate) fn at(number: u64) -> LogPosition {
    LogPosition::new(number)
}

pub(crate) fn header() -> Header {
    Header::new("duologue-store tests")
}

/// Returns a record with a number and some padding.
pub(crate) fn line(number: u64, padding: usize) -> LogLine {
    let text = format!(r#"{{"at":{number},"stderr":"{number} {}"}}"#, "x".repeat(padding));
    LogLine::new(text).expect("a line")
}

pub(crate) fn lines(numbers: impl IntoIterator<Item = u64>) -> Vec<LogLine> {
    numbers.into_iter().map(|number| line(number, 0)).collect()
}

/// Returns the number of a record of [`line`].
fn number(record: &Record) -> Option<u64> {
    match &record.event {
        RecordEvent::Stderr(text) => text.split_once(' ').and_then(|(number, _)| number.parse().ok()),
        _ => None,
    }
}

/// Reads a log from a position to its end in pages, and checks that the positions have no gap.
pub(crate) fn read_from(log: &dyn Log, after: LogPosition, max_bytes: usize) -> Vec<Vec<u8>> {
    let (mut after, mut records) = (after, Vec::new());
    loop {
        let page = log.read(after, max_bytes).expect("a page");
        let Some(last) = page.last() else {
            assert_eq!(after, page.end);
            return records;
        };
        for record in page.records {
            assert_eq!(record.position.number(), after.number() + 1);
            after = record.position;
            records.push(record.line.to_vec());
        }
        assert_eq!(after, last);
    }
}

/// Returns the numbers of the records of a log, without those that begin a life.
pub(crate) fn numbers(log: &dyn Log) -> Vec<u64> {
    let mut text = serde_json::to_string(log.header()).expect("a header");
    for record in read_from(log, at(log.first().number() - 1), 1000) {
        text = text + "\n" + std::str::from_utf8(&record).expect("UTF-8");
    }
    let transcript = Transcript::read(text.as_bytes()).expect("a transcript");
    assert!(!transcript.is_cut());
    transcript.records().iter().filter_map(number).collect()
}

pub(crate) fn small() -> LogSettings {
    let mut settings = LogSettings::default();
    settings.segment_bytes = 1000;
    settings.tail_bytes = 500;
    settings
}

pub(crate) fn root(folder: &Path, settings: LogSettings) -> LogRoot {
    LogRoot::new(folder, settings).expect("a folder of logs")
}

/// Opens the only log of a folder.
pub(crate) fn open(folder: &Path, settings: LogSettings) -> FileLog {
    root(folder, settings).open(NAME, &header()).expect("a log")
}

/// Returns the segments of a log in their order.
pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(NAME)).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    paths.sort();
    paths
}

/// Checks that each segment is a transcript, and that all of them in their order are one. Returns its numbers.
pub(crate) fn whole_transcript(folder: &Path) -> Vec<u64> {
    let mut text = Vec::new();
    for path in segments(folder) {
        assert!(!Transcript::load(&path).expect("a transcript").is_cut(), "{}", path.display());
        text.extend(fs::read(path).expect("a segment"));
    }
    let transcript = Transcript::read(text.as_slice()).expect("a transcript");
    assert!(!transcript.is_cut());
    transcript.records().iter().filter_map(number).collect()
}

/// Creates a pipe. Nobody opens its other end, so a program that waits for it waits for ever.
#[cfg(unix)]
pub(crate) fn pipe(path: &Path) {
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a pipe");
}
