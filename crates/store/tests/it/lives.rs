//! The lives of a log: their files, and the cursors of earlier ones.

use std::fs;

use duologue_store::{CursorGoneReason, Error, FileLog, Log, LogCursor, LogPosition, LogSettings};
use tempfile::tempdir;

use crate::support::{
    NAME, at, header, line, lines, numbers, open, read_from, root, segments, whole_transcript,
};

/// Segments up to a quarter of the size are continued by the next life.
fn of_size(segment_bytes: u64) -> LogSettings {
    let mut settings = LogSettings::default();
    settings.segment_bytes = segment_bytes;
    settings
}

fn reason(log: &FileLog, life: u32, position: u64) -> Option<CursorGoneReason> {
    match log.check(LogCursor { life, position: at(position) }) {
        Ok(checked) => {
            assert_eq!(checked, at(position));
            None
        }
        Err(Error::CursorGone { reason, .. }) => Some(reason),
        Err(error) => panic!("{error}"),
    }
}

/// Checks that all positions of a life are valid up to its end, and none behind it.
fn check_life(log: &FileLog, life: u32, end: u64) {
    for position in log.first().number() - 1..=log.end().number() + 1 {
        let expected = (position > end).then_some(CursorGoneReason::Lost { last: at(end) });
        assert_eq!(reason(log, life, position), expected, "life {life}, position {position}");
    }
}

#[test]
fn short_lives_share_files() {
    for segment_bytes in [64 << 20, 8000] {
        let folder = tempdir().expect("a folder");
        let (mut ends, mut bytes) = (Vec::new(), 0);
        for life in 1..=60 {
            let log = open(folder.path(), of_size(segment_bytes));
            assert_eq!(log.life(), life);
            // Some add nothing.
            let end = if life % 3 > 0 {
                log.append(&[line(life.into(), 300)]).expect("appended")
            } else {
                log.end()
            };
            ends.push((life, end.number()));
            bytes = log.bytes();
        }
        let short = (segment_bytes / 4).min(16 * 1024);
        let files = segments(folder.path());
        assert!(files.len() as u64 <= bytes / short + 1, "{} files for {bytes} bytes", files.len());
        let on_disk: u64 = files.iter().map(|file| fs::metadata(file).expect("a file").len()).sum();
        assert_eq!(on_disk, bytes);
        let expected = || (1..=60).filter(|life| life % 3 > 0);
        assert!(whole_transcript(folder.path()).into_iter().eq(expected()));
        let log = open(folder.path(), of_size(segment_bytes));
        assert!(numbers(&log).into_iter().eq(expected()));
        ends.into_iter().for_each(|(life, end)| check_life(&log, life, end));
        assert_eq!(reason(&log, 0, 1), Some(CursorGoneReason::UnknownLife));
        assert_eq!(reason(&log, 62, 1), Some(CursorGoneReason::UnknownLife));
    }
}

/// A life can end in a segment that it began late. The next life continues that one.
#[test]
fn a_life_is_known_when_its_first_file_was_removed() {
    let folder = tempdir().expect("a folder");
    let settings = || of_size(2000);
    let log = open(folder.path(), settings());
    let mut number = 1;
    while segments(folder.path()).len() < 3 {
        log.append(&lines([number])).expect("appended");
        number += 1;
    }
    let end = log.end().number();
    drop(log);
    let files = segments(folder.path()).len();
    let log = open(folder.path(), settings());
    assert_eq!(segments(folder.path()).len(), files);
    check_life(&log, 1, end);
    let first = log.remove_before(log.end()).expect("removed");
    assert_eq!((segments(folder.path()).len(), first.number() <= end), (1, true));
    check_life(&log, 1, end);
    assert_eq!(reason(&log, 1, first.number() - 2), Some(CursorGoneReason::Removed { first }));
    drop(log);
    let log = open(folder.path(), settings());
    check_life(&log, 1, end);
    check_life(&log, 2, end + 1);
    log.append(&[line(0, 2000)]).expect("appended");
    drop(log);
    let log = open(folder.path(), settings());
    let first = log.remove_before(log.end()).expect("removed");
    for life in [1, 2] {
        let expected = CursorGoneReason::Removed { first };
        assert_eq!(reason(&log, life, first.number() - 1), Some(expected));
    }
}

