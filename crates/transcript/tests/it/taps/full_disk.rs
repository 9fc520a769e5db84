//! A disk that fills up in the middle of a recording: a small one of our own, where the system lets us have it.

use std::path::Path;
use std::process::Command;

use duologue_transcript::{Error, RecordEvent, Recorder, Transcript};

use duologue_test_support::{in_time, measured, passed, skipped};

/// Says where the disk is, in the process that has it.
const DISK: &str = "DUOLOGUE_TEST_DISK";

#[tokio::test]
async fn a_disk_that_fills_up_is_an_error_of_its_own() {
    if let Some(disk) = std::env::var_os(DISK) {
        return in_time(fill(Path::new(&disk))).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let this = std::env::current_exe().expect("our own");
    let own_disk = |then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size=256k none \"$0\" && {then}");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(folder.path()).arg(&this);
        command.env(DISK, folder.path()).output()
    };
    if !own_disk("true").is_ok_and(|output| output.status.success()) {
        skipped("taps::full_disk", "`unshare --map-root-user --mount` with a tmpfs is not allowed here");
        return measured("not played: no small disk could be had");
    }
    let test = "exec \"$1\" --nocapture --exact taps::full_disk::a_disk_that_fills_up_is_an_error_of_its_own";
    let output = own_disk(test).expect("it runs");
    passed(&output);
}

async fn fill(disk: &Path) {
    let (path, other) = (disk.join("talk.jsonl"), disk.join("other"));
    std::fs::write(&other, vec![0; 64 * 1024]).expect("a file");
    let recorder = Recorder::builder().queue_bytes(1000).create(&path).expect("a file");
    let mut number = 0;
    while recorder.error().is_none() {
        recorder.stderr(format!("{number} {}", "x".repeat(number % 500)).as_bytes());
        recorder.room().await;
        number += 1;
        assert!(number < 100_000, "it never fills up");
    }
    assert!(matches!(recorder.finish().await, Err(Error::DiskFull { path: full }) if full == path));
    let written = whole(&path);
    assert!(written > 100 && written < number, "{written} of {number}");

    // Once there is room it goes on behind the last whole record.
    std::fs::remove_file(other).expect("room");
    let recorder = Recorder::builder().append(&path).expect("goes on");
    recorder.stderr(format!("{written} again").as_bytes());
    recorder.finish().await.expect("written");
    assert_eq!(whole(&path), written + 1);
    measured(format_args!(
        "ENOSPC is `DiskFull`; {written} records before it are whole, and it goes on behind them"
    ));
}

/// Returns the number of records, after checking that each is whole and none is missing.
fn whole(path: &Path) -> usize {
    let transcript = Transcript::load(path).expect("a transcript");
    assert!(!transcript.is_cut());
    for (number, record) in transcript.records().iter().enumerate() {
        assert!(
            matches!(&record.event, RecordEvent::Stderr(text) if text.starts_with(&format!("{number} "))),
            "{record:?}"
        );
    }
    transcript.records().len()
}
