//! A disk that fills up, and a limit on the size of files.

use std::path::Path;
use std::process::Command;

use duologue_store::{Error, Log, LogSettings};
use duologue_test_support::{measured, passed, skipped};
use tempfile::tempdir;

use crate::support::{line, numbers, open, whole_transcript};

/// The folder of the log, in the process that has the limit.
const FOLDER: &str = "DUOLOGUE_TEST_LIMITED";

/// Appends batches until one fails, and returns the number of records and the error.
fn fill(log: &dyn Log, batch: u64) -> (u64, Error) {
    let mut next = numbers(log).len() as u64;
    loop {
        let lines: Vec<_> = (next..next + batch).map(|number| line(number, 500)).collect();
        match log.append(&lines) {
            Ok(_) => next += batch,
            Err(error) => return (next, error),
        }
        assert!(next < 100_000, "it never fills up");
    }
}

/// Checks that a log has these records and nothing else.
fn check(folder: &Path, log: &dyn Log, count: u64) {
    assert!(numbers(log).into_iter().eq(0..count));
    assert!(whole_transcript(folder).into_iter().eq(0..count), "torn");
}

fn in_a_shell(script: &str, folder: &Path, test: &str) -> std::io::Result<std::process::Output> {
    let this = std::env::current_exe().expect("our own");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script} exec \"$0\" --nocapture --exact {test}")]).arg(this);
    command.env(FOLDER, folder).output()
}

#[test]
fn a_limit_on_the_size_of_files_refuses_whole_batches() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return limited(Path::new(&folder));
    }
    let folder = tempdir().expect("a folder");
    let test = "full_disk::a_limit_on_the_size_of_files_refuses_whole_batches";
    passed(&in_a_shell("trap '' XFSZ; ulimit -f 64;", folder.path(), test).expect("it runs"));
}

fn limited(folder: &Path) {
    let log = open(folder, LogSettings::default());
    let (count, error) = fill(&log, 10);
    assert!(matches!(error, Error::FileSizeLimit { .. }), "{error}");
    assert!(error.to_string().contains("`ulimit -f`"), "{error}");
    check(folder, &log, count);
    // Smaller batches still fit.
    let (more, _) = fill(&log, 1);
    assert!(more > count);
    check(folder, &log, more);
    drop(log);
    // The next life begins a segment, so it goes on.
    let log = open(folder, LogSettings::default());
    assert_eq!(log.recovery().removed_bytes, 0, "nothing torn was left");
    log.append(&[line(more, 0)]).expect("appended");
    check(folder, &log, more + 1);
}

#[test]
fn a_full_disk_is_an_error_after_which_the_log_goes_on() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return full(Path::new(&folder));
    }
    let folder = tempdir().expect("a folder");
    let this = std::env::current_exe().expect("our own");
    let own_disk = |then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size=512k none \"$0\" && {then}");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(folder.path()).arg(&this);
        command.env(FOLDER, folder.path()).output()
    };
    if !own_disk("true").is_ok_and(|output| output.status.success()) {
        skipped("store::full_disk", "`unshare --map-root-user --mount` with a tmpfs is not allowed here");
        return measured("not played: no small disk could be had");
    }
    let test =
        "exec \"$1\" --nocapture --exact full_disk::a_full_disk_is_an_error_after_which_the_log_goes_on";
    passed(&own_disk(test).expect("it runs"));
}

fn full(disk: &Path) {
    let other = disk.join("other");
    std::fs::write(&other, vec![0; 64 * 1024]).expect("a file");
    let folder = disk.join("logs");
    let mut settings = LogSettings::default();
    // Also the beginning of a segment fails. The disk is smaller than what is kept of one.
    (settings.segment_bytes, settings.reserved_bytes) = (50_000, 0);
    let log = open(&folder, settings.clone());
    let (count, error) = fill(&log, 10);
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    check(&folder, &log, count);
    let (mut more, error) = fill(&log, 1);
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    check(&folder, &log, more);
    for _ in 0..20 {
        assert!(matches!(log.append(&[line(more, 5000)]), Err(Error::DiskFull { .. })));
    }
    std::fs::remove_file(other).expect("space");
    log.append(&[line(more, 500)]).expect("appended");
    more += 1;
    check(&folder, &log, more);
    let (end, _) = fill(&log, 7);
    assert!(end > more);
    drop(log);
    let reopened = duologue_store::LogRoot::new(&folder, settings)
        .expect("a folder")
        .open("session", &crate::support::header());
    // A life needs a little space for its first segment.
    if let Err(error) = &reopened {
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    }
    assert!(whole_transcript(&folder).into_iter().eq(0..end));
    measured(format_args!("`DiskFull` after {count} records, {end} after space was made; none is torn"));
}
