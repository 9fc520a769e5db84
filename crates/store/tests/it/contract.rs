//! The contract of `Log`, on both implementations.

use std::sync::atomic::{AtomicBool, Ordering};

use duologue_store::{CursorGoneReason, Error, Log, LogCursor, LogPosition, LogSettings, MemoryLog};

use crate::support::{at, header, line, lines, numbers, open, read_from, small};

/// Makes a test of each function for both implementations. The file log has small segments and a small tail.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn in_memory() {
                super::$name(&MemoryLog::new(header()));
            }

            #[test]
            fn in_files() {
                let folder = tempfile::tempdir().expect("a folder");
                super::$name(&open(folder.path(), small()));
            }

            #[test]
            fn in_files_with_a_long_tail() {
                let folder = tempfile::tempdir().expect("a folder");
                super::$name(&open(folder.path(), LogSettings::default()));
            }
        }
    )*};
}

on_both!(
    a_life_begins_with_its_record,
    records_have_consecutive_positions,
    pages_have_the_records_behind_a_position,
    a_page_has_at_least_one_record,
    a_position_behind_the_end_is_refused,
    cursors_of_this_life_are_valid_up_to_the_end,
    old_records_are_removed_up_to_a_position,
    a_reader_sees_a_prefix_while_the_owner_appends,
);