/// The file of the next life is on the disk before that of the life before is removed.
#[test]
fn a_crash_between_two_lives_leaves_each_record_once() {
    let folder = tempdir().expect("a folder");
    open(folder.path(), of_size(8000)).append(&lines(1..=5)).expect("appended");
    let before = segments(folder.path()).remove(0);
    let text = fs::read(&before).expect("a segment");
    for more in [0, 3] {
        let log = open(folder.path(), of_size(8000));
        let known: Vec<u64> = numbers(&log);
        log.append(&lines(10..10 + more)).expect("appended");
        let life = log.life();
        drop(log);
        fs::write(&before, &text).expect("both are there");
        let expected: Vec<u64> = known.into_iter().chain(10..10 + more).collect();
        let snapshot = root(folder.path(), of_size(8000)).snapshot(NAME).expect("a snapshot");
        let page = snapshot.read(LogPosition::START, usize::MAX).expect("a page");
        assert_eq!(page.records.len() as u64, snapshot.end().number());
        let log = open(folder.path(), of_size(8000));
        assert_eq!((log.life(), numbers(&log)), (life + 1, expected));
        assert!(!before.exists() && segments(folder.path()).len() == 1);
        check_life(&log, 1, 6);
    }
}

#[test]
fn a_snapshot_is_read_while_later_lives_begin() {
    let folder = tempdir().expect("a folder");
    open(folder.path(), of_size(8000)).append(&lines(1..=5)).expect("appended");
    let logs = root(folder.path(), of_size(8000));
    let snapshot = logs.snapshot(NAME).expect("a snapshot");
    for _ in 0..3 {
        logs.open(NAME, &header()).expect("a log").append(&lines([9])).expect("appended");
        let page = snapshot.read(at(1), usize::MAX).expect("a page");
        let texts: Vec<_> = page.records.iter().map(|record| record.line.clone()).collect();
        let expected: Vec<_> = lines(1..=5).iter().map(|line| line.bytes().clone()).collect();
        assert_eq!(texts, expected);
    }
}

/// The end of a life is not known if a record before it is damaged.
#[test]
fn a_cursor_is_refused_if_the_end_of_its_life_is_damaged() {
    let folder = tempdir().expect("a folder");
    for _ in 0..3 {
        open(folder.path(), of_size(8000)).append(&lines([1])).expect("appended");
    }
    let file = segments(folder.path()).remove(0);
    let text = fs::read_to_string(&file).expect("a segment");
    fs::write(&file, text.replace(r#""opened","life":2"#, r#""opened","life":x"#)).expect("damaged");
    let log = open(folder.path(), of_size(8000));
    assert_eq!(reason(&log, 1, 1), Some(CursorGoneReason::UnknownLife));
    let next = read_from(&log, at(3), 1000);
    assert_eq!(next.len() as u64, log.end().number() - 3, "the others are read");
}

#[test]
fn a_file_with_a_damaged_header_is_not_continued() {
    let folder = tempdir().expect("a folder");
    drop(open(folder.path(), of_size(8000)));
    open(folder.path(), of_size(8000)).append(&[line(1, 3000)]).expect("appended");
    drop(open(folder.path(), of_size(8000)));
    let files = segments(folder.path());
    let damaged = files.last().expect("a segment");
    let text = fs::read_to_string(damaged).expect("a segment");
    fs::write(damaged, text.replacen('{', "x", 1)).expect("damaged");
    let log = open(folder.path(), of_size(8000));
    assert_eq!(segments(folder.path()).len(), files.len() + 1);
    assert_eq!(numbers(&log), [1]);
}
