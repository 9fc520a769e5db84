//! The recorder against crashes, full and slow disks, and whatever bytes come.
#![cfg(unix)]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_rpc::Transport;
use duologue_transcript::{
    Error, LineEnd, ProcessExit, RecordEvent, Recorder, RecorderBuilder, Redacted, Secrets, Side, Transcript,
    forward, proxy,
};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt as _};
use tokio::time::timeout;

/// Whatever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough to see that something waits.
const A_WHILE: Duration = Duration::from_millis(300);

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    (folder, path)
}

/// Passes what the client says to an agent that says nothing, and returns what the agent got.
async fn pass(recorder: &Recorder, said: &[u8]) -> Vec<u8> {
    let (mut agent, agent_end) = tokio::io::duplex(1 << 16);
    let (from_agent, to_agent) = tokio::io::split(agent_end);
    let client = Transport::new(std::io::Cursor::new(said.to_vec()), tokio::io::sink());
    let mut got = Vec::new();
    let reads = async {
        agent.read_to_end(&mut got).await.expect("bytes");
        drop(agent);
    };
    let (passed, ()) = tokio::join!(proxy(client, Transport::new(from_agent, to_agent), recorder), reads);
    passed.expect("passes");
    got
}

/// Returns the bytes that a side wrote, joined from its records.
fn said(transcript: &Transcript, side: Side) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in
        transcript.records().iter().filter_map(|record| record.line()).filter(|line| line.from == side)
    {
        bytes.extend_from_slice(line.bytes());
        bytes.extend_from_slice(line.end.as_str().as_bytes());
    }
    bytes
}

fn load(path: &Path) -> Transcript {
    Transcript::load(path).expect("a transcript")
}

/// Prints a measurement as a line that begins with `measured: `, for campaigns.
#[allow(clippy::print_stdout, reason = "it is read there")]
fn measured(text: impl std::fmt::Display) {
    println!("measured: {text}");
}

#[tokio::test]
async fn a_private_key_that_comes_line_by_line_is_not_written() {
    let (_folder, path) = folder();
    let recorder = Recorder::builder()
        .program(["agent", "--token", "hunter two"])
        .secrets(Secrets::default().pattern("(?i)secret").expect("a pattern"))
        .create(&path)
        .expect("a file");
    let key =
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nAQ==\n-----END PRIVATE KEY-----\n";
    pass(&recorder, key.replace("AQ==", "{\"id\":1,\"text\":\"MIIEvQIBADANBgkqhkiG\"}\nAQ==").as_bytes())
        .await;
    key.lines().for_each(|line| recorder.stderr(line.as_bytes()));
    timeout(PATIENCE, recorder.finish()).await.expect("it ends").expect("written");
    let transcript = load(&path);
    assert_eq!(transcript.header().program, ["agent", "--token", "[secret]"]);
    let lines: Vec<_> =
        said(&transcript, Side::Client).split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(
        String::from_utf8(lines.join(&b'|')).expect("text"),
        "[secret]|[secret]|{\"id\":1,\"text\":\"MIIEvQIBADANBgkqhkiG\"}|[secret]|[secret]|"
    );
    let errors = transcript.records().iter().filter(|it| it.event == RecordEvent::Stderr("[secret]".into()));
    assert_eq!(errors.count(), 4);
}