fn gone(result: Result<impl std::fmt::Debug, Error>) -> CursorGoneReason {
    match result {
        Err(Error::CursorGone { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn a_life_begins_with_its_record(log: &dyn Log) {
    assert_eq!((log.first(), log.end()), (at(1), at(1)));
    assert!(log.life() > 0);
    let page = log.read(LogPosition::START, 1000).expect("a page");
    let expected = format!(
        r#"{{"at":{},"hub":{{"event":"opened","life":{}}}}}"#,
        log.opened_at().as_micros(),
        log.life()
    );
    assert_eq!(page.records[0].line, expected);
    assert_eq!((page.records.len(), page.last(), page.end), (1, Some(at(1)), at(1)));
}

fn records_have_consecutive_positions(log: &dyn Log) {
    assert_eq!(log.append(&lines(1..=3)).expect("appended"), at(4));
    assert_eq!(log.append(&[]).expect("appended"), at(4));
    assert_eq!(log.append(&lines([4])).expect("appended"), at(5));
    assert_eq!((log.end(), log.sync().expect("synced")), (at(5), at(5)));
    assert_eq!(numbers(log), [1, 2, 3, 4]);
}

fn pages_have_the_records_behind_a_position(log: &dyn Log) {
    for number in 0..100 {
        log.append(&lines(3 * number..3 * number + 3)).expect("appended");
    }
    let all = read_from(log, at(0), usize::MAX);
    assert_eq!(all.len(), 301);
    for max_bytes in [0, 1, 50, 333, 5000, usize::MAX] {
        for after in 0..=301 {
            let page = log.read(at(after), max_bytes).expect("a page");
            let bytes: usize = page.records.iter().map(|record| record.line.len() + 1).sum();
            assert!(page.records.len() == 1 || bytes <= max_bytes, "{bytes} of {max_bytes}");
            for (record, number) in page.records.iter().zip(after..) {
                assert_eq!(record.position, at(number + 1));
                assert_eq!(record.line, all[number as usize]);
            }
        }
        assert_eq!(read_from(log, at(0), max_bytes), all);
    }
}

fn a_page_has_at_least_one_record(log: &dyn Log) {
    log.append(&[line(1, 5000), line(2, 0)]).expect("appended");
    for max_bytes in [0, 10] {
        let page = log.read(at(1), max_bytes).expect("a page");
        assert_eq!((page.records.len(), page.records[0].line.len() > 5000), (1, true));
    }
}

fn a_position_behind_the_end_is_refused(log: &dyn Log) {
    assert!(log.read(at(1), 10).expect("a page").records.is_empty());
    assert_eq!(gone(log.read(at(2), 10)), CursorGoneReason::BehindEnd { end: at(1) });
}

fn cursors_of_this_life_are_valid_up_to_the_end(log: &dyn Log) {
    log.append(&lines(1..=3)).expect("appended");
    for position in 0..=4 {
        let cursor = log.cursor(at(position));
        assert_eq!(cursor, LogCursor { life: log.life(), position: at(position) });
        assert_eq!(log.check(cursor).expect("valid"), at(position));
    }
    assert_eq!(gone(log.check(log.cursor(at(5)))), CursorGoneReason::BehindEnd { end: at(4) });
    for life in [0, log.life() + 1] {
        let reason = gone(log.check(LogCursor { life, position: at(1) }));
        assert_eq!(reason, CursorGoneReason::UnknownLife);
    }
}

fn old_records_are_removed_up_to_a_position(log: &dyn Log) {
    for number in 0..200 {
        log.append(&lines([number])).expect("appended");
    }
    for keep in [0, 1, 50, 120, 120, 201, 1000] {
        let all = read_from(log, at(log.first().number() - 1), 1000);
        let before = log.first();
        let first = log.remove_before(at(keep)).expect("removed");
        assert_eq!(first, log.first());
        assert!(first >= before && (first <= at(keep).max(before)), "{first} was kept, not {keep}");
        assert_eq!(log.end(), at(201));
        let rest = read_from(log, at(first.number() - 1), 1000);
        assert!(all.ends_with(&rest) && !rest.is_empty());
        if first > at(1) {
            let reason = CursorGoneReason::Removed { first };
            assert_eq!(gone(log.read(at(first.number() - 2), 10)), reason);
            assert_eq!(gone(log.check(log.cursor(at(first.number() - 2)))), reason);
        }
    }
}

fn a_reader_sees_a_prefix_while_the_owner_appends(log: &dyn Log) {
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for max_bytes in [1, 700, 100_000] {
            let finished = &finished;
            scope.spawn(move || {
                let (mut after, mut next) = (at(1), 0);
                while !finished.load(Ordering::Acquire) || after < log.end() {
                    let page = log.read(after, max_bytes).expect("a page");
                    for record in &page.records {
                        assert_eq!(record.position.number(), after.number() + 1);
                        assert_eq!(record.line, line(next, (next % 50) as usize).bytes());
                        (after, next) = (record.position, next + 1);
                    }
                    assert!(after <= page.end);
                }
                assert_eq!(next, 2000);
            });
        }
        for number in (0..2000).step_by(4) {
            let batch: Vec<_> = (number..number + 4).map(|it| line(it, (it % 50) as usize)).collect();
            log.append(&batch).expect("appended");
        }
        finished.store(true, Ordering::Release);
    });
}

#[test]
fn memory_keeps_the_newest_records() {
    let log = MemoryLog::with_limit(header(), 10_000);
    for number in 0..1000 {
        log.append(&[line(number, 100)]).expect("appended");
    }
    let kept = numbers(&log);
    assert!(kept.len() > 20 && kept.len() < 100, "{}", kept.len());
    assert!(kept.iter().copied().eq(1000 - kept.len() as u64..1000));
    assert_eq!(log.end(), at(1001));
    assert!(matches!(gone(log.read(at(1), 10)), CursorGoneReason::Removed { .. }));
    let error = log.append(&[line(0, 10_000)]).expect_err("too long");
    assert!(
        matches!(error, Error::LogFull { .. }) && error.to_string().contains("`memory_bytes`"),
        "{error}"
    );
    assert_eq!(numbers(&log), kept);
}

/// A long batch is not removed as a whole.
#[test]
fn memory_keeps_the_end_of_a_long_batch() {
    let log = MemoryLog::with_limit(header(), 200_000);
    let batch: Vec<_> = (0..1000).map(|number| line(number, 1000)).collect();
    log.append(&batch).expect("appended");
    let kept = numbers(&log);
    assert!(kept.len() > 50 && kept.last() == Some(&999), "{}", kept.len());
}

#[test]
fn two_logs_in_memory_refuse_the_cursors_of_each_other() {
    let (one, other) = (MemoryLog::new(header()), MemoryLog::new(header()));
    assert!(one.life() != other.life(), "with a chance of one in two billion");
    assert_eq!(gone(one.check(other.cursor(at(1)))), CursorGoneReason::UnknownLife);
}
