//! A soak of `duologue serve` and `duologue connect`: clients over both transports open and close sessions and prompt, while
//! their connections are cut at random. Each prompt has exactly one response, and its text is whole. Between the phases of
//! work everything rests, and the resources of the processes are compared.
//!
//! The test takes some seconds, or as many minutes as `cargo xtask soak --remote --minutes M [--seed N]` says.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cut_relay::CutRelay;
use crate::process::DUOLOGUE;
use crate::served::{Server, prompt, text};

/// The length and the seed of the run, if they are chosen.
const MINUTES: &str = "DUOLOGUE_MINUTES";
const SEED: &str = "DUOLOGUE_SEED";

/// The phases of work of a run without a length, and their time.
const QUICK: (u32, Duration) = (2, Duration::from_secs(3));
/// The time of a phase of a longer run.
const PHASE: Duration = Duration::from_secs(45);
/// The time in which the processes come to rest. Threads that block end after 10 s.
const REST: Duration = Duration::from_secs(15);
/// The time of the first rest of a run without a length.
const QUICK_REST: Duration = Duration::from_secs(2);
/// The idle connections for requests that a side has not closed yet.
const IDLE_SOCKETS: usize = 4;
/// The time for any answer. Resuming a connection may take some attempts.
const PATIENCE: Duration = Duration::from_secs(60);
/// The memory by which a process may grow between the second rest and the last one of a longer run, in KiB.
const GROWTH_KIB: u64 = 4 * 1024;
/// Makes the C library return freed memory to the system.
const GIVE_BACK: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "65536")];

/// A client on the stdio of `duologue connect`.
struct SoakClient {
    process: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    requests: u64,
}

impl SoakClient {
    fn start(token: &str, url: &str, transport: &str) -> Self {
        let mut command = Command::new(DUOLOGUE);
        command.args(["connect", "--transport", transport, "--token-file", token, url]).envs(GIVE_BACK);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        let input = process.stdin.take();
        let mut client = SoakClient { process, input, messages, requests: 0 };
        client.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        client
    }

    /// Sends a request and returns its result, and the messages before it, none of which is a response.
    fn request(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
        self.requests += 1;
        let id = self.requests;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input.as_ref().expect("it is open"), "{request}").expect("it reads");
        let mut before = Vec::new();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{method} {id} is not answered: {error}"));
            if message["method"].is_string() {
                before.push(message);
                continue;
            }
            assert_eq!(message["id"], id, "a second response, or one to no request: {message}");
            assert!(message["result"].is_object() || message["result"].is_null(), "{message}");
            assert!(message["error"].is_null(), "{method}: {message}");
            return (message["result"].clone(), before);
        }
    }

    /// Plays a session. Each prompt gets the text that every other one gets.
    fn play(&mut self, rng: &mut fastrand::Rng, counts: &Counts) {
        let (opened, _) = self.request("session/new", &json!({"cwd": "/tmp", "mcpServers": []}));
        let session = opened["sessionId"].as_str().expect("an id").to_owned();
        for _ in 0..rng.u32(1..4) {
            let (result, updates) = self.request("session/prompt", &prompt(&session, "hello"));
            assert_eq!(result["stopReason"], "end_turn", "{result}");
            let text = text(&updates);
            let mut expected = counts.text.lock().expect("no panic");
            let expected = expected.get_or_insert_with(|| text.clone());
            assert_eq!(*expected, text, "a text with a hole or a repetition");
            counts.prompts.fetch_add(1, Relaxed);
        }
        self.request("session/close", &json!({"sessionId": session}));
        counts.sessions.fetch_add(1, Relaxed);
    }

    /// Ends the connection, behind which nothing may come.
    fn end(mut self) {
        drop(self.input.take());
        while let Ok(message) = self.messages.recv_timeout(PATIENCE) {
            assert!(message["method"].is_string(), "a response to no request: {message}");
        }
        // A stream that is cut at this time finds no connection any more, and the exit code says so.
        self.process.wait().expect("it ended");
    }
}

impl Drop for SoakClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Counts {
    prompts: AtomicU64,
    sessions: AtomicU64,
    cuts: AtomicU64,
    /// The text of a turn, known after the first one.
    text: Mutex<Option<String>>,
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resources {
    descriptors: usize,
    threads: usize,
    children: usize,
}

impl Resources {
    fn of(pid: u32) -> Self {
        let count =
            |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count);
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let children = children.map(|list| list.split_whitespace().count()).sum();
        Resources { descriptors: count("fd"), threads: count("task"), children }
    }

