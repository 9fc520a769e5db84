//! `duologue serve` and `duologue connect` under random faults, with an agent that counts. Nothing is lost, doubled or
//! reordered, each prompt has one answer, each question is shown once, no command runs twice, and the agent and the client have
//! the same mode.
#![cfg(all(unix, feature = "serve"))]

mod agent;
mod editor;
mod relay;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duologue_test_support::{PATIENCE, Reproduction, measured, runs, seed};
use serde_json::{Value, json};

use crate::process::DUOLOGUE;
use crate::served::Server;
use agent::Traces;
use editor::Editor;
use relay::{Fault, Relay};

/// Schedules that run at once.
const THREADS: usize = 4;
/// The longest pause between two faults.
const PAUSE: Duration = Duration::from_millis(60);

/// A server with its folder, and the traces of its agent.
struct World {
    folder: tempfile::TempDir,
    traces: Traces,
    server: Server,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let traces = Traces::new(folder.path());
        let server = start(folder.path(), &traces);
        World { folder, traces, server }
    }

    /// Kills the server, and starts another one with the same data.
    fn kill(&mut self) {
        self.server.kill();
        self.server = start(self.folder.path(), &self.traces);
    }

    /// Kills the newest process of the agent.
    fn kill_agent(&self) {
        let process = self.traces.processes().pop().expect("a process");
        let killed = Command::new("kill").args(["-9", &process]).stderr(Stdio::null()).status();
        killed.expect("it starts");
    }

    /// Stops the server. No process of its agents is left.
    fn stop(mut self) {
        self.server.stop();
        for process in self.traces.processes() {
            let gone = || !Path::new("/proc").join(&process).exists();
            let start = Instant::now();
            while !gone() {
                assert!(start.elapsed() < PATIENCE, "process {process} is left");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn start(folder: &Path, traces: &Traces) -> Server {
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.join("data"));
    traces.agent(&mut command);
    Server::of(&mut command)
}

fn address(server: &Server) -> SocketAddr {
    let authority = server.url.split('/').nth(2).expect("an address");
    authority.parse().expect("an address")
}

/// A turn of a schedule.
struct PlayedTurn {
    name: String,
    mode: &'static str,
    count: u64,
    questions: u64,
    /// The stop reason; `None` for an error.
    reason: Option<String>,
}

/// A client behind a relay, and what it has seen of its session.
struct Play {
    editor: Editor,
    session: String,
    mode: &'static str,
    /// The texts of the agent, joined.
    text: String,
    turns: Vec<PlayedTurn>,
    /// The messages to the client, without texts of the agent.
    events: Vec<String>,
}

impl Play {
    /// Opens a session. Some connections are lost before the first answer.
    fn new(server: &Server, relay: &Relay, random: &mut fastrand::Rng) -> Self {
        let transport = if random.bool() { "sse" } else { "ws" };
        if random.bool() {
            relay.apply(Fault::CutAfter(random.usize(0..900)));
        }
        let mut editor = Editor::new(&server.token, &relay.url(), transport);
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        editor.request("initialize", &params);
        let created = editor.request("session/new", &json!({"cwd": "/tmp", "mcpServers": []})).0;
        let session =
            created["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
        let mode = agent::MODES[0];
        Play { editor, session, mode, text: String::new(), turns: Vec::new(), events: Vec::new() }
    }

    /// Chooses a mode, or keeps the one that the session has.
    fn choose_mode(&mut self, random: &mut fastrand::Rng) {
        if random.bool() {
            self.mode = agent::MODES[random.usize(..agent::MODES.len())];
            let params = json!({"sessionId": self.session, "modeId": self.mode});
            let (chosen, before) = self.editor.request("session/set_mode", &params);
            assert!(chosen["result"].is_object(), "{chosen}");
            self.text.extend(before.iter().map(agent_text));
        }
    }

    /// Runs a turn. `disturb` is called after random pauses and returns the next pause.
    fn turn(&mut self, name: &str, count: u64, mut disturb: impl FnMut() -> Duration) {
        let id = self.editor.send("session/prompt", &agent::prompt(&self.session, name, count));
        let mut turn =
            PlayedTurn { name: name.to_owned(), mode: self.mode, count, questions: 0, reason: None };
        let mut next_fault = Instant::now() + disturb();
        let answer = loop {
            let Some(message) = self.editor.next_until(next_fault) else {
                next_fault = Instant::now() + disturb();
                continue;
            };
            let shown = &message["params"]["update"]["currentModeId"];
            assert!(shown.is_null() || *shown == self.mode, "{message}");
            if agent_text(&message).is_empty() {
                self.events.push(format!("{name}: {message}"));
            }
            if message["method"] == "session/request_permission" {
                turn.questions += 1;
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow"}});
                self.editor.answer(&message["id"], &outcome);
            } else if message["id"] == id && message["method"].is_null() {
                break message;
            } else {
                self.text += &agent_text(&message);
            }
        };
        turn.reason = answer["result"]["stopReason"].as_str().map(str::to_owned);
        if turn.reason.is_none() {
            assert_eq!(answer["error"]["data"]["code"], "interrupted", "{answer}");
        }
        self.turns.push(turn);
    }

    /// Compares what the client has seen with the log and with what the agent wrote.
    fn check(mut self, world: &World) {
        let mut other = Editor::new(&world.server.token, &world.server.url, "auto");
        other.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let params = json!({"sessionId": self.session, "cwd": "/tmp", "mcpServers": []});
        let (loaded, replay) = other.request("session/load", &params);
        assert_eq!(loaded["result"]["modes"]["currentModeId"], self.mode, "{loaded}");
        let logged: String = replay.iter().map(agent_text).collect();
        other.end();
        self.text.extend(self.editor.end().iter().map(agent_text));
        assert_eq!(self.text, logged, "the client has another text than the log");

        let commands = world.traces.commands();
        let mut words = self.text.split_whitespace().peekable();
        for turn in &self.turns {
            let mut said = 0;
            while words.next_if_eq(&&*format!("{}.{}", turn.name, said + 1)).is_some() {
                said += 1;
            }
            let mode = world.traces.mode(&turn.name);
            assert!(mode.is_none_or(|mode| mode == turn.mode), "{} ran in another mode", turn.name);
            let ran = commands.iter().filter(|name| **name == turn.name).count();
            let has_question = turn.count >= 2;
            if turn.reason.as_deref() == Some("end_turn") {
                assert_eq!((said, ran), (turn.count, usize::from(has_question)), "{}", turn.name);
            }
            assert!(ran <= 1, "the command of {} ran {ran} times", turn.name);
            assert!(turn.questions <= 1, "{} questions of {}: {:#?}", turn.questions, turn.name, self.events);
        }
        assert_eq!(words.next(), None, "out of order");
    }
}

/// Returns the agent's text in an update, empty for every other message.
fn agent_text(message: &Value) -> String {
    let update = &message["params"]["update"];
    let is_text = update["sessionUpdate"] == "agent_message_chunk";
    update["content"]["text"].as_str().filter(|_| is_text).unwrap_or_default().to_owned()
}

fn random_fault(random: &mut fastrand::Rng) -> Fault {
    match random.u8(0..4) {
        0 => Fault::Cut,
        1 => Fault::HalfClose,
        2 => Fault::CutAfter(random.usize(0..3000)),
        _ => Fault::Stall(Duration::from_millis(random.u64(1..100))),
    }
}

fn pause(random: &mut fastrand::Rng) -> Duration {
    PAUSE.mul_f64(random.f64())
}

/// Plays `count` schedules, some at once.
fn play_all(test: &'static str, count: u64, play: impl Fn(&mut fastrand::Rng) + Sync) {
    let (first, next) = (seed(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let seed = first.wrapping_add(number);
                    let _reproduction = Reproduction::of(test, seed, 1);
                    play(&mut fastrand::Rng::with_seed(seed));
                }
            });
        }
    });
}

