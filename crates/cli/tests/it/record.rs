//! `duologue record` between real processes.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use duologue_transcript::{RecordEvent, Side, Transcript};
use insta::assert_snapshot;
use tempfile::TempDir;

use crate::process::{DUOLOGUE, run};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    (folder, path)
}

fn record(path: &Path, options: &[&str], agent: &[&str]) -> Command {
    let mut command = Command::new(DUOLOGUE);
    command.arg("record").arg("-o").arg(path).args(options).arg("--").args(agent);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(transcript: &Transcript, side: Side) -> Vec<u8> {
    let lines = transcript.records().iter().filter_map(|record| record.line());
    lines
        .filter(|line| line.from == side)
        .flat_map(|line| [line.bytes(), line.end.as_str().as_bytes()].concat())
        .collect()
}

/// Prints a line that begins with `measured: `. A campaign collects these lines for its report.
#[allow(clippy::print_stdout, reason = "it is read there")]
fn measured(text: impl std::fmt::Display) {
    println!("measured: {text}");
}

fn load(path: &Path) -> Transcript {
    Transcript::load(path).expect("a transcript")
}

/// The records without their times.
fn events(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("text");
    let untimed = |line: &str| line.split_once(',').map_or(line, |(_, rest)| rest).to_owned();
    text.lines().skip(1).map(untimed).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_thing_that_happens_is_a_record() {
    let (_folder, path) = folder();
    let script = "read line; echo loading >&2; sleep 0.2; printf '{\"said\":\"%s\"}\\n' \"$line\"; exit 3";
    let output = run(&mut record(&path, &[], &["sh", "-c", script]), b"hello\n");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"{\"said\":\"hello\"}\n");
    assert_eq!(output.stderr, b"loading\n");
    assert_snapshot!(events(&path), @r#"
    "from":"client","text":"hello"}
    "eof":"client"}
    "stderr":"loading"}
    "from":"agent","frame":{"said":"hello"}}
    "eof":"agent"}
    "exit":{"code":3}}
    "#);
    let header = load(&path).header().clone();
    assert_eq!(header.program, ["sh", "-c", script]);
}

#[test]
fn no_byte_is_changed_whatever_it_is() {
    let (_folder, path) = folder();
    let odd = b"\x00\xff\xfe\r\n\n\r\r\n{\"a\":1}\r\n \t{}\n\xEF\xBB\xBF{}\n".repeat(1000);
    let long = [b"\"".to_vec(), vec![b'x'; 20 << 20], b"\"\n".to_vec()].concat();
    let input = [&odd, long.as_slice(), &odd, b"no end"].concat();
    let output = run(&mut record(&path, &["--redact-secrets=false"], &["cat"]), &input);
    assert!(output.status.success());
    assert!(output.stdout == input, "{} of {} bytes", output.stdout.len(), input.len());
    let transcript = load(&path);
    let kept = [&odd, odd.as_slice(), b"no end"].concat();
    assert!(said(&transcript, Side::Client) == kept && said(&transcript, Side::Agent) == kept);
    let long: Vec<_> = transcript
        .records()
        .iter()
        .filter_map(|record| match record.event {
            RecordEvent::Dropped { lines, bytes } => Some((lines, bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(long, [(1, (20 << 20) + 2), (1, (20 << 20) + 2)]);
}

#[test]
fn secrets_reach_the_agent_and_not_the_file() {
    let (_folder, path) = folder();
    let line = b"{\"api_key\":\"sk-proj-0123456789abcdefghij\"}\n";
    let output = run(&mut record(&path, &[], &["cat"]), line);
    assert_eq!(output.stdout, line);
    assert_snapshot!(events(&path), @r#"
    "from":"client","frame":{"api_key":"[secret]"}}
    "eof":"client"}
    "from":"agent","frame":{"api_key":"[secret]"}}
    "eof":"agent"}
    "exit":{"code":0}}
    "#);
    run(&mut record(&path, &["--force", "--redact-secrets=false"], &["cat"]), line);
    assert_eq!(said(&load(&path), Side::Client), line);
}

