//! An agent that counts: what it writes is a function of the prompt.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// The variable that makes this program the agent. It is the folder of [`Traces`].
const AGENT: &str = "DUOLOGUE_COUNTING_AGENT";

/// The files of all processes of the agent.
pub(crate) struct Traces(PathBuf);

impl Traces {
    /// `folder` must exist.
    pub(crate) fn new(folder: &Path) -> Self {
        Traces(folder.to_owned())
    }

    /// Appends the agent's command line to that of a server.
    pub(crate) fn agent(&self, server: &mut Command) {
        let program = std::env::current_exe().expect("our own");
        server.env(AGENT, &self.0).arg("--").arg(program);
        server.args(["--exact", "schedules::agent::process", "--nocapture"]);
    }

    /// The names of the turns that ran their command, once for each run.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.lines("commands")
    }

    /// The mode in which a turn ran.
    pub(crate) fn mode(&self, turn: &str) -> Option<String> {
        let modes = self.lines("modes");
        modes
            .iter()
            .find_map(|line| Some(line.split_once(' ').filter(|(name, _)| *name == turn)?.1.to_owned()))
    }

    /// The numbers of the processes.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.lines("processes")
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn append(&self, name: &str, line: &str) {
        let file: Result<File, _> = OpenOptions::new().create(true).append(true).open(self.0.join(name));
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).expect("a file");
    }
}

/// A prompt `NAME COUNT` says `NAME.1 ` to `NAME.COUNT `. A question in the middle permits the command of the turn.
pub(crate) fn prompt(session: &str, name: &str, count: u64) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": format!("{name} {count}")}]})
}

/// The modes of the agent. A process begins in the first one.
pub(crate) const MODES: [&str; 3] = ["ask", "plan", "code"];

/// The agent of the other tests.
#[test]
fn process() {
    let Ok(folder) = std::env::var(AGENT) else { return };
    let traces = Traces::new(Path::new(&folder));
    traces.append("processes", &std::process::id().to_string());
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let mut mode = MODES[0].to_owned();
    let modes = MODES.map(|mode| json!({"id": mode, "name": mode}));
    while let Some(line) = lines.next() {
        let message: Value = serde_json::from_str(&line).expect("a message");
        let params = &message["params"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}),
            Some("session/new" | "session/load") => json!({
                "sessionId": format!("counting-{}", std::process::id()),
                "modes": {"currentModeId": mode, "availableModes": modes},
            }),
            Some("session/set_mode") => {
                params["modeId"].as_str().expect("a mode").clone_into(&mut mode);
                json!({})
            }
            Some("session/prompt") => match count(&traces, params, &mode, &mut lines) {
                Some(reason) => json!({"stopReason": reason}),
                None => return,
            },
            _ => json!({}),
        };
        if !message["id"].is_null() {
            write(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        }
    }
}

/// Runs a turn and returns its stop reason; `None` if the input has ended.
fn count(
    traces: &Traces,
    params: &Value,
    mode: &str,
    lines: &mut impl Iterator<Item = String>,
) -> Option<&'static str> {
    let session = &params["sessionId"];
    let text = params["prompt"][0]["text"].as_str().expect("a text");
    let (name, count) = text.split_once(' ').expect("two words");
    let count: u64 = count.parse().expect("a number");
    traces.append("modes", &format!("{name} {mode}"));
    for number in 1..=count {
        let content = json!({"type": "text", "text": format!("{name}.{number} ")});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        let params = json!({"sessionId": session, "update": update});
        write(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
        if number == count / 2 {
            let options = json!([{"optionId": "allow", "name": "Allow", "kind": "allow_once"}]);
            let params = json!({"sessionId": session, "toolCall": {"toolCallId": name}, "options": options});
            let id = format!("ask {name}");
            let method = "session/request_permission";
            write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
            loop {
                let message: Value = serde_json::from_str(&lines.next()?).expect("a message");
                if message["id"] == *id && message["method"].is_null() {
                    match message["result"]["outcome"]["outcome"].as_str() {
                        Some("selected") => traces.append("commands", name),
                        _ => return Some("cancelled"),
                    }
                    break;
                }
            }
        }
        if number % 8 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    Some("end_turn")
}

#[allow(clippy::print_stdout, reason = "the agent's output")]
fn write(message: &Value) {
    println!("{message}");
}
