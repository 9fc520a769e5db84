//! stdin and stdout of our agent: they belong to the conversation, whatever they are, and their end
//! is the end of the process, whatever it is doing.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use duologue_transcript::{Side, Transcript};
use serde_json::{Value, json};

use super::raw_client::{RawClient, Wire};
use super::trees::{GUARDED, inherited};
use duologue_test_support::{at_most, measured, runs};

const WIRES: [Wire; 5] = [Wire::Pipes, Wire::Fifos, Wire::Sockets, Wire::Socket, Wire::Terminal];
const IN_TIME: Duration = Duration::from_secs(2);

/// `println!`, programs that inherit stdout, and programs that read stdin: each line that arrives is a message, and
/// each that was sent is answered.
#[test]
fn nothing_else_gets_onto_the_wire_or_off_it() {
    let rounds = runs(1);
    let mut messages = 0;
    for wire in (0..rounds).flat_map(|_| WIRES) {
        let (mut client, session) = RawClient::introduced(&[GUARDED, "many"], wire);
        let first = client.prompt(&session, "print ; fds");
        // For the children to eat.
        let others: Vec<u64> =
            (0..50).map(|_| client.send("session/new", json!({"cwd": "/", "mcpServers": []}))).collect();
        let mut answered = Vec::new();
        let mut text = String::new();
        while answered.len() <= others.len() {
            let line = client.line();
            messages += 1;
            text += line["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
            answered.extend(line["id"].as_u64());
        }
        answered.sort_unstable();
        assert_eq!(answered, (first..=first + 50).collect::<Vec<_>>(), "{wire:?}");
        let (eaten, fds) = text.split_once(';').expect("two halves");
        assert_eq!(eaten, "Some(7) 0 0", "{wire:?}");
        let inherited = inherited();
        let own = |fd: &&str| {
            let number = fd.split('=').next().expect("a number").to_owned();
            fd.ends_with("=/dev/null") && number.len() == 1 || !inherited.contains(&number)
        };
        let fds: Vec<&str> = fds.split(' ').filter(own).collect();
        assert_eq!(fds, ["0=/dev/null", "1=/dev/null", "2=/dev/null"], "{wire:?}");
        assert!(!client.mode_leaked(), "{wire:?}: a descriptor became non-blocking");
        let (status, took) = client.hang_up(true);
        assert_eq!(status.code(), Some(0), "{wire:?}");
        assert!(took < at_most(Duration::from_secs(1)), "{wire:?}: {took:?}");
    }
    measured(format_args!("0 foreign bytes among {messages} messages, {} kinds of stdio", WIRES.len()));
}

/// Tries each kind of blocking call in each kind of runtime.
#[test]
fn a_stuck_handler_ends_with_the_input() {
    let mut threads = Vec::new();
    let slowest = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    for flavor in ["one", "many"] {
        for step in ["sleep", "spin", "blocking", "await", "flood", "say:3"] {
            for both in [false, true] {
                let wire = if both { Wire::Sockets } else { Wire::Pipes };
                let slowest = slowest.clone();
                threads.push(std::thread::spawn(move || {
                    let (mut client, session) = RawClient::introduced(&[GUARDED, flavor], wire);
                    client.prompt(&session, step);
                    std::thread::sleep(Duration::from_millis(200));
                    let (status, took) = client.hang_up(both);
                    assert_eq!(status.code(), Some(0), "{flavor} {step}");
                    let idle = step == "say:3";
                    let within = if idle { IN_TIME / 2 } else { IN_TIME };
                    assert!(took <= at_most(within), "{flavor} {step}: {took:?}");
                    slowest[usize::from(idle)].fetch_max(took.as_millis() as usize, Ordering::SeqCst);
                }));
            }
            // Not all at once: two of them compute for ever.
            if step == "blocking" || step == "say:3" {
                threads.drain(..).for_each(|thread| thread.join().expect("no failure"));
            }
        }
    }
    let [busy, idle] = [0, 1].map(|kind: usize| slowest[kind].load(Ordering::SeqCst));
    measured(format_args!("an idle agent ends {idle} ms after its input, the busiest after {busy} ms"));
}

/// Terminals have no end of input but their own.
#[test]
fn a_stuck_handler_ends_with_its_terminal() {
    for step in ["sleep", "await"] {
        let (mut client, session) = RawClient::introduced(&[GUARDED, "many"], Wire::Terminal);
        client.prompt(&session, step);
        std::thread::sleep(Duration::from_millis(100));
        let (status, took) = client.hang_up(true);
        assert_eq!(status.code(), Some(0), "{step}: {status} after {took:?}");
        assert!(took <= at_most(IN_TIME), "{step}: {took:?}");
    }
}

/// The tap is let go of with the connection, while the process still waits for its own end: what a recorder
/// has in its queue by then is written.
#[test]
fn the_recording_is_written_before_the_process_ends() {
    for flavor in (0..runs(3)).flat_map(|_| ["one", "many"]) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.jsonl");
        let agent = [GUARDED, flavor, path.to_str().expect("text")];
        let (mut client, session) = RawClient::introduced(&agent, Wire::Pipes);
        let prompt = client.prompt(&session, "say:2000");
        let mut said = 3;
        while client.line()["id"] != prompt {
            said += 1;
        }
        let (status, _) = client.hang_up(false);
        assert_eq!(status.code(), Some(0), "{flavor}");
        let transcript = Transcript::load(&path).expect("a transcript");
        let lines = transcript.records().iter().filter_map(|record| record.line());
        assert_eq!(lines.filter(|line| line.from == Side::Agent).count(), said, "{flavor}");
    }
}