#[tokio::test]
async fn a_recording_cut_at_every_byte_is_read_and_gone_on_with() {
    let (_folder, path) = folder();
    let recorder = Recorder::builder().program(["agent"]).create(&path).expect("a file");
    pass(&recorder, b"{\"id\":1}\nnpm WARN\n\xff\xfe\r\n{\"id\":2}").await;
    recorder.stderr(b"oh");
    recorder.exit(ProcessExit::default());
    recorder.finish().await.expect("written");
    let whole = fs::read(&path).expect("bytes");
    let records = load(&path).records().to_vec();
    assert_eq!(records.len(), 8);

    let cut_path = path.with_file_name("cut.jsonl");
    for cut in 0..=whole.len() {
        let left = whole.get(..cut).expect("a beginning");
        // A record that lacks only its line feed is whole.
        let lacks_its_end = cut > 0 && whole.get(cut) == Some(&b'\n');
        let lines = left.iter().filter(|byte| **byte == b'\n').count() + usize::from(lacks_its_end);
        fs::write(&cut_path, left).expect("cut");
        if lines > 0 {
            let read = load(&cut_path);
            assert_eq!(read.records(), records.get(..lines - 1).expect("records"), "cut at {cut}");
            assert_eq!(read.is_cut(), !left.ends_with(b"\n") && !lacks_its_end, "cut at {cut}");
        }
        let recorder = Recorder::builder().append(&cut_path).expect("goes on");
        recorder.stderr(b"again");
        recorder.finish().await.expect("written");
        let read = load(&cut_path);
        let (last, before) = read.records().split_last().expect("records");
        assert_eq!(before, records.get(..lines.saturating_sub(1)).expect("records"), "cut at {cut}");
        assert_eq!(last.event, RecordEvent::Stderr("again".into()));
        assert!(before.last().is_none_or(|before| before.at <= last.at), "time goes on");
        assert!(!read.is_cut());
    }
    measured(format_args!("cut at each of {} bytes: read up to the last record, 0 fused", whole.len()));
}

#[tokio::test]
async fn the_file_is_its_owners_and_nothing_is_overwritten_or_followed() {
    let (folder, path) = folder();
    let open = |path: &Path| Recorder::create(path).map(drop);
    let refused = |result: Result<Recorder, Error>| assert!(matches!(result, Err(Error::File { .. })));
    open(&path).expect("a new file");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(matches!(open(&path), Err(Error::File { .. })), "it exists");

    // Nothing is written to a file that others may read or have open.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("open to all");
    let mut opened = fs::File::open(&path).expect("open");
    let recorder = Recorder::builder().replace(&path).expect("replaced");
    recorder.stderr(b"secret plans");
    recorder.finish().await.expect("written");
    let metadata = fs::metadata(&path).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_ne!(metadata.ino(), opened.metadata().expect("the old file").ino());
    let mut old = String::new();
    opened.read_to_string(&mut old).expect("the old file");
    assert!(!old.contains("secret plans"));

    let (link, victim) = (folder.path().join("link"), folder.path().join("victim"));
    fs::write(&victim, "mine").expect("a file");
    symlink(&victim, &link).expect("a link");
    refused(Recorder::create(&link));
    refused(Recorder::builder().replace(&link));
    refused(Recorder::builder().append(&link));
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "mine");
    // Nor is a file that is no transcript.
    assert!(matches!(Recorder::builder().append(&victim), Err(Error::NoHeader { .. })));
    fs::write(&victim, "mine\nall mine\n").expect("a file");
    assert!(matches!(Recorder::builder().append(&victim), Err(Error::NoHeader { .. })));
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "mine\nall mine\n");

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("open to all");
    let first = Recorder::builder().append(&path).expect("goes on");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    refused(Recorder::builder().append(&path));
    refused(Recorder::builder().replace(&path));
    first.stderr(b"still here");
    first.finish().await.expect("written");
    assert_eq!(load(&path).records().len(), 2, "nobody took its file away");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3, "nothing is left beside it");
    Recorder::builder().append(&path).expect("nobody else writes it");
    // The header says that secrets are taken out.
    refused(Recorder::builder().keep_secrets().append(&path));
}

/// A handle reads the recording after another one has renamed its file.
#[tokio::test]
async fn a_recording_is_read_before_and_after_it_replaces_a_file() {
    let (_folder, path) = folder();
    fs::write(&path, "old").expect("a file");
    let recorder = Recorder::builder().replace_at_end(&path).expect("a file");
    recorder.stderr(b"one");
    assert_eq!(recorder.transcript().await.expect("before").records().len(), 1);
    assert_eq!(fs::read(&path).expect("the old one"), b"old");
    recorder.clone().finish().await.expect("all");
    assert_eq!(recorder.transcript().await.expect("after").records().len(), 1);
}

