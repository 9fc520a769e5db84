//! Recordings after a loss of power: blocks of NULs where the file system had promised more than it kept.

use std::fs;

use duologue_transcript::{Error, Recorder, Transcript};

fn recording(path: &std::path::Path) -> Vec<u8> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let recorder = Recorder::builder().program(["agent"]).create(path).expect("a file");
        for number in 0..6 {
            recorder.stderr(format!("line {number} of what it said").as_bytes());
        }
        recorder.finish().await.expect("written");
    });
    fs::read(path).expect("bytes")
}

/// Wherever the NULs are and however many: what is read was written, or the damage is named.
#[test]
fn a_block_of_nuls_is_never_taken_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    let whole = recording(&path);
    let records = Transcript::load(&path).expect("a transcript").records().to_vec();
    let (mut named, mut cut) = (0, 0);
    for block in [1, 7, 64, 512] {
        for start in 0..whole.len() {
            let end = (start + block).min(whole.len());
            let mut punched = whole.clone();
            punched[start..end].fill(0);
            match Transcript::read(punched.as_slice()) {
                Err(Error::NoHeader { .. }) => {
                    assert!(start < whole.iter().position(|b| *b == b'\n').unwrap_or(0) + 1)
                }
                Err(Error::Damaged { line, .. }) => {
                    let before = whole[..start].iter().filter(|byte| **byte == b'\n').count();
                    assert_eq!(line, before as u64 + 1, "{block} NULs at {start}");
                    named += 1;
                }
                Err(error) => panic!("{block} NULs at {start}: {error}"),
                Ok(read) => {
                    // Only within the last record, and then the transcript is marked as cut.
                    assert!(read.is_cut(), "{block} NULs at {start} are not seen");
                    assert!(records.starts_with(read.records()), "{block} NULs at {start}");
                    assert!(end == whole.len() && read.records().len() < records.len());
                    cut += 1;
                }
            }
        }
    }
    assert!(named > 100 && cut > 100, "{named} named, {cut} cut");
}

/// The file was made longer and the bytes never came: what goes on behind it does not fuse with them.
#[test]
fn a_recording_goes_on_behind_a_tail_of_nuls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    let mut whole = recording(&path);
    let records = Transcript::load(&path).expect("a transcript").records().to_vec();
    whole.extend([0; 4096]);
    fs::write(&path, &whole).expect("written");
    let read = Transcript::load(&path).expect("a transcript");
    assert!(read.is_cut() && read.records() == records);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let recorder = Recorder::builder().append(&path).expect("goes on");
        recorder.stderr(b"again");
        recorder.finish().await.expect("written");
    });
    let read = Transcript::load(&path).expect("a transcript");
    assert_eq!(read.records().len(), records.len() + 1);
    assert!(!read.is_cut());
    assert!(!fs::read(&path).expect("bytes").contains(&0), "the NULs are gone");
}