    fn fits(self, first: Self) -> bool {
        let Resources { descriptors, threads, children } = self;
        let sockets = first.descriptors + IDLE_SOCKETS;
        descriptors <= sockets && threads <= first.threads && children <= first.children
    }
}

fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits until a process has no more than it had first, and returns what it has.
fn settle(pid: u32, first: Resources) -> Resources {
    let start = Instant::now();
    loop {
        let now = Resources::of(pid);
        if now.fits(first) || start.elapsed() > REST {
            return now;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn connections_that_are_cut_leave_nothing_behind() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<f64>().expect("a number"));
    let minutes = number(MINUTES);
    let (phases, phase) = minutes.map_or(QUICK, |minutes| {
        ((minutes * 60.0 / (PHASE + REST).as_secs_f64()).ceil().max(3.0) as u32, PHASE)
    });
    let seed = number(SEED).map_or_else(|| fastrand::u64(..1 << 32), |seed| seed as u64);
    soak(phases, phase, seed, minutes.is_some());
}

/// The processes that are measured: the server and a client over each transport.
const MEASURED: [&str; 3] = ["serve", "connect ws", "connect sse"];

#[expect(clippy::print_stdout, reason = "a run of minutes shows its state")]
fn soak(phases: u32, phase: Duration, seed: u64, is_long: bool) {
    println!("{phases} phases of {phase:?} with {SEED}={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).envs(GIVE_BACK);
    let server = Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "4"]));
    let authority = server.url.trim_start_matches("http://").trim_end_matches("/acp").to_owned();
    let relay = CutRelay::start(&authority);
    let url = format!("http://{}/acp", relay.address);
    let counts = Counts::default();
    let start = |transport: &str| SoakClient::start(&server.token, &url, transport);
    // The first turn, without a cut.
    let mut lasting = [start("ws"), start("sse")];
    for client in &mut lasting {
        client.play(&mut rng, &counts);
    }
    let pids = [server.id(), lasting[0].process.id(), lasting[1].process.id()];
    let mut rests: Vec<[(Resources, u64); 3]> = Vec::new();
    for number in 0..phases {
        let end = Instant::now() + phase;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (counts, relay, is_over) = (&counts, &relay, &is_over);
            let mut workers = Vec::new();
            for client in &mut lasting {
                let mut rng = rng.fork();
                workers.push(scope.spawn(move || {
                    while Instant::now() < end {
                        client.play(&mut rng, counts);
                    }
                }));
            }
            for transport in ["ws", "sse"] {
                let (mut rng, start) = (rng.fork(), &start);
                workers.push(scope.spawn(move || {
                    while Instant::now() < end {
                        let mut client = start(transport);
                        (0..rng.u32(1..5)).for_each(|_| client.play(&mut rng, counts));
                        client.end();
                    }
                }));
            }
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(rng.u64(100..800)));
                    counts.cuts.fetch_add(relay.cut(|| rng.bool()), Relaxed);
                }
            });
            let ends: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Relaxed);
            for end in ends {
                end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        let rest = if let Some(first) = rests.first() {
            [0, 1, 2].map(|place| (settle(pids[place], first[place].0), memory_kib(pids[place])))
        } else {
            std::thread::sleep(if is_long { REST } else { QUICK_REST });
            pids.map(|pid| (Resources::of(pid), memory_kib(pid)))
        };
        rests.push(rest);
        let of = |count: &AtomicU64| count.load(Relaxed);
        let (sessions, prompts, cuts) = (of(&counts.sessions), of(&counts.prompts), of(&counts.cuts));
        println!("phase {number}: {sessions} sessions, {prompts} prompts, {cuts} cuts");
        for (name, (resources, kib)) in MEASURED.iter().zip(rest) {
            println!("  {name}: {kib} KiB, {resources:?}");
        }
    }
    assert!(counts.cuts.load(Relaxed) > 0, "no connection was cut");
    let (Some(first), Some(last)) = (rests.first(), rests.last()) else { return };
    for (place, name) in MEASURED.iter().enumerate() {
        assert!(last[place].0.fits(first[place].0), "{name}: {:?}, then {:?}", first[place].0, last[place].0);
    }
    if is_long {
        for (place, name) in MEASURED.iter().enumerate() {
            let (from, to) = (rests[1][place].1, last[place].1);
            println!("measured: {name} {from} to {to} KiB, descriptors {}", last[place].0.descriptors);
            assert!(to <= from + GROWTH_KIB, "{name} grows from {from} to {to} KiB, with {SEED}={seed}");
        }
    }
    lasting.into_iter().for_each(SoakClient::end);
}
