//! The wire of the pairings, checked against the published schema: our side of each pairing writes down every line
//! of both, and each message has to fit the definition that the schema has for its method.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duologue_client::rpc::{Direction, Tap, TappedFrame};
use serde_json::{Value, json};

use super::{InteropPaths, OURS, Result, finish};

/// The variable that names the file of recorded lines.
pub(super) const FILE: &str = "INTEROP_WIRE";

/// The programs of one protocol version, and its schema in the npm package.
pub(super) struct Version {
    /// The role of the client, which is in the names of folders.
    pub(super) client: &'static str,
    pub(super) agent: &'static str,
    schema: &'static str,
}

pub(super) const V1: Version = Version { client: "client", agent: "agent", schema: "v1/schema.json" };
pub(super) const UNSTABLE: Version =
    Version { client: "client-unstable", agent: "agent-unstable", schema: "v1/schema.unstable.json" };
pub(super) const V2: Version = Version { client: "client-v2", agent: "agent-v2", schema: "v2/schema.json" };

struct Lines {
    file: Mutex<File>,
    incoming: &'static str,
    outgoing: &'static str,
}

/// Records the lines of our connection if `drive` sets the variable; `us` is the side we are on.
pub(super) fn tap(us: &'static str) -> Option<Arc<dyn Tap>> {
    let file = Mutex::new(File::create(std::env::var_os(FILE)?).ok()?);
    let them = if us == "agent" { "client" } else { "agent" };
    Some(Arc::new(Lines { file, incoming: them, outgoing: us }))
}

impl Tap for Lines {
    fn frame(&self, frame: TappedFrame<'_>) {
        let from = if frame.direction == Direction::Incoming { self.incoming } else { self.outgoing };
        let text = String::from_utf8_lossy(frame.bytes);
        let line = json!({"from": from, "text": text.trim_end(), "message": frame.is_message});
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A line that is lost is missed by the check: it wants an answer for every request.
        let _ = writeln!(file, "{line}");
    }
}

/// The schema's names for the params and results of a method, by the handling side and the kind of definition.
struct Names(HashMap<(String, String, &'static str), String>);

impl Names {
    fn read(schema: &Value) -> Self {
        let mut names = HashMap::new();
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            let kind = ["Request", "Response", "Notification"].into_iter().find(|kind| name.ends_with(kind));
            if let (Some(method), Some(side), Some(kind)) =
                (definition["x-method"].as_str(), definition["x-side"].as_str(), kind)
            {
                names.insert((method.to_owned(), side.to_owned(), kind), name.clone());
            }
        }
        Names(names)
    }

    fn of(&self, method: &str, handled_by: &str, kind: &'static str) -> Option<&String> {
        let side = |side: &str| self.0.get(&(method.to_owned(), side.to_owned(), kind));
        side(handled_by).or_else(|| side("protocol")).or_else(|| side("proxy"))
    }
}

/// The messages to check, and counts of those that the schema does not cover.
#[derive(Default)]
struct Collected {
    /// One value and its definition a line.
    values: String,
    messages: BTreeMap<&'static str, usize>,
    extensions: usize,
    clears: usize,
    wrong: Vec<String>,
}

impl Collected {
    fn add(&mut self, name: &str, at: &str, value: &Value) -> Result<()> {
        Ok(writeln!(self.values, "{}", json!({"name": name, "seed": at, "value": value}))?)
    }

    /// Reads the recorded lines of one pairing.
    fn pairing(&mut self, at: &str, text: &str, names: &Names) -> Result<()> {
        // The method, by the requesting side and the id.
        let mut open = HashMap::<(&str, String), String>::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let from = if line["from"] == "agent" { "agent" } else { "client" };
            let to = if from == "agent" { "client" } else { "agent" };
            if line["message"] != true {
                self.wrong.push(format!("{at}: the {from} wrote {}", line["text"]));
                continue;
            }
            let message: Value = serde_json::from_str(line["text"].as_str().unwrap_or_default())?;
            if message["params"]["update"]["sessionUpdate"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("_clear"))
            {
                // An extension of ours, sent to peers that advertise it, and once to all on purpose.
                self.clears += 1;
                continue;
            }
            *self.messages.entry(from).or_default() += 1;
            // The envelope first: the schema as a whole says what a message is.
            self.add("", at, &message)?;
            let id = message["id"].to_string();
            let (name, value) = match message["method"].as_str() {
                Some(method) => {
                    let kind = if message.get("id").is_some() { "Request" } else { "Notification" };
                    if kind == "Request" {
                        open.insert((from, id), method.to_owned());
                    }
                    (names.of(method, to, kind).ok_or(method.to_owned()), &message["params"])
                }
                None if message.get("error").is_some() => {
                    open.remove(&(to, id));
                    self.add("Error", at, &message["error"])?;
                    continue;
                }
                None => {
                    let method = open.remove(&(to, id)).unwrap_or_else(|| "an answer to nothing".to_owned());
                    (names.of(&method, from, "Response").ok_or(method), &message["result"])
                }
            };
            match name {
                Ok(name) => self.add(name, at, value)?,
                Err(method) if method.starts_with('_') => self.extensions += 1,
                Err(method) => self.wrong.push(format!("{at}: the {from}: the schema knows no {method}")),
            }
        }
        for ((from, id), method) in open {
            self.wrong.push(format!("{at}: {method} {id} of the {from} was never answered"));
        }
        Ok(())
    }
}

