//! Logs in files: segments, lives, limits and open files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_store::{CursorGoneReason, Error, Log, LogCursor, LogPosition, LogSettings};
use duologue_test_support::{PATIENCE, measured};
use tempfile::{TempDir, tempdir};

use crate::support::{
    NAME, at, header, line, lines, numbers, open, read_from, root, segments, small, whole_transcript,
};

fn folder() -> TempDir {
    tempdir().expect("a folder")
}

#[test]
fn the_segments_are_one_transcript_and_each_is_one() {
    let folder = folder();
    for life in 0..3 {
        let log = open(folder.path(), small());
        assert_eq!(log.life(), life + 1);
        for number in 0..100 {
            log.append(&lines([u64::from(life) * 100 + number])).expect("appended");
        }
    }
    assert!(segments(folder.path()).len() > 6);
    assert!(whole_transcript(folder.path()).into_iter().eq(0..300));
    for segment in segments(folder.path()) {
        assert!(fs::metadata(segment).expect("a segment").len() < 1100);
    }
}

#[test]
fn files_and_folders_are_private() {
    let folder = folder();
    let log = open(&folder.path().join("deep/logs"), small());
    let mode = |path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(log.folder().to_owned()), 0o700);
    assert_eq!(mode(folder.path().join("deep/logs")), 0o700);
    assert_eq!(mode(segments(&folder.path().join("deep/logs")).remove(0)), 0o600);
}

#[test]
fn a_folder_and_a_log_are_open_once() {
    let folder = folder();
    let logs = root(folder.path(), small());
    let other = duologue_store::LogRoot::new(folder.path(), small());
    assert!(matches!(other, Err(Error::InUse { .. })), "{other:?}");
    let log = logs.open(NAME, &header()).expect("a log");
    let error = logs.open(NAME, &header()).expect_err("open");
    assert!(matches!(&error, Error::InUse { path } if path.ends_with(NAME)), "{error}");
    assert!(matches!(logs.remove(NAME), Err(Error::InUse { .. })));
    drop(log);
    logs.open(NAME, &header()).expect("open again");
    logs.remove(NAME).expect("removed");
    logs.remove(NAME).expect("removed before");
    assert_eq!(logs.names().expect("names"), Vec::<String>::new());
    for name in ["", ".", "..", "a/b", "a.b", &"x".repeat(129)] {
        assert!(matches!(logs.open(name, &header()), Err(Error::BadName { .. })), "{name}");
    }
}

#[test]
fn the_header_and_the_times_go_on_in_the_next_life() {
    let folder = folder();
    let mut first = header();
    first.program = vec!["agent".into()];
    let logs = root(folder.path(), small());
    let log = logs.open(NAME, &first).expect("a log");
    let far = r#"{"at":90000000000,"stderr":"from a clock that was wrong"}"#;
    log.append(&[duologue_store::LogLine::new(far).expect("a line")]).expect("appended");
    drop(log);
    let log = logs.open(NAME, &header()).expect("a log");
    assert_eq!(log.header().program, ["agent"]);
    assert!(log.opened_at() >= Duration::from_secs(90_000), "times do not decrease");
}

