//! Each of our programs plays every workload with the others, small; what is lost fails the run.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use duologue_bench::play::Play;
use duologue_bench::remote::load::Load;
use duologue_bench::runner::pairs::Pair;
use duologue_bench::runner::play::{load, play};

const OURS: [&[&str]; 2] = [&[env!("CARGO_BIN_EXE_bench-client")], &[env!("CARGO_BIN_EXE_bench-agent")]];
const MANY: [&[&str]; 2] = [
    &[env!("CARGO_BIN_EXE_bench-client"), "--many-threads"],
    &[env!("CARGO_BIN_EXE_bench-agent"), "--many-threads"],
];
const RECORDED: [&[&str]; 2] =
    [&[env!("CARGO_BIN_EXE_bench-client"), "--record"], &[env!("CARGO_BIN_EXE_bench-agent")]];
const STAGES: [&[&str]; 2] =
    [&[env!("CARGO_BIN_EXE_bench-client"), "--stages"], &[env!("CARGO_BIN_EXE_bench-agent")]];
const COUNTING: [&[&str]; 2] =
    [&[env!("CARGO_BIN_EXE_counting-client")], &[env!("CARGO_BIN_EXE_counting-agent")]];
const NL: [&[&str]; 2] =
    [&[env!("CARGO_BIN_EXE_floor-client"), "nl"], &[env!("CARGO_BIN_EXE_floor-agent"), "nl"]];
const SERDE: [&[&str]; 2] =
    [&[env!("CARGO_BIN_EXE_floor-client"), "serde"], &[env!("CARGO_BIN_EXE_floor-agent"), "serde"]];

/// Plays of any client with any agent.
const COMMON: [Play; 7] = [
    Play::Stream { count: 300, bytes: 40 },
    Play::Prompts { count: 20 },
    Play::Read { count: 20 },
    Play::Sessions { sessions: 5, count: 20, bytes: 1024 },
    Play::Start { count: 2 },
    Play::Idle { sessions: 20 },
    Play::Image { bytes: 300_000, count: 2 },
];
/// Needs message clearing on both sides, or on neither.
const REDRAW: Play = Play::Redraw { rounds: 20, bytes: 5_000 };

fn pair(client: &[&str], agent: &[&str]) -> Pair {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Pair { name: format!("{client:?} {agent:?}"), kind: None, client: own(client), agent: own(agent) }
}

#[test]
fn each_pair_plays_everything() {
    for [client, agent] in [OURS, MANY, RECORDED, STAGES, COUNTING, NL, SERDE] {
        for each in COMMON.iter().chain([&REDRAW]) {
            play(&pair(client, agent), each, false).expect("nothing is lost");
        }
    }
}

#[test]
fn any_client_plays_with_any_agent() {
    for [client, agent] in [[OURS[0], SERDE[1]], [SERDE[0], OURS[1]], [MANY[0], OURS[1]]] {
        for each in &COMMON {
            play(&pair(client, agent), each, false).expect("nothing is lost");
        }
    }
}

/// A server of our agent.
struct Server(Child);

impl Server {
    /// Starts it, and returns its host and port.
    fn start(args: &[&str]) -> (Self, String) {
        let mut command = Command::new(OURS[1][0]);
        let mut process =
            command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        (Server(process), line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn our_programs_play_over_a_network() {
    let bridge = ["--bridge", OURS[1][0]];
    for args in [&["--serve"][..], &["--many-threads", "--serve"], &bridge] {
        let (_server, address) = Server::start(args);
        for scheme in ["ws", "http"] {
            let url = format!("{scheme}://{address}/acp");
            for each in [&COMMON[0], &COMMON[1], &Play::Modes { count: 5 }] {
                play(&pair(OURS[0], &[&url]), each, false).expect("nothing is lost");
            }
        }
    }
}

#[test]
fn slow_readers_lose_nothing() {
    let (_server, address) = Server::start(&["--serve"]);
    let program = Path::new(env!("CARGO_BIN_EXE_bench-load"));
    let readers = Load::Readers { sessions: 10, slow: 2, count: 300, bytes: 1024 };
    for each in [Load::Idle { connections: 20 }, readers] {
        load(program, each, &format!("ws://{address}/acp")).expect("nothing is lost");
    }
}

#[test]
fn both_sides_say_what_they_used() {
    let run = play(&pair(COUNTING[0], COUNTING[1]), &COMMON[0], false).expect("nothing is lost");
    for side in [&run.client, &run.agent] {
        let [before, after] = side.as_slice() else { panic!("{side:?}") };
        assert!(before.cpu_us > 0.0 && after.cpu_us > before.cpu_us, "{side:?}");
        assert!(after.peak_kib >= after.rss_kib && after.rss_kib > 0.0, "{side:?}");
        assert!(after.allocations > before.allocations && before.allocations.is_some(), "{side:?}");
    }
}

#[test]
fn both_share_one_core_on_demand() {
    let before = std::thread::available_parallelism().expect("a number");
    play(&pair(OURS[0], OURS[1]), &COMMON[1], true).expect("nothing is lost");
    assert_eq!(std::thread::available_parallelism().expect("a number"), before, "the runner itself does not");
}

#[test]
fn a_run_with_lost_messages_fails() {
    // Its line says that nothing arrived.
    let line = r#"{"messages":0,"bytes":0,"wall_ns":1}"#;
    let error = play(&pair(&["sh", "-c", &format!("echo '{line}'")], &[]), &COMMON[0], false);
    let error = error.expect_err("300 are missing").to_string();
    assert!(error.contains("(0, 0)") && error.contains("(300, 12000)"), "{error}");
}
