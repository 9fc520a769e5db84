//! An agent without any SDK, which does to its client what the prompt says: `raw-agent LOG`.
//!
//! `flood COUNT BYTES` sends updates, `unknown COUNT BYTES` updates of a session nobody knows, `line BYTES` one line of
//! that length, `amplify BYTES UNIT PLACE` one valid update full of small things, `bad N` hostile line N and a question
//! behind it, `ask COUNT METHOD` requests, `garbage COUNT SEED`
//! lines of any bytes, `hang` nothing until it is cancelled, `die kill|abort|exit` nothing more. It reads while it writes, and
//! what has to be answered does not wait behind a flood. What it saw goes to the log, one object a line.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use duologue_tests::Result;
use duologue_tests::hostile_lines::{bytes, known, shown};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

/// Bytes of a flood that are written at once.
const BATCH: usize = 64 * 1024;
/// The time limit of a response.
const PATIENCE: Duration = Duration::from_secs(1);

/// The output queue: control messages first, then the floods in turn.
#[derive(Default)]
struct Out {
    control: VecDeque<Vec<u8>>,
    floods: VecDeque<Flood>,
    /// Answers to questions of ours, by their id.
    answers: Vec<Value>,
    /// The prompts that run, by their session, and whether they were cancelled.
    turns: HashMap<String, bool>,
}

/// Updates of a session, and the answer behind them.
struct Flood {
    session: String,
    batch: Vec<u8>,
    lines: usize,
    left: u64,
    prompt: Value,
}

struct Shared {
    out: Mutex<Out>,
    changed: Condvar,
    log: Mutex<File>,
}

impl Shared {
    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, what: &Value) {
        let _ = writeln!(self.log.lock().unwrap_or_else(PoisonError::into_inner), "{what}");
    }

    fn send(&self, message: &Value) {
        self.send_bytes(format!("{message}\n").into_bytes());
    }

    fn send_bytes(&self, bytes: Vec<u8>) {
        self.out().control.push_back(bytes);
        self.changed.notify_all();
    }

    fn answer(&self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn end(&self, session: &str, prompt: &Value) {
        let cancelled = self.out().turns.remove(session).unwrap_or_default();
        let reason = if cancelled { "cancelled" } else { "end_turn" };
        self.answer(prompt, &json!({"stopReason": reason}));
    }

    /// Waits until as many answers of ours are there, or patience is over.
    fn answers(&self, count: usize) -> Vec<Value> {
        let (begun, mut out) = (Instant::now(), self.out());
        while out.answers.len() < count && begun.elapsed() < PATIENCE {
            out = self.changed.wait_timeout(out, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut out.answers)
    }
}

fn main() -> Result<()> {
    let myself = myself()?;
    let log = std::env::args_os().nth(1).ok_or("raw-agent LOG")?;
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    let shared = Shared { out: Mutex::default(), changed: Condvar::new(), log: Mutex::new(log) };
    let shared = Arc::new(shared);
    shared.log(&myself);
    let stdout = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    std::thread::spawn({
        let shared = shared.clone();
        move || {
            let end = write(&shared, stdout);
            shared.log(&json!({"writing": end.err().map(|error| error.to_string())}));
        }
    });
    let mut sessions = 0;
    for line in BufReader::new(std::io::stdin()).lines() {
        let line: Value = serde_json::from_str(&line?)?;
        hear(&shared, &line, &mut sessions);
    }
    let unasked: Vec<Value> = std::mem::take(&mut shared.out().answers).iter().map(shown).collect();
    shared.log(&json!({"left": true, "answers": unasked}));
    Ok(())
}

/// Returns the inherited environment and descriptors.
fn myself() -> Result<Value> {
    let mut descriptors = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // The folder that is being read is one of them.
        if !std::fs::read_link(entry.path())?.ends_with("fd") {
            descriptors.push(entry.file_name().to_string_lossy().parse::<u32>()?);
        }
    }
    descriptors.sort_unstable();
    let sentinels = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SENTINEL_"));
    Ok(json!({"descriptors": descriptors, "sentinels": sentinels.count()}))
}

