//! A power cut: of what follows the last sync, any part can be missing or zero.

use std::fs;
use std::path::Path;
use std::time::Duration;

use duologue_store::{CursorGoneReason, Error, Log, LogCursor, LogSettings};
use tempfile::tempdir;

use crate::support::{NAME, at, header, lines, numbers, open, root, segments, small, whole_transcript};

/// The records that were synced, and those that were accepted behind them.
const SYNCED: u64 = 5;
const ACCEPTED: u64 = 9;

/// Writes a log and returns its newest segment with the length that was synced.
fn written(folder: &Path) -> (Vec<u8>, usize) {
    let log = open(folder, small());
    log.append(&lines(1..=SYNCED)).expect("appended");
    log.sync().expect("synced");
    let path = segments(folder).remove(0);
    let synced = fs::metadata(&path).expect("a segment").len();
    log.append(&lines(SYNCED + 1..=ACCEPTED)).expect("appended");
    (fs::read(path).expect("a segment"), synced as usize)
}

/// Opens a log after a power cut. `text` is what is left of its newest segment. With the small settings each life has
/// segments of its own.
fn after_power_cut(name: &str, text: &[u8], settings: &LogSettings) {
    let folder = tempdir().expect("a folder");
    fs::create_dir(folder.path().join(NAME)).expect("a folder");
    fs::write(folder.path().join(NAME).join(name), text).expect("a segment");
    let log = open(folder.path(), settings.clone());
    let found = numbers(&log);
    let kept = (1..).zip(&found).take_while(|(number, found)| number == *found).count() as u64;
    assert!(kept >= SYNCED && found.is_sorted() && found.iter().all(|it| *it <= ACCEPTED), "{found:?}");
    let moved = log.recovery().moved_records;
    assert_eq!(moved, found.len() as u64 - kept);
    assert_eq!(log.life(), 2);
    assert_eq!(log.recovery().end, at(kept + 1), "behind the record that began the life");

    // Others take the numbers of the lost records.
    log.append(&lines(100..=100 + ACCEPTED)).expect("appended");
    log.sync().expect("synced");
    drop(log);
    let log = open(folder.path(), settings.clone());
    let last = at(kept + 1);
    for position in 0..=ACCEPTED + 1 {
        let checked = log.check(LogCursor { life: 1, position: at(position) });
        match checked {
            Ok(_) => assert!(position <= last.number(), "record {position} is another one now"),
            Err(Error::CursorGone { reason, .. }) => {
                assert!(position > last.number());
                assert_eq!(reason, CursorGoneReason::Lost { last });
            }
            Err(error) => panic!("{error}"),
        }
    }
    let behind = at(log.end().number() + 1);
    assert!(matches!(log.read(behind, 1000), Err(Error::CursorGone { .. })), "{behind:?} is not there");
    let expected: Vec<u64> = found.into_iter().chain(100..=100 + ACCEPTED).collect();
    assert_eq!(numbers(&log), expected);
    assert_eq!(whole_transcript(folder.path()), expected);
}

/// Plays a power cut at each byte behind the last sync.
fn at_each_byte(cut: impl Fn(&mut Vec<u8>, usize)) {
    let folder = tempdir().expect("a folder");
    let (text, synced) = written(folder.path());
    let path = segments(folder.path()).remove(0);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    for place in synced..=text.len() {
        let mut text = text.clone();
        cut(&mut text, place);
        for settings in [small(), LogSettings::default()] {
            after_power_cut(name, &text, &settings);
        }
    }
}

#[test]
fn the_end_is_missing() {
    at_each_byte(|text, place| text.truncate(place));
}

#[test]
fn the_end_is_zero() {
    at_each_byte(|text, place| text[place..].fill(0));
}

#[test]
fn blocks_behind_the_end_are_zero() {
    at_each_byte(|text, place| {
        text.truncate(place);
        text.resize(place + 4096, 0);
    });
}

/// Later blocks may have reached the disk before earlier ones.
#[test]
fn a_block_in_the_middle_is_zero() {
    at_each_byte(|text, place| {
        let end = (place + 40).min(text.len());
        text[place..end].fill(0);
    });
}

/// A segment appears with its content, so a half-made one has another name.
#[test]
fn a_segment_that_was_being_created_is_removed() {
    let folder = tempdir().expect("a folder");
    let (text, synced) = written(folder.path());
    for part in [0, 10, synced, text.len()] {
        let new = folder.path().join(NAME).join(".new");
        fs::write(&new, &text[..part]).expect("a file");
        let log = open(folder.path(), small());
        assert!(!new.exists());
        assert!(numbers(&log).into_iter().eq(1..=ACCEPTED));
    }
}

/// The segments before the newest are synced, so a gap is only possible in the newest.
#[test]
fn older_segments_are_whole_when_the_newest_is_lost() {
    let folder = tempdir().expect("a folder");
    let log = open(folder.path(), small());
    for number in 1..=100 {
        log.append(&lines([number])).expect("appended");
    }
    let cursor = log.cursor(log.end());
    drop(log);
    let newest = segments(folder.path()).pop().expect("a segment");
    let header = fs::read(&newest).expect("it").iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    fs::File::options().write(true).open(&newest).expect("it").set_len(header as u64).expect("cut");
    let log = open(folder.path(), small());
    let found = numbers(&log);
    assert!(found.len() > 50 && found.len() < 100 && found.iter().copied().eq(1..=found.len() as u64));
    assert!(matches!(log.check(cursor), Err(Error::CursorGone { .. })));
    log.append(&lines([0])).expect("appended");
    assert_eq!(numbers(&open_again(folder.path(), log)).len(), found.len() + 1);
}

fn open_again(folder: &Path, log: duologue_store::FileLog) -> duologue_store::FileLog {
    drop(log);
    open(folder, small())
}

/// The next append opens a closed file again.
#[test]
fn a_log_whose_file_is_closed_goes_on() {
    let folder = tempdir().expect("a folder");
    let logs = root(folder.path(), small());
    let log = logs.open(NAME, &header()).expect("a log");
    for number in 1..=ACCEPTED {
        log.append(&lines([number])).expect("appended");
        logs.close_idle(Duration::ZERO);
        assert_eq!(logs.open_files(), 0);
    }
    drop((log, logs));
    assert!(numbers(&open(folder.path(), small())).into_iter().eq(1..=ACCEPTED));
}
