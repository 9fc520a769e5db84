//! The files of recordings: new ones, replaced ones, and those that are appended to.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use duologue_test_support::in_time;
use duologue_transcript::{
    Error, Header, Record, RecordEvent, Recorder, RecorderBuilder, Redacted, Transcript,
};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    (folder, path)
}

fn load(path: &Path) -> Transcript {
    Transcript::load(path).expect("a transcript")
}

fn write(path: &Path, header: Header, records: Vec<Record>) {
    Transcript::new(header, records).write(fs::File::create(path).expect("a file")).expect("written");
}

fn refusal(result: Result<Recorder, Error>) -> String {
    match result {
        Err(error @ Error::File { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A file is replaced once the new one has its header, or at the end of a complete recording.
#[tokio::test]
async fn a_file_is_replaced_at_once_or_at_the_end() {
    let (folder, path) = folder();
    fs::write(&path, "old").expect("a file");
    let recorder = Recorder::builder().replace_at_end(&path).expect("a file");
    recorder.stderr(b"one");
    recorder.flush().await.expect("written");
    drop(recorder);
    assert_eq!(fs::read(&path).expect("a file"), b"old", "it was not finished");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "nothing is left beside it");
    let recorder = Recorder::builder().replace(&path).expect("a file");
    recorder.stderr(b"one");
    recorder.flush().await.expect("written");
    assert_eq!(load(&path).records().len(), 1);
}

/// Only one recorder writes a file.
#[tokio::test]
async fn a_file_has_one_recorder() {
    let (_folder, path) = folder();
    let first = Recorder::create(&path).expect("a new file");
    assert!(refusal(Recorder::builder().append(&path)).contains("another recorder"));
    drop(first);
    Recorder::builder().append(&path).expect("the first one has ended");
}

/// Only a file can be appended to, and a pipe is written only with a reader.
#[tokio::test]
async fn pipes_and_devices_are_not_appended_to() {
    let error = refusal(Recorder::builder().append("/dev/null"));
    assert!(error.contains("only a file can be appended to"), "{error}");
    let (_folder, path) = folder();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let error = refusal(Recorder::builder().replace(&path));
    assert!(error.contains("no program reads this pipe"), "{error}");
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&path).expect("a reader");
    let recorder = Recorder::builder().replace(&path).expect("a pipe");
    recorder.stderr(b"one");
    in_time(recorder.sync()).await.expect("a pipe needs no disk");
}

/// A recorder keeps the promise of a header, and may remove more.
#[tokio::test]
async fn a_recorder_keeps_the_promise_of_the_header() {
    let (_folder, path) = folder();
    drop(Recorder::builder().keep_secrets().create(&path).expect("a file"));
    let recorder = Recorder::builder().append(&path).expect("it removes more");
    recorder.finish().await.expect("written");
    assert_eq!(load(&path).header().redacted, Redacted::Nothing);
    write(&path, Transcript::new(Header::new("a test"), Vec::new()).redacted().header().clone(), Vec::new());
    assert!(refusal(Recorder::builder().append(&path)).contains("redaction"));
}

/// A header that lacks only its line feed is kept.
#[tokio::test]
async fn a_header_without_its_end_is_kept() {
    let (_folder, path) = folder();
    drop(Recorder::builder().program(["agent"]).create(&path).expect("a file"));
    let bytes = fs::read(&path).expect("a file");
    fs::write(&path, bytes.strip_suffix(b"\n").expect("a line")).expect("a file");
    Recorder::builder().append(&path).expect("it goes on").finish().await.expect("written");
    assert_eq!(load(&path).header().program, ["agent"]);
}

/// The time of a record counts from the start in the header, and never decreases.
#[tokio::test]
async fn times_go_on_from_the_start() {
    let (_folder, path) = folder();
    let hour = Duration::from_secs(3600);
    for (started, last, least) in
        [(SystemTime::now() - hour, Duration::ZERO, hour), (SystemTime::now(), 2 * hour, 2 * hour)]
    {
        let mut header = Header::new("a test");
        header.started = started;
        header.redacted = Redacted::Secrets;
        write(&path, header, vec![Record::new(last, RecordEvent::Stderr("one".into()))]);
        let recorder = Recorder::builder().append(&path).expect("it goes on");
        recorder.stderr(b"two");
        recorder.finish().await.expect("written");
        let at = load(&path).records()[1].at;
        assert!(at >= least && at < least + hour, "{at:?}");
    }
}

/// Lines are written without a call that waits for them.
#[tokio::test]
async fn lines_are_written_by_themselves() {
    let (_folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    recorder.stderr(b"one");
    in_time(async {
        while load(&path).records().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The thread has nothing to do now.
        tokio::time::sleep(Duration::from_millis(20)).await;
        recorder.sync().await.expect("on the disk");
    })
    .await;
}

/// A queue without room takes one line at a time. Lines of a large batch are all written.
#[tokio::test]
async fn the_size_of_the_queue_loses_no_line() {
    const LINES: usize = 3000;
    let line = [b'x'; 500];
    let recorder = Recorder::builder().queue_bytes(0).in_memory().expect("memory");
    recorder.stderr(b"one");
    in_time(recorder.room()).await;
    recorder.stderr(b"two");
    assert_eq!(in_time(recorder.transcript()).await.expect("a transcript").records().len(), 2);
    let recorder = Recorder::in_memory().expect("memory");
    (0..LINES).for_each(|_| recorder.stderr(&line));
    in_time(async {
        recorder.flush().await.expect("written");
        recorder.room().await;
        assert_eq!(recorder.transcript().await.expect("a transcript").records().len(), LINES);
    })
    .await;
}

/// The limit of a recording in memory is for all of it, and each lost line is counted.
#[tokio::test]
async fn the_memory_of_a_recording_is_limited() {
    let recorder = Recorder::builder().memory_bytes(4096).in_memory().expect("memory");
    let mut lines = 0;
    in_time(async {
        while recorder.error().is_none() {
            recorder.stderr(&[b'x'; 100]);
            let _ = recorder.flush().await;
            lines += 1;
        }
    })
    .await;
    assert!(lines <= 40, "{lines} lines");
    const LINES: usize = 3000;
    let builder: RecorderBuilder = Recorder::builder().memory_bytes(1 << 20);
    let recorder = builder.in_memory().expect("memory");
    (0..LINES).for_each(|_| recorder.stderr(&[b'x'; 500]));
    assert!(matches!(in_time(recorder.flush()).await, Err(Error::MemoryFull { .. })));
    let transcript = recorder.transcript().await.expect("a transcript");
    let (last, kept) = transcript.records().split_last().expect("records");
    let lost = (LINES - kept.len()) as u64;
    assert_eq!(last.event, RecordEvent::Dropped { lines: lost, bytes: 500 * lost });
}
