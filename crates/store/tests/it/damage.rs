//! Damage in the middle of a log, which is reported and never renumbers other records.

use std::fs;
use std::path::Path;

use duologue_store::{Error, Log, LogCursor, LogPosition, LogRecovery, LogSettings};
use tempfile::tempdir;

use crate::support::{NAME, at, line, lines, numbers, open, root, segments, small};

/// Records with their positions.
type Records = Vec<(u64, String)>;

/// The first and the last damaged record, and the line.
type Reports = Vec<(u64, u64, u64)>;

/// Reads all records and all reports of damage.
fn read(log: &dyn Log) -> (Records, Reports) {
    let (mut after, mut records, mut damaged) = (LogPosition::START, Vec::new(), Vec::new());
    while after < log.end() {
        match log.read(after, 200) {
            Ok(page) => {
                after = page.last().expect("a record");
                let text = |line: &[u8]| String::from_utf8(line.to_vec()).expect("UTF-8");
                records.extend(page.records.iter().map(|it| (it.position.number(), text(&it.line))));
            }
            Err(Error::Damaged { line, first, last, .. }) => {
                assert_eq!(first.number(), after.number() + 1);
                damaged.push((first.number(), last.number(), line));
                after = last;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (records, damaged)
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut text = fs::read(path).expect("a segment");
    change(&mut text);
    fs::write(path, text).expect("written");
}

fn offset(text: &[u8], line: &[u8]) -> usize {
    text.windows(line.len()).position(|window| window == line).expect("the line")
}

/// Damages an older segment, at record 6 of the log. Returns the records behind it in that segment.
fn damaged_log(damage: impl FnOnce(&mut Vec<u8>, usize)) -> (Records, Reports) {
    damaged_log_at(0, |text| {
        let place = offset(text, line(6, 0).bytes());
        damage(text, place);
    })
}

/// Damages one of the older segments.
fn damaged_log_at(segment: usize, damage: impl FnOnce(&mut Vec<u8>)) -> (Records, Reports) {
    let folder = tempdir().expect("a folder");
    let log = open(folder.path(), small());
    for number in 2..=100 {
        log.append(&lines([number])).expect("appended");
    }
    drop(log);
    change(&segments(folder.path())[segment], damage);
    let (records, damaged) = read(&open(folder.path(), small()));
    for (position, text) in &records {
        if text.contains("stderr") {
            assert_eq!(text.as_bytes(), line(*position, 0).bytes(), "renumbered");
        }
    }
    (records, damaged)
}

#[test]
fn a_damaged_line_is_reported_and_the_others_are_read() {
    let (records, damaged) = damaged_log(|text, place| text[place] = b'x');
    assert_eq!(damaged, [(6, 6, 7)]);
    assert_eq!(records.len(), 100);
}

/// A byte between two whole records can only have been the line feed.
#[test]
fn a_lost_line_feed_costs_no_record() {
    for byte in *b" x}\"0\x00\xff" {
        let (records, damaged) = damaged_log(|text, place| text[place - 1] = byte);
        assert_eq!((records.len(), damaged), (101, vec![]), "{byte}");
    }
}

/// The numbers behind the damage count from the end of the segment.
#[test]
fn a_lost_line_feed_beside_a_damaged_record_damages_both_records() {
    let (records, damaged) = damaged_log(|text, place| text[place - 2..place].fill(b' '));
    assert_eq!((records.len(), damaged), (99, vec![(5, 6, 6)]));
}

/// Damages the newest segment, at record 9 of 20, and opens it. Checks that later lives read the same, and returns the
/// number of the records and the reports.
fn damaged_newest(damage: impl FnOnce(&mut Vec<u8>, usize)) -> (LogRecovery, usize, Reports) {
    let folder = tempdir().expect("a folder");
    let settings = LogSettings::default;
    open(folder.path(), settings()).append(&lines(2..=20)).expect("appended");
    change(&segments(folder.path())[0], |text| {
        let place = offset(text, line(9, 0).bytes());
        damage(text, place);
    });
    let snapshot = root(folder.path(), settings()).snapshot(NAME).expect("a snapshot");
    let log = open(folder.path(), settings());
    assert_eq!(snapshot.end(), log.recovery().end);
    let (records, reports) = read(&log);
    for (position, text) in records.iter().filter(|(_, text)| text.contains("stderr")) {
        assert_eq!(text.as_bytes(), line(*position, 0).bytes(), "renumbered");
    }
    let recovery = log.recovery().clone();
    drop(log);
    // With the small settings the segment is an older one from then on.
    for settings in [settings(), small(), small()] {
        let (again, again_reports) = read(&open(folder.path(), settings));
        assert_eq!((&again[..records.len()], &again_reports), (&records[..], &reports));
    }
    (recovery, records.len(), reports)
}

/// No block that a power cut loses has one byte, so a NUL alone is like any other damaged byte.
#[test]
fn a_nul_costs_one_record() {
    let (records, damaged) = damaged_log(|text, place| text[place + 3] = 0);
    assert_eq!((records.len(), damaged), (100, vec![(6, 6, 7)]));
    for place in [0, 5] {
        let (recovery, records, reports) = damaged_newest(|text, start| text[start + place] = 0);
        assert_eq!((recovery.end, recovery.removed_bytes), (at(20), 0));
        assert_eq!((records, reports), (20, vec![(9, 9, 10)]));
    }
}

#[test]
fn a_lost_line_feed_in_the_newest_segment_costs_no_record() {
    for byte in *b" x\0\xff" {
        let (recovery, records, reports) = damaged_newest(|text, place| text[place - 1] = byte);
        assert_eq!((recovery.end, recovery.removed_bytes), (at(20), 0), "{byte}");
        assert_eq!((records, reports), (21, vec![]), "{byte}");
    }
}

#[test]
fn a_lost_line_feed_behind_a_header_costs_no_record() {
    let (records, damaged) = damaged_log_at(1, |text| {
        let header = text.iter().position(|byte| *byte == b'\n').expect("a header");
        text[header] = b' ';
    });
    assert_eq!((records.len(), damaged), (101, vec![]));
}

#[test]
fn a_hole_in_an_older_segment_costs_its_records_alone() {
    let (records, damaged) = damaged_log(|text, place| text[place + 3..place + 90].fill(0));
    let [(6, last, 7)] = damaged[..] else { panic!("{damaged:?}") };
    assert!(last < 10, "{last}");
    assert_eq!(records.len() as u64, 101 - (last - 5));
    // The header has no number.
    let (records, damaged) = damaged_log_at(1, |text| text[..20].fill(0));
    assert_eq!((records.len(), damaged), (101, vec![]));
}

/// Each record behind the hole would have the number of another one.
#[test]
fn a_hole_and_a_cut_end_leave_no_certain_number() {
    let (records, damaged) = damaged_log(|text, place| {
        text[place + 3..place + 20].fill(0);
        text.truncate(offset(text, line(15, 0).bytes()));
    });
    let [(6, last, 7)] = damaged[..] else { panic!("{damaged:?}") };
    assert!(last > 15);
    assert_eq!(records.len() as u64, 101 - (last - 5));
}

#[test]
fn missing_lines_at_the_end_of_an_older_segment_are_reported() {
    let (records, damaged) = damaged_log(|text, place| text.truncate(place));
    let [(6, last, 7)] = damaged[..] else { panic!("{damaged:?}") };
    assert_eq!(records.len() as u64, 101 - (last - 5));
}

/// Lines behind a hole in the newest segment have no certain number, so they are records of the next life.
#[test]
fn records_behind_a_hole_are_moved_to_the_next_life() {
    for settings in [small(), LogSettings::default()] {
        let folder = tempdir().expect("a folder");
        let log = open(folder.path(), settings.clone());
        log.append(&lines(2..=20)).expect("appended");
        drop(log);
        let (mut rest, lost) = (Vec::new(), line(10, 0).bytes().len() + 1);
        change(&segments(folder.path())[0], |text| {
            let place = offset(text, line(10, 0).bytes());
            text[place + 3..place + 20].fill(0);
            rest = text[place..].to_vec();
        });
        let snapshot = root(folder.path(), settings.clone()).snapshot(NAME).expect("a snapshot");
        assert_eq!(snapshot.end(), at(20));
        let log = open(folder.path(), settings.clone());
        let report = log.recovery().clone();
        assert_eq!((report.end, report.removed_lines, report.moved_records), (at(9), 1, 10));
        assert_eq!(report.removed_bytes, lost as u64);
        assert_eq!(fs::read(report.saved_to.expect("a file")).expect("the lines"), rest);
        let (records, damaged) = read(&log);
        // The record that began the life, and the one in the place of the lost part.
        assert_eq!((log.end(), records.len(), &damaged), (at(9 + 2 + 10), 21, &vec![]));
        let dropped = format!(r#""dropped":{{"lines":1,"bytes":{lost}}}}}"#);
        assert!(records[10].1.ends_with(&dropped), "{:?}", records[10]);
        assert!((2..10).chain(11..=20).eq(numbers(&log)));
        let cursor = |position| LogCursor { life: 1, position: at(position) };
        assert!(log.check(cursor(9)).is_ok() && log.check(cursor(10)).is_err());
        drop(log);
        let log = open(folder.path(), settings);
        assert!(log.recovery().removed_from.is_none());
        assert!((2..10).chain(11..=20).eq(numbers(&log)));
        assert!(log.check(LogCursor { life: 2, position: at(21) }).is_ok());
    }
}

#[test]
fn a_log_keeps_its_records_without_its_only_header() {
    for (byte, end, moved) in [(0, 0, 20), (b'x', 20, 0)] {
        let folder = tempdir().expect("a folder");
        open(folder.path(), LogSettings::default()).append(&lines(2..=20)).expect("appended");
        change(&segments(folder.path())[0], |text| text[..20].fill(byte));
        let log = open(folder.path(), LogSettings::default());
        assert_eq!((log.recovery().end, log.recovery().moved_records), (at(end), moved));
        assert!((2..=20).eq(numbers(&log)), "{byte}");
        drop(log);
        assert!((2..=20).eq(numbers(&open(folder.path(), LogSettings::default()))), "{byte}");
    }
}

#[test]
fn a_segment_without_its_header_ends_the_log_before_it() {
    let folder = tempdir().expect("a folder");
    for _ in 0..2 {
        open(folder.path(), small()).append(&lines([1, 2])).expect("appended");
    }
    change(&segments(folder.path())[1], |text| text.fill(0));
    let log = open(folder.path(), small());
    assert_eq!((log.life(), log.recovery().end), (3, at(3)), "the number of the lost life is not used again");
    assert_eq!(read(&log).1, []);
}

/// A crash can leave a segment beside the one that has replaced it.
#[test]
fn a_segment_is_replaced_only_by_one_that_begins_with_its_records() {
    for is_changed in [false, true] {
        let folder = tempdir().expect("a folder");
        open(folder.path(), LogSettings::default()).append(&lines(2..=9)).expect("appended");
        let replaced = segments(folder.path()).remove(0);
        let mut text = fs::read(&replaced).expect("a segment");
        drop(open(folder.path(), LogSettings::default()));
        assert!(!replaced.exists() && segments(folder.path()).len() == 1);
        if is_changed {
            let place = offset(&text, line(9, 0).bytes());
            text[place + 6] = b'8';
        }
        fs::write(&replaced, &text).expect("written");
        let log = open(folder.path(), LogSettings::default());
        assert_eq!((log.life(), log.end()), (3, at(11)));
        assert_eq!(read(&log).1, []);
        assert!(segments(folder.path()).len() == 1 && !replaced.exists());
        let lost = replaced.with_extension("jsonl.lost");
        assert_eq!(fs::read(lost).ok(), is_changed.then_some(text));
    }
}

#[test]
fn other_files_in_the_folder_are_ignored() {
    let folder = tempdir().expect("a folder");
    drop(open(folder.path(), small()));
    for name in ["notes.txt", "session.json", ".new", "0-0.jsonl"] {
        fs::write(folder.path().join("session").join(name), "x").expect("a file");
    }
    assert_eq!(open(folder.path(), small()).end(), at(2));
}