#[test]
fn lost_connections_lose_nothing() {
    let count = runs(300);
    let world = World::new();
    let faults = AtomicU64::new(0);
    play_all("-p duologue-cli --test campaign schedules::lost_connections", count, |random| {
        let relay = Relay::new(address(&world.server));
        let mut play = Play::new(&world.server, &relay, random);
        let mut left = random.u32(1..5);
        for turn in 0..random.u32(1..3) {
            let name = format!("{:x}-{turn}", random.u64(..));
            let count = random.u64(1..150);
            play.choose_mode(random);
            play.turn(&name, count, || {
                if left == 0 {
                    return PATIENCE;
                }
                left -= 1;
                faults.fetch_add(1, Ordering::Relaxed);
                relay.apply(random_fault(random));
                pause(random)
            });
        }
        assert!(play.turns.iter().all(|turn| turn.reason.is_some()), "a turn was interrupted");
        play.check(&world);
    });
    measured(format_args!("{count} schedules, {} faults", faults.into_inner()));
    world.stop();
}

/// Kills of the server or of the agent in one schedule.
const KILLS: u64 = 5;

#[test]
fn killed_servers_lose_nothing() {
    let kills = runs(50);
    let interrupted = AtomicU64::new(0);
    play_all("-p duologue-cli --test campaign schedules::killed_servers", kills.div_ceil(KILLS), |random| {
        let mut world = World::new();
        let relay = Relay::new(address(&world.server));
        let mut play = Play::new(&world.server, &relay, random);
        for turn in 0..KILLS {
            let name = format!("{:x}-{turn}", random.u64(..));
            let count = random.u64(1..400);
            play.choose_mode(random);
            let mut is_first = true;
            play.turn(&name, count, || {
                if std::mem::take(&mut is_first) {
                    return pause(random);
                }
                // Some connections are lost shortly before the server.
                if random.u8(0..3) == 0 {
                    relay.apply(random_fault(random));
                    std::thread::sleep(pause(random) / 4);
                }
                if random.u8(0..3) == 0 {
                    world.kill_agent();
                } else {
                    world.kill();
                    relay.set_server(address(&world.server));
                }
                PATIENCE
            });
        }
        let ended = play.turns.iter().filter(|turn| turn.reason.is_none()).count();
        interrupted.fetch_add(ended as u64, Ordering::Relaxed);
        play.check(&world);
        world.stop();
    });
    let interrupted = interrupted.into_inner();
    assert!(interrupted > 0 || kills < 50, "no kill came in the middle of a turn");
    measured(format_args!("{kills} kills at most, {interrupted} interrupted turns"));
}