fn write(shared: &Shared, mut stdout: File) -> std::io::Result<()> {
    loop {
        let mut out = shared.out();
        while out.control.is_empty() && out.floods.is_empty() {
            out = shared.changed.wait(out).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(bytes) = out.control.pop_front() {
            drop(out);
            if bytes.is_empty() {
                // The output ends here.
                return Ok(rustix::stdio::dup2_stdout(File::open("/dev/null")?)?);
            }
            stdout.write_all(&bytes)?;
            continue;
        }
        let Some(mut flood) = out.floods.pop_front() else { continue };
        let cancelled = out.turns.get(&flood.session) == Some(&true);
        drop(out);
        let lines = flood.left.min(flood.lines as u64);
        if lines == 0 || cancelled {
            shared.end(&flood.session, &flood.prompt);
            continue;
        }
        let bytes = flood.batch.len() / flood.lines * lines as usize;
        stdout.write_all(flood.batch.get(..bytes).unwrap_or_default())?;
        flood.left -= lines;
        shared.out().floods.push_back(flood);
    }
}

fn hear(shared: &Arc<Shared>, line: &Value, sessions: &mut usize) {
    let (id, params) = (&line["id"], &line["params"]);
    let session = params["sessionId"].as_str().unwrap_or_default();
    match line["method"].as_str() {
        Some("initialize") => {
            let offers = json!({"sessionCapabilities": {"close": {}}});
            shared.answer(id, &json!({"protocolVersion": 1, "agentCapabilities": offers}));
        }
        Some("session/new") => {
            *sessions += 1;
            shared.answer(id, &json!({"sessionId": format!("s{sessions}")}));
        }
        Some("session/prompt") => {
            let text = params["prompt"][0]["text"].as_str().unwrap_or_default();
            shared.out().turns.insert(session.to_owned(), false);
            prompt(shared, session, id, text);
        }
        Some("session/cancel") => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            shared.log(&json!({"cancelled_ns": now.as_nanos() as u64}));
            if let Some(turn) = shared.out().turns.get_mut(session) {
                *turn = true;
            }
            shared.changed.notify_all();
        }
        None => {
            // An answer, or those of a batch.
            shared.out().answers.extend(line.as_array().cloned().unwrap_or_else(|| vec![line.clone()]));
            shared.changed.notify_all();
        }
        Some(_) if !id.is_null() => shared.answer(id, &json!({})),
        Some(_) => {}
    }
}

fn chunk(session: &str, bytes: usize) -> Vec<u8> {
    let content = json!({"type": "text", "text": "x".repeat(bytes)});
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
    let params = json!({"sessionId": session, "update": update});
    format!("{}\n", json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).into_bytes()
}