#[test]
fn it_ends_as_the_agent_does() {
    let (_folder, path) = folder();
    let code = |options: &[&str], agent: &[&str]| {
        let output = run(&mut record(&path, options, agent), b"");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).replace(&*path.to_string_lossy(), "FILE"),
        )
    };
    assert_eq!(code(&[], &["true"]), (Some(0), String::new()));
    assert_eq!(code(&["--force"], &["sh", "-c", "kill -11 $$"]), (Some(128 + 11), String::new()));
    let (status, note) = code(&[], &["true"]);
    assert_eq!(status, Some(0));
    assert!(note.starts_with("recording to ") && note.ends_with("talk-2.jsonl\n"), "{note}");
    fs::remove_file(path.with_file_name("talk-2.jsonl")).expect("a second file");
    assert_eq!(code(&["--force"], &["false"]).0, Some(1));
    let (status, complaint) = code(&["--force"], &["no-such-agent"]);
    assert_eq!(status, Some(3));
    assert!(complaint.starts_with("error: cannot start no-such-agent"), "{complaint}");
    // Nothing stands in the way of the next try.
    assert_eq!(code(&[], &["no-such-agent"]).0, Some(3));
    assert_eq!(code(&[], &["true"]).0, Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_before_the_agent_starts() {
    let output = run(&mut record(Path::new("/dev/full"), &["--force"], &["echo", "started"]), b"");
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(output.stdout, b"");
    assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: /dev/full: the disk is full; the recording ends here");
}

#[test]
fn when_the_file_takes_no_more_the_conversation_goes_on() {
    let (_folder, path) = folder();
    // A limit on the size of files needs no rights; one block is 512 bytes or 1 KiB.
    let limited = |agent: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh", DUOLOGUE])
            .args(["record", "--force", "-o"])
            .arg(&path)
            .args(["--", "sh", "-c", agent]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let lines = "{\"a line\":1}\n".repeat(10_000);
    let output = run(&mut limited("cat"), lines.as_bytes());
    assert!(output.stdout == lines.as_bytes(), "all of it passes");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint.matches("recording stopped").count(), 1, "{complaint}");
    assert!(complaint.ends_with("the conversation goes on\n"), "{complaint}");
    assert_eq!(output.status.code(), Some(4), "the recording is incomplete");
    let transcript = load(&path);
    assert!(!transcript.is_cut(), "it ends with a whole record");
    assert!(transcript.records().len() > 50);
    assert!(
        transcript
            .records()
            .iter()
            .filter_map(|record| record.line())
            .all(|line| line.bytes() == b"{\"a line\":1}")
    );

    let output = run(&mut limited("cat; exit 9"), lines.as_bytes());
    assert_eq!(output.status.code(), Some(9), "the agent's own code comes first");
}

/// Returns true if any process has this word on its command line.
#[cfg(target_os = "linux")]
fn runs(word: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes.into_iter().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_agent_and_what_it_started() {
    for (signal, seconds) in [("TERM", 31415), ("INT", 31416), ("HUP", 31417)] {
        // Somebody else may run this test at the same time.
        let name = &format!("{seconds}.{}", std::process::id());
        let (_folder, path) = folder();
        let agent = format!("sleep {name} & echo up; sleep {name}; true");
        let mut child = record(&path, &[], &["sh", "-c", &agent]).spawn().expect("it starts");
        let mut up = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut up).expect("a line");
        // The shell says that it is up when it has forked, and what it forked has yet to become `sleep`.
        wait_until(|| runs(name), "nothing was started");
        kill(&child, signal);
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(128 + 15), "{signal}: the agent was asked to terminate");
        wait_until(|| !runs(name), &format!("{signal} left something running"));
        assert!(events(&path).contains(r#""exit":{"signal":15}"#));
    }
}

#[test]
fn an_agent_that_does_not_end_with_its_input_is_ended() {
    // One that owes an answer is waited for, however quiet it is. One that still speaks may finish.
    let quiet = "cat >/dev/null; sleep 4; echo '{\"id\":1,\"result\":{}}'";
    let question = &b"{\"id\":1,\"method\":\"session/prompt\"}\n"[..];
    let slow = "cat >/dev/null; for i in 1 2 3 4 5; do sleep 1; echo $i; done";
    let cases = [
        (&["sleep", "1000"][..], &b""[..], 128 + 15, &b""[..]),
        (&["sh", "-c", quiet], question, 0, b"{\"id\":1,\"result\":{}}\n"),
        (&["sh", "-c", slow], b"", 0, b"1\n2\n3\n4\n5\n"),
    ];
    std::thread::scope(|scope| {
        for (agent, input, code, expected) in cases {
            scope.spawn(move || {
                let (_folder, path) = folder();
                let output = run(&mut record(&path, &[], agent), input);
                assert_eq!((output.status.code(), &*output.stdout), (Some(code), expected), "{agent:?}");
            });
        }
    });
}

fn wait_until(holds: impl Fn() -> bool, complaint: &str) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{complaint}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(child: &Child, signal: &str) {
    let killed = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(killed.expect("kill").success());
}

/// All lines that reached the other side are in the file, and no two lines are merged into one.
#[test]
fn killed_at_random_points_it_loses_nothing_that_was_received() {
    let (folder, path) = folder();
    let points = std::env::var("DUOLOGUE_RUNS").map_or(20, |runs| runs.parse().expect("a number"));
    let mut state: u64 = 0x2545_F491_4F6C_DD1D;
    let mut recorded = 0;
    for point in 0..points {
        let got_path = folder.path().join(format!("got-{point}.jsonl"));
        // The agent writes down what it gets, and says it back.
        let agent = format!("exec tee {}", got_path.display());
        let mut child = record(&path, &["--force"], &["sh", "-c", &agent]).spawn().expect("it starts");
        let (mut stdin, mut stdout) =
            (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let writing = std::thread::spawn(move || {
            for number in 0.. {
                let padding = "x".repeat(number % 7 * 300);
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"_x\",\"params\":[\"{padding}\"]}}\n"
                );
                if stdin.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            stdout.read_to_end(&mut got).expect("bytes");
            got
        });
        // At every second point it is well under way, however busy the machine is.
        let under_way = || fs::metadata(&got_path).is_ok_and(|got| got.len() > 0);
        let begun = Instant::now();
        while point % 2 == 1 && !under_way() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(500 + (state >> 33) % 25_000));
        child.kill().expect("killed");
        assert_eq!(child.wait().expect("it ended").signal(), Some(9));
        writing.join().expect("no panic");
        let client_got = reading.join().expect("no panic");

        if !path.exists() || fs::metadata(&path).expect("a file").len() == 0 {
            // It had not begun.
            assert!(client_got.is_empty());
            continue;
        }
        let transcript = load(&path);
        let (asked, answered) = (said(&transcript, Side::Client), said(&transcript, Side::Agent));
        recorded += transcript.records().len();
        let whole = |got: &[u8]| got.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let received = |got: &[u8], said: &[u8], who: &str| {
            assert!(said.get(..whole(got)) == got.get(..whole(got)), "{who} at point {point}");
        };
        received(&client_got, &answered, "the client");
        // The agent reads what is in its pipe and ends by itself; what it has by now is enough.
        received(&fs::read(&got_path).unwrap_or_default(), &asked, "the agent");
        for line in transcript.entries() {
            assert!(
                matches!(line.parsed, duologue_transcript::ParsedLine::Request { .. }),
                "fused at point {point}"
            );
        }
    }
    assert!(recorded > 0, "the points are too early");
    measured(format_args!("killed at {points} points in {recorded} records: 0 received lines lost, 0 fused"));
}

/// A pipe that was given to it is not left non-blocking.
#[cfg(target_os = "linux")]
#[test]
fn the_pipes_it_is_given_stay_as_they_are() {
    let (_folder, path) = folder();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (mut answers, answering) = std::io::pipe().expect("a pipe");
    let kept = (reader.try_clone().expect("a copy"), answering.try_clone().expect("a copy"));
    let mut child = record(&path, &[], &["cat"]).stdin(reader).stdout(answering).spawn().expect("it starts");
    writer.write_all(b"ping\n").expect("a pipe");
    let mut got = [0; 5];
    answers.read_exact(&mut got).expect("a pipe");
    assert_eq!(&got, b"ping\n");
    let nonblocking = |flags: rustix::fs::OFlags| flags.contains(rustix::fs::OFlags::NONBLOCK);
    assert!(!nonblocking(rustix::fs::fcntl_getfl(&kept.0).expect("flags")));
    assert!(!nonblocking(rustix::fs::fcntl_getfl(&kept.1).expect("flags")));
    drop(writer);
    assert!(child.wait().expect("it ends").success());
}

/// An editor starts the same command again and again, also at the same time.
#[test]
fn each_start_has_a_file_of_its_own() {
    let (folder, path) = folder();
    let mut running: Vec<Child> =
        (0..3).map(|_| record(&path, &[], &["cat"]).spawn().expect("it starts")).collect();
    for (number, child) in running.iter_mut().enumerate() {
        let mut stdin = child.stdin.take().expect("a pipe");
        writeln!(stdin, "{number}").expect("written");
    }
    for child in running {
        assert!(child.wait_with_output().expect("it ends").status.success());
    }
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names, ["talk-2.jsonl", "talk-3.jsonl", "talk.jsonl"]);
    let mut lines: Vec<_> =
        names.iter().map(|name| said(&load(&path.with_file_name(name)), Side::Client)).collect();
    lines.sort();
    assert_eq!(lines, [b"0\n", b"1\n", b"2\n"]);
}

/// A pipe is opened only if it is read, since opening it would wait for a reader.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_without_a_reader_is_an_error() {
    let (_folder, path) = folder();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe");
    let output = run(&mut record(&path, &["--force"], &["cat"]), b"hi\n");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("no program reads this pipe"), "{complaint}");
    assert_eq!(output.status.code(), Some(4));
    let reading = path.clone();
    let reader = std::thread::spawn(move || fs::read_to_string(reading));
    while run(&mut record(&path, &["--force"], &["cat"]), b"hi\n").status.code() != Some(0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(reader.join().expect("no panic").expect("text").contains("\"text\":\"hi\""));
}

/// Nothing reads the response that the hung agent owes.
#[cfg(target_os = "linux")]
#[test]
fn a_hung_agent_ends_after_its_client_has_died() {
    let (_folder, path) = folder();
    let script = "read line; exec sleep 1000";
    let mut child = record(&path, &[], &["sh", "-c", script]).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt"}}"#).expect("written");
    drop(stdin);
    std::thread::sleep(Duration::from_secs(4));
    assert!(child.try_wait().expect("it runs").is_none(), "a client that still reads gets its response");
    drop(child.stdout.take());
    assert!(!child.wait().expect("it ends").success(), "the agent is ended by a signal");
    assert!(!said(&load(&path), Side::Client).is_empty());
}