#[tokio::test]
async fn nobody_goes_on_behind_a_time_that_no_recording_reaches() {
    let (_folder, path) = folder();
    drop(Recorder::create(&path).expect("a file"));
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a file");
    std::io::Write::write_all(&mut file, b"{\"at\":18446744073709551615,\"stderr\":\"late\"}")
        .expect("written");
    let before = fs::read(&path).expect("bytes");
    assert!(matches!(Recorder::builder().append(&path), Err(Error::File { .. })));
    assert_eq!(fs::read(&path).expect("bytes"), before, "it is left as it is");
}

/// Takes one write, and no more.
struct Broken(bool);

impl tokio::io::AsyncWrite for Broken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let broken = std::mem::replace(&mut self.0, true);
        Poll::Ready(if broken { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn forwarded_parts_of_a_line_are_recorded_however_it_ends() {
    let (_folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    // Once nobody takes the rest, once nobody passes it on.
    let pieces = AsyncReadExt::chain(&b"{\"delivered\":"[..], &b"1"[..]);
    assert!(forward(Side::Client, pieces, Broken(false), &recorder).await.is_err());
    let (mut agent, from) = tokio::io::duplex(64);
    agent.write_all(b"half").await.expect("a proxy");
    assert!(timeout(A_WHILE, forward(Side::Agent, from, tokio::io::sink(), &recorder)).await.is_err());
    recorder.finish().await.expect("written");
    let transcript = load(&path);
    assert_eq!(said(&transcript, Side::Client), b"{\"delivered\":1");
    assert_eq!(said(&transcript, Side::Agent), b"half");
    assert_eq!(transcript.records().len(), 2, "neither side has ended");
}

#[tokio::test]
async fn a_full_disk_is_an_error_of_its_own() {
    let full = Recorder::builder().replace("/dev/full");
    assert!(matches!(full, Err(Error::DiskFull { path }) if path == Path::new("/dev/full")));
}

/// A file whose reader has stopped: a pipe that somebody opened and does not read.
fn stopped_disk(folder: &TempDir) -> (PathBuf, fs::File) {
    let path = folder.path().join("slow");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    let reader = fs::OpenOptions::new().read(true).write(true).open(&path).expect("a reader");
    (path, reader)
}

/// Reads a transcript from a pipe that stays open, up to the record that says how the agent ended.
fn read_until_exit(mut disk: fs::File) -> Transcript {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\"exit\":{\"code\":0}}\n") {
        let mut piece = [0; 4096];
        let count = disk.read(&mut piece).expect("bytes");
        bytes.extend_from_slice(piece.get(..count).expect("a piece"));
    }
    Transcript::read(bytes.as_slice()).expect("a transcript")
}

fn well() -> ProcessExit {
    let mut exit = ProcessExit::default();
    exit.code = Some(0);
    exit
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_slow_disk_the_wire_waits_and_nothing_is_lost() {
    let (folder, _) = folder();
    let (path, disk) = stopped_disk(&folder);
    let recorder = Recorder::builder().queue_bytes(64 * 1024).replace(path).expect("a file");
    let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1000));
    let talk = line.repeat(2000).into_bytes();
    let (mut client, client_end) = tokio::io::duplex(1 << 12);
    let passing = tokio::spawn({
        let (recorder, (from_client, to_client)) = (recorder.clone(), tokio::io::split(client_end));
        let agent = Transport::new(tokio::io::empty(), tokio::io::sink());
        async move { proxy(Transport::new(from_client, to_client), agent, &recorder).await }
    });
    // The pipe takes 64 KiB, and what was read before it was full is on its way.
    let mut rest = talk.as_slice();
    while let Ok(count) = timeout(A_WHILE, client.write(rest)).await {
        rest = rest.get(count.expect("a proxy")..).expect("the rest");
    }
    let sent = talk.len() - rest.len();
    assert!(sent < 400_000, "{sent} bytes went through");

    let reading = tokio::task::spawn_blocking(move || read_until_exit(disk));
    timeout(PATIENCE, client.write_all(rest)).await.expect("the wire goes on").expect("a proxy");
    drop(client);
    timeout(PATIENCE, passing).await.expect("the end").expect("no panic").expect("passes");
    recorder.exit(well());
    recorder.finish().await.expect("written");
    let transcript = timeout(PATIENCE, reading).await.expect("read").expect("no panic");
    assert!(said(&transcript, Side::Client) == talk, "all of it is recorded");
    assert!(!transcript.records().iter().any(|record| matches!(record.event, RecordEvent::Dropped { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lossy_recorder_leaves_lines_out_and_says_how_many() {
    let (folder, _) = folder();
    let (path, disk) = stopped_disk(&folder);
    let recorder = Recorder::builder().lossy().queue_bytes(64 * 1024).replace(path).expect("a file");
    let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(1000));
    let talk = line.repeat(2000).into_bytes();
    let got = timeout(PATIENCE, pass(&recorder, &talk)).await.expect("the wire does not wait");
    assert!(got == talk, "no byte is changed");

    let reading = tokio::task::spawn_blocking(move || read_until_exit(disk));
    recorder.exit(well());
    recorder.finish().await.expect("written");
    let transcript = timeout(PATIENCE, reading).await.expect("read").expect("no panic");
    let recorded = said(&transcript, Side::Client).len() / line.len();
    let dropped: u64 = transcript
        .records()
        .iter()
        .map(|record| match record.event {
            RecordEvent::Dropped { lines, bytes } => {
                assert_eq!(bytes, lines * (line.len() as u64 - 1));
                lines
            }
            _ => 0,
        })
        .sum();
    assert!(dropped > 1000, "{dropped} lines were dropped");
    assert_eq!(recorded as u64 + dropped, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_of_dropped_lines_is_flushed_too() {
    count_is_flushed(Recorder::builder().lossy()).await;
}

/// The reader of an agent's stderr may neither wait for the disk nor fill the memory.
#[tokio::test(flavor = "multi_thread")]
async fn stderr_that_finds_no_room_is_counted() {
    count_is_flushed(Recorder::builder()).await;
}

async fn count_is_flushed(recorder: RecorderBuilder) {
    let (folder, _) = folder();
    let (path, mut disk) = stopped_disk(&folder);
    let recorder = recorder.queue_bytes(1).replace(path).expect("a file");
    // The thread hangs on what the pipe does not take, so that the next line finds no room.
    recorder.stderr(&[b'x'; 200_000]);
    tokio::time::sleep(A_WHILE).await;
    recorder.stderr(b"no room");
    let reading = tokio::task::spawn_blocking(move || {
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        while !text.ends_with("\"dropped\":{\"lines\":1,\"bytes\":7}}\n") {
            let count = disk.read(&mut piece).expect("bytes");
            text.push_str(&String::from_utf8_lossy(piece.get(..count).expect("a piece")));
        }
    });
    recorder.flush().await.expect("written");
    timeout(PATIENCE, reading).await.expect("the note is there").expect("no panic");
}

/// Pieces of a line are one line. The last line ends with the writer.
#[tokio::test]
async fn a_writer_records_stderr_line_by_line() {
    let recorder = Recorder::builder().in_memory().expect("a recorder");
    let mut writer = recorder.stderr_writer();
    let long = duologue_rpc::Limits::default().frame_bytes + 1;
    for piece in [b"one\r\nt".as_slice(), b"", b"wo\n\nthr", &vec![b'x'; long], b"\nlast"] {
        std::io::Write::write_all(&mut writer, piece).expect("it never fails");
    }
    let events = async |recorder: &Recorder| -> Vec<_> {
        let transcript = recorder.transcript().await.expect("a transcript");
        transcript.records().iter().map(|record| record.event.clone()).collect()
    };
    let dropped = RecordEvent::Dropped { lines: 1, bytes: long as u64 + 3 };
    let mut expected: Vec<_> = ["one", "two", ""].map(|line| RecordEvent::Stderr(line.into())).into();
    expected.push(dropped);
    assert_eq!(events(&recorder).await, expected);
    drop(writer);
    expected.push(RecordEvent::Stderr("last".into()));
    assert_eq!(events(&recorder).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_waits_for_the_queue_but_not_for_ever() {
    let (folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    let tap = recorder.tap(Side::Agent);
    for _ in 0..100 {
        recorder.stderr(b"a line");
    }
    drop(recorder);
    drop(tap);
    assert_eq!(load(&path).records().len(), 100);

    let (path, _disk) = stopped_disk(&folder);
    let recorder = Recorder::builder().replace(path).expect("a file");
    recorder.stderr(&[b'x'; 200_000]);
    let dropping = tokio::task::spawn_blocking(move || drop(recorder));
    timeout(PATIENCE, dropping).await.expect("it does not wait for ever").expect("no panic");
}

#[tokio::test]
async fn records_after_the_end_are_ignored() {
    let (_folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    let other = recorder.clone();
    recorder.stderr(b"before");
    recorder.sync().await.expect("on the disk");
    assert_eq!(load(&path).records().len(), 1);
    recorder.finish().await.expect("written");
    other.stderr(b"after");
    other.flush().await.expect("nothing went wrong");
    assert!(other.error().is_none() && other.stopped().await.is_none());
    assert_eq!(load(&path).records().len(), 1);
}

#[tokio::test]
async fn a_line_over_the_limit_is_passed_on_and_counted() {
    let (_folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    let long = [b"{\"id\":1}\n\"".to_vec(), vec![b'x'; 20 << 20], b"\"\r\n{}\n".to_vec()].concat();
    assert!(pass(&recorder, &long).await == long, "no byte is changed");
    recorder.finish().await.expect("written");
    let transcript = load(&path);
    let events: Vec<_> = transcript.records().iter().map(|record| &record.event).collect();
    assert!(matches!(
        events.as_slice(),
        [RecordEvent::Line(first), RecordEvent::Dropped { lines: 1, bytes }, RecordEvent::Line(last), ..]
            if &first.bytes() == b"{\"id\":1}" && *bytes == (20 << 20) + 3 && &last.bytes() == b"{}"
    ));
}

#[tokio::test]
async fn bytes_without_the_end_of_a_line_are_passed_on_at_once() {
    let (_folder, path) = folder();
    let recorder = Recorder::create(&path).expect("a file");
    let (mut client, client_end) = tokio::io::duplex(64);
    let (mut agent, agent_end) = tokio::io::duplex(64);
    let (a, b) = tokio::io::split(client_end);
    let (c, d) = tokio::io::split(agent_end);
    let talk = async {
        let mut piece = [0; 64];
        agent.write_all(b"name? ").await.expect("a proxy");
        let count = client.read(&mut piece).await.expect("a proxy");
        assert_eq!(piece.get(..count), Some(&b"name? "[..]));
        // One direction is closed, and the opposite one still works.
        client.shutdown().await.expect("a proxy");
        assert_eq!(agent.read(&mut piece).await.expect("a proxy"), 0);
        agent.write_all(b"bye\n").await.expect("a proxy");
        let count = client.read(&mut piece).await.expect("a proxy");
        assert_eq!(piece.get(..count), Some(&b"bye\n"[..]));
        // Received lines are in the file.
        assert_eq!(said(&load(&path), Side::Agent), b"name? bye\n");
        drop(agent);
    };
    let (passed, ()) = timeout(PATIENCE, async {
        tokio::join!(proxy(Transport::new(a, b), Transport::new(c, d), &recorder), talk)
    })
    .await
    .expect("no waiting");
    passed.expect("passes");
}

/// Bytes with all that is special, in lines of any length.
fn wire_bytes() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(prop_oneof![Just(0u8), Just(b'\r'), Just(b'{'), Just(b'}'), Just(0xff)], 0..10),
        Just(br#"{"jsonrpc":"2.0","method":"x" , "params":{}}"#.to_vec()),
        Just(b"\xEF\xBB\xBF{}".to_vec()),
        (1000..70_000usize).prop_map(|length| vec![b'y'; length]),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\n\n"), Just("")];
    prop::collection::vec((line, end), 0..12)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, end)| [line, end.into()].concat()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_proxy_changes_no_byte_and_the_file_has_them_all(
        from_client in wire_bytes(),
        from_agent in wire_bytes(),
        steps in prop::collection::vec(1..5000usize, 1..8),
        capacity in 1..4096usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (_folder, path) = folder();
        let (to_agent, to_client) = runtime.block_on(async {
            let recorder = Recorder::builder().keep_secrets().create(&path).expect("a file");
            let (client, client_end) = tokio::io::duplex(capacity);
            let (agent, agent_end) = tokio::io::duplex(capacity);
            let (a, b) = tokio::io::split(client_end);
            let (c, d) = tokio::io::split(agent_end);
            let speak = async |end: tokio::io::DuplexStream, said: &[u8]| {
                let (mut reader, mut writer) = tokio::io::split(end);
                let writes = async {
                    let mut rest = said;
                    for step in steps.iter().cycle() {
                        if rest.is_empty() {
                            break;
                        }
                        let (piece, after) = rest.split_at((*step).min(rest.len()));
                        writer.write_all(piece).await.expect("a proxy");
                        rest = after;
                    }
                    writer.shutdown().await.expect("a proxy");
                };
                let mut got = Vec::new();
                let (read, ()) = tokio::join!(reader.read_to_end(&mut got), writes);
                read.expect("a proxy");
                got
            };
            let (passed, to_client, to_agent) = tokio::join!(
                proxy(Transport::new(a, b), Transport::new(c, d), &recorder),
                speak(client, &from_client),
                speak(agent, &from_agent),
            );
            passed.expect("passes");
            recorder.finish().await.expect("written");
            (to_agent, to_client)
        });
        prop_assert!(to_agent == from_client && to_client == from_agent, "a byte was changed");
        let transcript = load(&path);
        prop_assert_eq!(transcript.header().redacted, Redacted::Nothing);
        prop_assert!(said(&transcript, Side::Client) == from_client);
        prop_assert!(said(&transcript, Side::Agent) == from_agent);
    }
}

#[tokio::test]
async fn two_hundred_planted_secrets_leave_none_in_the_file() {
    let (_folder, path) = folder();
    let random = |seed: u64, letters: &str, length: usize| -> String {
        let letters: Vec<char> = letters.chars().collect();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            letters.get((state >> 33) as usize % letters.len()).copied().unwrap_or('x')
        };
        (0..length).map(next).collect()
    };
    let alphanumeric = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    // Twenty shapes: what is secret, and the line around it.
    let shape = |kind: u64, seed: u64| -> (String, String) {
        let text = random(seed, alphanumeric, 36);
        let update = |said: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":{}}}}}}}}}"#,
                serde_json::Value::from(said)
            )
        };
        let prefixed = |prefix: &str| {
            let secret = format!("{prefix}{text}");
            (secret.clone(), update(&format!("the key is {secret}, keep it")))
        };
        match kind {
            0 => prefixed("sk-"),
            1 => prefixed("sk-ant-api03-"),
            2 => prefixed("ghp_"),
            3 => prefixed("github_pat_"),
            4 => prefixed("glpat-"),
            5 => prefixed("AIza"),
            6 => prefixed("hf_"),
            7 => prefixed("xoxb-1"),
            8 => prefixed("sk_live_"),
            9 => {
                let secret = format!("AKIA{}", random(seed, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16));
                (secret.clone(), update(&secret))
            }
            10 => {
                let secret = format!("eyJhbGciOiJIUzI1NiJ9.{text}.{text}");
                (secret.clone(), update(&secret))
            }
            11 => (text.clone(), update(&format!("curl -H 'Authorization: Bearer {text}' x"))),
            12 => (
                text.clone(),
                update(&format!(
                    "export SERVICE_API_KEY={text}
next"
                )),
            ),
            13 => (text.clone(), update(&format!("postgres://me:{text}@host/db"))),
            14 => (text.clone(), update(&format!(r#"{{"client_secret": "{text}"}}"#))),
            15 => (
                text.clone(),
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{{"cwd":"/w","mcpServers":[{{"name":"m","command":"m","args":[],"env":[{{"name":"PLAIN","value":"{text}"}}]}}]}}}}"#
                ),
            ),
            16 => (
                text.clone(),
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"session/new","params":{{"cwd":"/w","mcpServers":[{{"type":"http","name":"m","url":"https://h/","headers":[{{"name":"X-Mine","value":"{text}"}}]}}]}}}}"#
                ),
            ),
            17 => (
                text.clone(),
                format!(
                    r#"{{"jsonrpc":"2.0","id":"a","method":"authenticate","params":{{"methodId":"m","_meta":{{"pin":"{text}"}}}}}}"#
                ),
            ),
            18 => (text.clone(), format!("npm ERR! //registry/:_authToken={text}")),
            _ => (text.clone(), format!("GET /?access_token={text} 200")),
        }
    };
    let planted: Vec<_> = (0..200).map(|seed| shape(seed % 20, seed + 1)).collect();
    let words = ["agent", "--api-key", "0p9o8i7u6y5t4r3e", "--header=Authorization: Bearer q1w2e3r4t5y6u7i8"];
    let recorder = Recorder::builder().program(words).create(&path).expect("a file");
    for (_, line) in &planted {
        pass(
            &recorder,
            format!(
                "{line}
"
            )
            .as_bytes(),
        )
        .await;
        recorder.stderr(line.as_bytes());
    }
    let tap = recorder.tap(Side::Client);
    let (ours, theirs) = Transport::memory();
    let peer = duologue_rpc::PeerBuilder::new(ours).tap(tap).start(|_| Silent);
    drop(theirs);
    for (secret, _) in &planted {
        let params =
            serde_json::json!({"sessionId": "s", "headers": {"Authorization": format!("Bearer {secret}")}});
        let _ = peer.notify_raw("session/cancel", &params).await;
    }
    recorder.finish().await.expect("written");

    let written = fs::read_to_string(&path).expect("text");
    let left: Vec<_> = planted.iter().filter(|(secret, _)| written.contains(secret)).collect();
    assert!(left.is_empty(), "{} are left, such as {:?}", left.len(), left.first());
    assert!(!written.contains("0p9o8i7u6y5t4r3e") && !written.contains("q1w2e3r4t5y6u7i8"), "the header");
    let transcript = load(&path);
    assert_eq!(transcript.header().redacted, Redacted::Secrets);
    assert!(transcript.records().len() > 600, "what is no secret is there");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    measured(format_args!("0 of {} planted secrets, mode 0600", planted.len()));
    assert!(transcript.records().iter().filter_map(|it| it.line()).all(|line| line.end == LineEnd::Lf));
}

struct Silent;
impl duologue_rpc::Service for Silent {
    fn request(&self, _: duologue_rpc::Incoming<'_>, _: duologue_rpc::Responder) {}
    fn notification(&self, _: duologue_rpc::Incoming<'_>) {}
}
