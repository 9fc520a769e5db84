//! Damaged files of a log: each record is read under its own number or reported, and the log goes on behind them.

use std::fs;
use std::path::{Path, PathBuf};

use duologue_store::transcript::Header;
use duologue_store::{Error, FileLog, Log, LogLine, LogPosition, LogRoot, LogSettings};

use crate::input::Input;

const NAME: &str = "session";
/// The records of the log, without those that begin a life.
const RECORDS: u64 = 24;
/// The changes to its files.
const EDITS: usize = 6;

/// A record of the log: its number and its text.
type Read = (u64, Vec<u8>);

/// Changes, a few bytes each.
pub fn check(input: &[u8]) {
    let folder = tempfile::tempdir_in(memory()).expect("a folder");
    let log = open(folder.path()).expect("a new log");
    for number in 2..2 + RECORDS {
        log.append(&[line(number)]).expect("appended");
    }
    drop(log);

    let mut input = Input::new(input);
    let segments = segments(folder.path());
    let mut changed = vec![false; segments.len()];
    for _ in 0..EDITS {
        if input.is_empty() {
            break;
        }
        let segment = input.below(segments.len());
        changed[segment] = true;
        edit(&segments[segment], &mut input);
    }

    let log = match open(folder.path()) {
        Ok(log) => log,
        Err(error) => panic!("{error}"),
    };
    let before = read(&log);
    for (number, text) in &before {
        let segment = segments.iter().rposition(|path| first(path) <= *number).expect("a segment");
        if !changed[segment] && (2..2 + RECORDS).contains(number) {
            assert_eq!(text, line(*number).bytes(), "record {number}");
        }
    }
    let end = log.append(&[line(1000)]).expect("appended");
    assert_eq!(end, log.end());
    drop(log);
    let after = read(&open(folder.path()).expect("it was open before"));
    assert_eq!(after[..before.len()], before);
    assert_eq!(after[before.len()], (end.number(), line(1000).bytes().to_vec()));
}

/// A file system in memory, where there is one.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

fn line(number: u64) -> LogLine {
    LogLine::new(format!(r#"{{"at":{number},"stderr":"record {number}"}}"#)).expect("a line")
}

fn open(folder: &Path) -> Result<FileLog, Error> {
    let mut settings = LogSettings::default();
    settings.segment_bytes = 300;
    settings.tail_bytes = 100;
    LogRoot::new(folder, settings)?.open(NAME, &Header::new("duologue-fuzz"))
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(NAME)).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    paths.sort();
    paths
}

/// Returns the number of the first record of a segment, with which its name begins.
fn first(path: &Path) -> u64 {
    let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let (first, _) = name.split_once('-').expect("a number and a life");
    first.parse().expect("a number")
}

/// Changes a file: other bytes, more or fewer of them, or an earlier end.
fn edit(path: &Path, input: &mut Input<'_>) {
    let mut text = fs::read(path).expect("a segment");
    let place = input.below(256) * (text.len() + 1) / 256;
    let length = input.below(16);
    let end = (place + length).min(text.len());
    match input.below(4) {
        0 => drop(text.splice(place..end, input.take(length).to_vec())),
        1 => drop(text.splice(place..place, input.take(length).to_vec())),
        2 => drop(text.drain(place..end)),
        _ => text.truncate(place),
    }
    fs::write(path, text).expect("written");
}

/// Reads all records. Each number is read or reported as damaged, once and in order.
fn read(log: &FileLog) -> Vec<Read> {
    let (mut after, mut records) = (LogPosition::START, Vec::new());
    while after < log.end() {
        match log.read(after, 200) {
            Ok(page) => {
                assert!(!page.records.is_empty(), "nothing behind {after}");
                for record in page.records {
                    assert_eq!(record.position.number(), after.number() + 1);
                    after = record.position;
                    records.push((after.number(), record.line.to_vec()));
                }
            }
            Err(Error::Damaged { first, last, .. }) => {
                assert_eq!(first.number(), after.number() + 1);
                assert!(last >= first && last <= log.end());
                after = last;
            }
            Err(error) => panic!("{error}"),
        }
    }
    records
}