/// Checks the messages of our pairings. Returns their number, and a summary.
pub(super) fn check(
    paths: &InteropPaths,
    pairs: &[(&str, &str)],
    version: &Version,
) -> Result<(usize, String)> {
    let ts = std::path::absolute(paths.target.join("ts"))?;
    let schema_file = ts.join("node_modules/@agentclientprotocol/sdk/schema").join(version.schema);
    let schema: Value = serde_json::from_str(&fs::read_to_string(&schema_file)?)?;
    let names = Names::read(&schema);
    let mut collected = Collected::default();
    for (client, agent) in pairs.iter().filter(|pair| pair.0 == OURS || pair.1 == OURS) {
        let at = format!("{client} drives {agent}");
        let text = fs::read_to_string(file(paths, client, agent, version))
            .map_err(|error| format!("{at}: {error}"))?;
        collected.pairing(&at, &text, &names)?;
    }
    let Collected { values, messages, extensions, clears, mut wrong } = collected;
    let (values_file, problems) = (ts.join("wire.jsonl"), ts.join("wire-problems.txt"));
    fs::write(&values_file, values)?;
    let mut validate = Command::new("node");
    validate.arg(ts.join("validate.mjs")).arg(schema_file).arg(values_file).arg(&problems);
    finish(&mut validate, Duration::from_secs(120))?;
    wrong.extend(fs::read_to_string(problems)?.lines().map(str::to_owned));
    let [agents, clients] = ["agent", "client"].map(|side| messages.get(side).copied().unwrap_or_default());
    if agents == 0 || clients == 0 {
        wrong.push(format!("the agents said {agents} messages and the clients {clients}"));
    }
    if wrong.is_empty() {
        let found = format!(
            "on the wire of {} pairings, {agents} messages of agents and {clients} of clients fit the published \
             schema and the definition of their method ({extensions} of extensions have none; {clears} clears are \
             ours and not in it)",
            pairs.len()
        );
        return Ok((agents + clients, found));
    }
    let some: Vec<_> = wrong.iter().take(20).map(String::as_str).collect();
    Err(format!(
        "{} messages on the wire are not as the schema has them, such as\n{}",
        wrong.len(),
        some.join("\n")
    )
    .into())
}

/// Returns the file with the lines of a pairing.
pub(super) fn file(paths: &InteropPaths, client: &str, agent: &str, version: &Version) -> PathBuf {
    paths.target.join("runs").join(format!("{client}-{}-drives-{agent}", version.client)).join("wire.jsonl")
}