fn lines(folder: &str) -> String {
    let frames = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": folder, "mcpServers": []}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "_unknown"}),
    ];
    frames.map(|frame| format!("{frame}\n")).concat()
}

fn from_file_to_file(program: &[&str], input: &str) -> (std::process::ExitStatus, Duration, String) {
    let [mut stdin, stdout] = std::array::from_fn(|_| tempfile::NamedTempFile::new().expect("a file"));
    stdin.write_all(input.as_bytes()).expect("written");
    let begun = Instant::now();
    let mut child = Command::new(program[0])
        .args(&program[1..])
        .stdin(stdin.reopen().expect("a file"))
        .stdout(stdout.reopen().expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let status = loop {
        match child.try_wait().expect("a status") {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(10) => {
                child.kill().expect("it lives");
                panic!("{program:?} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    (status, begun.elapsed(), std::fs::read_to_string(stdout.path()).expect("text"))
}

#[test]
fn files_are_read_to_their_end() {
    for flavor in ["one", "many"] {
        let (status, took, output) = from_file_to_file(&[GUARDED, flavor], &lines("/print"));
        assert_eq!(status.code(), Some(0));
        assert!(took < at_most(IN_TIME), "{took:?}");
        let ids: Vec<Value> = output
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].take())
            .collect();
        assert_eq!(ids.len(), 3, "{output}");
    }
    let (status, _, output) = from_file_to_file(&[GUARDED, "one"], "");
    assert_eq!((status.code(), output.as_str()), (Some(0), ""));
}

/// The end of a file can be seen from outside the runtime, too.
#[test]
fn a_stuck_handler_ends_with_its_file() {
    for flavor in ["one", "many"] {
        for step in ["/sleep", "/blocking", "/await"] {
            let (status, took, _) = from_file_to_file(&[GUARDED, flavor], &lines(step));
            assert_eq!(status.code(), Some(0), "{flavor} {step}");
            assert!(took <= at_most(IN_TIME), "{flavor} {step}: {took:?}");
        }
    }
}

/// The client leaves by its reading end only: writing fails, which is no panic.
#[test]
fn nobody_reads() {
    for flavor in ["one", "many"] {
        let (mut client, session) = RawClient::introduced(&[GUARDED, flavor], Wire::Pipes);
        client.prompt(&session, "flood");
        client.line();
        client.stop_reading();
        let (status, took) = client.left();
        assert_eq!(status.code(), Some(0), "{flavor}");
        assert!(took < at_most(IN_TIME), "{flavor}: {took:?}");
    }
}

/// 10 MB of prompts, written before a byte is read, to an agent that has 10 MB to say.
#[test]
fn both_pipes_full() {
    for wire in [Wire::Pipes, Wire::Sockets] {
        let (mut client, session) = RawClient::introduced(&[GUARDED, "one"], wire);
        let begun = Instant::now();
        let first = client.prompt(&session, "flood:10");
        let (mut others, padding) = (Vec::new(), "x".repeat(1_000_000));
        for _ in 0..10 {
            others.push(client.send("_unknown", json!({ "padding": padding })));
        }
        let mut left = 1 + others.len();
        while left > 0 {
            // The long ones are the flood: reading them is not what is measured here.
            let line = client.bytes();
            assert!(line.ends_with(b"\n"), "the agent left");
            if line.len() < 4096 {
                let line: Value = serde_json::from_slice(&line).expect("a message");
                assert!(line["id"] == first || line["error"]["code"] == -32601, "{line}");
                left -= 1;
            }
        }
        let took = begun.elapsed();
        // Three times what the bar asks of a release build on a quiet machine.
        assert!(took <= at_most(Duration::from_secs(15)), "{wire:?}: {took:?}");
        assert_eq!(client.hang_up(false).0.code(), Some(0));
    }
}