fn prompt(shared: &Arc<Shared>, session: &str, id: &Value, text: &str) {
    let words: Vec<&str> = text.split(' ').collect();
    let word = |place: usize| words.get(place).copied().unwrap_or_default();
    let number = |place: usize| word(place).parse::<usize>().unwrap_or(1);
    match word(0) {
        what @ ("flood" | "unknown") => {
            let line = chunk(if what == "flood" { session } else { "nobody-knows" }, number(2));
            let lines = (BATCH / line.len()).max(1);
            let flood = Flood {
                session: session.to_owned(),
                batch: line.repeat(lines),
                lines,
                left: number(1) as u64,
                prompt: id.clone(),
            };
            shared.out().floods.push_back(flood);
            shared.changed.notify_all();
        }
        "hang" => later(shared, session, id, |shared, session| {
            let mut out = shared.out();
            while out.turns.get(session) == Some(&false) {
                out = shared.changed.wait(out).unwrap_or_else(PoisonError::into_inner);
            }
        }),
        "line" => long_line(shared, number(1)),
        "amplify" => {
            shared.send_bytes(amplified(session, number(1), word(2), word(3)));
            shared.end(session, id);
        }
        "bad" => {
            let number = number(1);
            later(shared, session, id, move |shared, session| bad(shared, session, number));
        }
        "garbage" => {
            let mut rng = fastrand::Rng::with_seed(number(2) as u64);
            for _ in 0..number(1) {
                let mut bytes: Vec<u8> = (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
                bytes.push(b'\n');
                shared.send_bytes(bytes);
            }
            shared.end(session, id);
        }
        "die" => match word(1) {
            "abort" => std::process::abort(),
            "kill" => drop(kill_process(getpid(), Signal::KILL)),
            _ => std::process::exit(3),
        },
        "ask" => {
            let (count, method) = (number(1), word(2).to_owned());
            later(shared, session, id, move |shared, session| {
                let params = json!({"sessionId": session, "path": "/nowhere"});
                for number in 0..count {
                    let id = format!("ask-{number}");
                    shared.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
                }
                let codes: Vec<Value> =
                    shared.answers(count).iter().map(|answer| answer["error"]["code"].clone()).collect();
                shared.log(&json!({"asked": count, "method": method, "codes": codes}));
            });
        }
        _ => {
            shared.send_bytes(chunk(session, 1));
            shared.end(session, id);
        }
    }
}

/// Does it in a thread of its own, and ends the turn behind it.
fn later(shared: &Arc<Shared>, session: &str, id: &Value, act: impl FnOnce(&Shared, &str) + Send + 'static) {
    let (shared, session, id) = (shared.clone(), session.to_owned(), id.clone());
    std::thread::spawn(move || {
        act(&shared, &session);
        shared.end(&session, &id);
    });
}

/// The session that a hostile line may name.
const SESSION: &str = "s1";

/// The hostile lines themselves, and whether the output ends behind them.
fn table() -> Result<Vec<(Vec<u8>, bool)>> {
    known("client")?.iter().map(|row| Ok((bytes(&row["line"], SESSION)?, row["last"] == true))).collect()
}

/// A bad line, a question, and what was answered to both; then an update that says the turn goes on.
fn bad(shared: &Shared, session: &str, number: usize) {
    static TABLE: OnceLock<Vec<(Vec<u8>, bool)>> = OnceLock::new();
    let table = TABLE.get_or_init(|| table().unwrap_or_default());
    let (mut bytes, last) = table.get(number % table.len().max(1)).cloned().unwrap_or_default();
    if last {
        shared.send_bytes(bytes);
        shared.send_bytes(Vec::new());
        return;
    }
    bytes.push(b'\n');
    shared.send_bytes(bytes);
    let begun = Instant::now();
    shared.send(&json!({"jsonrpc": "2.0", "id": "probe", "method": "_probe"}));
    let mut answers = Vec::new();
    while begun.elapsed() < PATIENCE && !answers.iter().any(|answer: &Value| answer["id"] == "probe") {
        answers.extend(shared.answers(1));
    }
    let ms = begun.elapsed().as_millis() as u64;
    // Its remaining output comes before the response to one more request.
    shared.send(&json!({"jsonrpc": "2.0", "id": "last", "method": "_probe"}));
    while begun.elapsed() < 2 * PATIENCE && !answers.iter().any(|answer: &Value| answer["id"] == "last") {
        answers.extend(shared.answers(1));
    }
    let probed = answers.iter().any(|answer| answer["id"] == "probe");
    answers.retain(|answer| answer["id"] != "probe" && answer["id"] != "last");
    let shown: Vec<Value> = answers.iter().map(shown).collect();
    shared.log(&json!({"bad": number, "answers": shown, "probe_ms": probed.then_some(ms)}));
    shared.send_bytes(chunk(session, 1));
}

/// One line of about this many bytes, written as fast as it is taken.
fn long_line(shared: &Shared, bytes: usize) {
    let part = vec![b'x'; 1024 * 1024];
    let mut stdout = std::io::stdout().lock();
    let mut line = br#"{"jsonrpc":"2.0","method":"session/update","params":{"x":""#.to_vec();
    let mut written = 0;
    while written < bytes {
        if let Err(error) = stdout.write_all(&line) {
            shared.log(&json!({"line": written, "error": error.to_string()}));
            return;
        }
        written += line.len();
        line.clone_from(&part);
    }
    let _ = stdout.write_all(b"\"}}\n");
    let _ = stdout.flush();
    shared.log(&json!({"line": written, "error": null}));
}

/// A valid line of about this many bytes, full of `unit`.
fn amplified(session: &str, bytes: usize, unit: &str, place: &str) -> Vec<u8> {
    let many = unit.repeat(bytes / unit.len().max(1));
    let many = format!("[{}]", many.trim_end_matches(','));
    let text = r#""sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"t"}"#;
    let call = r#""sessionUpdate":"tool_call","toolCallId":"c","title":"t""#;
    let (update, meta) = match place {
        "args" => {
            let params = format!(r#"{{"sessionId":"{session}","command":"true","args":{many}}}"#);
            return format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"run\",\"method\":\"terminal/create\",\"params\":{params}}}\n"
            )
            .into_bytes();
        }
        "meta" => (text.to_owned(), format!(r#","_meta":{{"a":{many}}}"#)),
        "raw" => (format!(r#"{call},"rawInput":{many}"#), String::new()),
        "locations" | "content" => (format!(r#"{call},"{place}":{many}"#), String::new()),
        "entries" => (format!(r#""sessionUpdate":"plan","entries":{many}"#), String::new()),
        "availableCommands" => {
            (format!(r#""sessionUpdate":"available_commands_update","{place}":{many}"#), String::new())
        }
        _ => (format!(r#""sessionUpdate":"_new","a":{many}"#), String::new()),
    };
    let params = format!(r#"{{"sessionId":"{session}","update":{{{update}}}{meta}}}"#);
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{params}}}\n").into_bytes()
}