/// A snapshot has the whole records of all lives, and leaves the files as they are, also one that was cut in a line.
#[test]
fn a_snapshot_writes_nothing() {
    let folder = folder();
    for life in 0..2 {
        open(folder.path(), small()).append(&lines(life * 50..life * 50 + 50)).expect("appended");
    }
    let logs = root(folder.path(), small());
    let newest = segments(folder.path()).pop().expect("a segment");
    let mut cut = fs::read(&newest).expect("a segment");
    cut.extend_from_slice(br#"{"at":1,"std"#);
    fs::write(&newest, &cut).expect("written");
    // A crash can leave a segment without a header.
    let empty = newest.with_file_name("0000000000000103-3.jsonl");
    fs::write(&empty, "").expect("written");
    let files = || {
        let read = |path: &PathBuf| (path.clone(), fs::read(path).expect("a file"));
        fs::read_dir(folder.path().join(NAME))
            .expect("a folder")
            .map(|it| read(&it.expect("it").path()))
            .collect()
    };
    let before: BTreeMap<PathBuf, Vec<u8>> = files();
    let snapshot = logs.snapshot(NAME).expect("a snapshot");
    assert_eq!(snapshot.end(), at(102));
    let (mut after, mut records) = (LogPosition::START, Vec::new());
    while after < snapshot.end() {
        let page = snapshot.read(after, 300).expect("a page");
        after = page.last().expect("a record");
        records.extend(page.records);
    }
    assert!(snapshot.read(after, 300).expect("a page").records.is_empty());
    assert_eq!(files(), before);
    assert!(logs.snapshot("absent").is_err());
    // The log can be opened meanwhile. The snapshot does not change.
    let log = logs.open(NAME, &header()).expect("a log");
    assert_eq!(log.life(), 4, "that of the empty segment counts");
    log.append(&lines([100])).expect("appended");
    assert_eq!(snapshot.end(), at(102));
    let opened = read_from(&log, LogPosition::START, 1000);
    assert!(opened[..102].iter().eq(records.iter().map(|record| &record.line)));
}

/// Nothing behind the end of an older life is valid.
#[test]
fn cursors_of_older_lives_are_valid_up_to_their_end() {
    let folder = folder();
    let mut ends = Vec::new();
    for life in 1..=4 {
        let log = open(folder.path(), small());
        log.append(&lines(0..life * 10)).expect("appended");
        ends.push(log.end());
    }
    let log = open(folder.path(), small());
    for (end, life) in ends.into_iter().zip(1..) {
        let check = |position| log.check(LogCursor { life, position });
        assert_eq!(check(end).expect("valid"), end);
        assert_eq!(check(LogPosition::START).expect("valid"), LogPosition::START);
        let error = check(at(end.number() + 1)).expect_err("lost");
        assert!(
            matches!(error, Error::CursorGone { reason: CursorGoneReason::Lost { last }, .. } if last == end)
        );
    }
    let log = {
        log.remove_before(log.end()).expect("removed");
        log
    };
    let error = log.check(LogCursor { life: 2, position: at(5) }).expect_err("removed");
    let first = log.first();
    assert!(
        matches!(error, Error::CursorGone { reason: CursorGoneReason::Removed { first: is }, .. } if is == first)
    );
    drop(log);
    let log = open(folder.path(), small());
    assert_eq!((log.first(), log.life()), (first, 6), "after a restart too");
}

#[test]
fn a_full_log_names_the_setting_and_has_a_reserve() {
    let folder = folder();
    let mut settings = small();
    settings.log_bytes = 10_000;
    let log = open(folder.path(), settings.clone());
    let mut count = 0;
    let error = loop {
        match log.append(&[line(count, 100)]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LogFull { limit: 10_000, .. }), "{error}");
    assert!(error.to_string().contains("`LogSettings::log_bytes`"), "{error}");
    assert!(count > 50 && log.bytes() <= 10_000);
    log.append_reserved(&[line(count, 0)]).expect("the reserve");
    let long = line(0, LogSettings::RESERVE_BYTES as usize);
    assert!(matches!(log.append_reserved(&[long]), Err(Error::LogFull { .. })));
    drop(log);
    // A full log can be opened, and is writable once old records are removed.
    let log = open(folder.path(), settings);
    assert!(matches!(log.append(&[line(count + 1, 0)]), Err(Error::LogFull { .. })));
    log.remove_before(log.end()).expect("removed");
    log.append(&[line(count + 1, 0)]).expect("appended");
}

#[test]
fn a_disk_with_little_room_takes_reserved_records_alone() {
    let folder = folder();
    let mut settings = small();
    settings.reserved_bytes = u64::MAX;
    let log = open(folder.path(), settings);
    let error = log.append(&[line(1, 0)]).expect_err("a refusal");
    assert!(matches!(error, Error::DiskReserve { reserved: u64::MAX, .. }), "{error}");
    assert!(error.to_string().contains("`LogSettings::reserved_bytes`"), "{error}");
    log.append_reserved(&[line(1, 0)]).expect("the reserve");
}

#[test]
fn thousands_of_logs_have_few_open_files() {
    const LOGS: u64 = 500;
    let folder = folder();
    let mut settings = small();
    settings.open_files = 16;
    let logs = root(folder.path(), settings);
    let open: Vec<_> =
        (0..LOGS).map(|number| logs.open(&format!("log-{number}"), &header()).expect("a log")).collect();
    let descriptors = || fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    for round in 0..3 {
        for log in &open {
            log.append(&lines(round * 2..round * 2 + 2)).expect("appended");
            assert!(logs.open_files() <= 16, "{}", logs.open_files());
        }
    }
    measured(format_args!("{LOGS} open logs have {} open files", descriptors()));
    for log in &open {
        log.sync().expect("synced");
        assert_eq!(numbers(log), [0, 1, 2, 3, 4, 5]);
    }
    assert_eq!(logs.close_idle(PATIENCE), 0);
    assert_eq!(logs.close_idle(Duration::ZERO), LOGS as usize);
    assert_eq!((logs.open_files(), open.iter().map(|log| log.tail_bytes()).sum::<usize>()), (0, 0));
    assert_eq!(numbers(&open[7]), [0, 1, 2, 3, 4, 5], "from the file");
    assert_eq!(open[7].append(&lines([6])).expect("appended"), at(8));
}

#[test]
fn the_tails_of_all_logs_are_bounded() {
    let folder = folder();
    let mut settings = LogSettings::default();
    settings.tail_bytes = 100_000;
    settings.all_tails_bytes = 400_000;
    let logs = root(folder.path(), settings);
    let open: Vec<_> =
        (0..20).map(|number| logs.open(&format!("log-{number}"), &header()).expect("a log")).collect();
    for number in 0..200 {
        for log in &open {
            log.append(&[line(number, 1000)]).expect("appended");
            assert!(log.tail_bytes() <= 100_000);
        }
    }
    let sum: usize = open.iter().map(|log| log.tail_bytes()).sum();
    assert!(sum > 200_000 && sum <= 400_000 + 20 * LogSettings::SMALL_TAIL_BYTES, "{sum}");
    for log in &open {
        assert!(numbers(log).into_iter().eq(0..200));
    }
}

#[test]
fn the_tail_is_read_without_a_file() {
    let folder = folder();
    let log = open(folder.path(), LogSettings::default());
    log.append(&lines([1, 2, 3])).expect("appended");
    for segment in segments(folder.path()) {
        fs::remove_file(segment).expect("removed");
    }
    let page = log.read_tail(at(2), 1000).expect("a tail");
    assert_eq!((page.records.len(), page.end), (2, at(4)));
    assert!(log.read_tail(at(4), 1000).is_none(), "there is no next record");
    assert!(log.read_tail(at(5), 1000).is_none(), "behind the end");
    assert!(log.time() >= log.opened_at());
}

#[test]
fn a_file_that_another_program_changed_is_not_written() {
    let folder = folder();
    let logs = root(folder.path(), small());
    let log = logs.open(NAME, &header()).expect("a log");
    log.append(&lines([1])).expect("appended");
    logs.close_idle(Duration::ZERO);
    let path = segments(folder.path()).remove(0);
    let mut text = fs::read(&path).expect("a segment");
    text.extend(b"{\"at\":0}\n");
    fs::write(&path, text).expect("changed");
    let error = log.append(&lines([2])).expect_err("changed");
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    drop(log);
    let log = logs.open(NAME, &header()).expect("a log");
    assert_eq!(read_from(&log, at(2), 1000)[0], b"{\"at\":0}");
}

/// A change of the file of an open log by another program, and true if the log can go on.
type FileChange = (fn(&Path, &Path), bool);

#[test]
fn a_change_of_an_open_file_is_noticed_by_the_next_sync() {
    let changes: [FileChange; 6] = [
        (|folder, _| fs::remove_dir_all(folder).expect("removed"), false),
        (
            |_, file| fs::File::options().write(true).open(file).and_then(|it| it.set_len(9)).expect("cut"),
            false,
        ),
        (|folder, _| fs::rename(folder, folder.with_file_name("other")).expect("renamed"), false),
        (
            |folder, file| {
                fs::copy(file, folder.join("copy")).expect("copied");
                fs::rename(folder.join("copy"), file).expect("replaced");
            },
            false,
        ),
        (
            |_, file| {
                let mut file = fs::File::options().append(true).open(file).expect("the file");
                file.write_all(b"{\"at\":0}\n").expect("appended");
            },
            false,
        ),
        (
            |folder, _| {
                let other = folder.with_file_name("other");
                fs::rename(folder, &other)
                    .and_then(|()| fs::rename(other, folder))
                    .expect("renamed and back");
            },
            true,
        ),
    ];
    for (number, (change, goes_on)) in changes.into_iter().enumerate() {
        for begins_segment in [false, true] {
            let folder = folder();
            let logs = root(folder.path(), small());
            let log = logs.open(NAME, &header()).expect("a log");
            log.append(&lines([1, 2])).expect("appended");
            log.sync().expect("synced");
            change(log.folder(), &segments(folder.path())[0]);
            let result = match begins_segment {
                true => log.append(&[line(3, 1000)]),
                false => log.append(&lines([3])).and_then(|_| log.sync()),
            };
            match result {
                Ok(_) => assert!(goes_on, "change {number}"),
                Err(error) => {
                    assert!(!goes_on && matches!(error, Error::Changed { .. }), "change {number}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_log_that_was_half_removed_is_gone_after_a_restart() {
    let folder = folder();
    drop(open(folder.path(), small()));
    fs::rename(folder.path().join(NAME), folder.path().join(format!(".removed-{NAME}"))).expect("renamed");
    let logs = root(folder.path(), small());
    assert_eq!(logs.names().expect("names"), Vec::<String>::new());
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "the lock alone");
}
