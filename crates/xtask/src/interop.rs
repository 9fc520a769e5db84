//! `cargo xtask interop`: our client against agents on the official SDKs, and their clients against our agent,
//! over the whole stable surface. `interop/surface.json` lists the messages of both sides; every program
//! reports those that it received, one line a method or variant, and a cell counts only when both sides reported it. What agents
//! say to each other has a table of its own.

pub(crate) mod agent;
pub(crate) mod client;
pub(crate) mod exchange;
mod extension;
pub(crate) mod install;
mod matrix;
mod real;
mod recorded;
mod remote;
mod schema_compat;
mod scripted;
#[path = "../interop/rust/src/surface.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "the same file is the library of the peers on the official crate"
)]
mod surface;
mod unstable;
mod v2;
mod wire;

use matrix::Matrix;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const SDKS: [&str; 4] = ["rust", "ts", "python", "python-1"];
const OURS: &str = "duologue";
const LIMIT: Duration = Duration::from_secs(90);

/// The folders of this crate's files, and of everything installed or written.
pub(crate) struct InteropPaths {
    pub(crate) sources: PathBuf,
    pub(crate) target: PathBuf,
}

impl InteropPaths {
    pub(crate) fn new() -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        Self { sources, target: crate::target::folder().join("interop") }
    }
}

/// One client driving one agent, and what came of it.
struct Pairing {
    client: &'static str,
    agent: &'static str,
    lacks: Vec<String>,
    problem: Option<String>,
    reports: Reports,
}

/// The reports of the client and of the agent, by row.
type Reports = [BTreeMap<String, Report>; 2];

/// The report of one side on one row.
#[derive(Default)]
struct Report {
    problem: Option<String>,
    detail: Vec<String>,
}

/// Runs the pairings `args` ask for: all of ours, with `--peers` those of the foreign SDKs among themselves, with
/// `--real` those with real agents and clients, with `--recorded` those through the `duologue` command, with
/// `--exchange` only what agents say to each other, with `--schema` only the published schemas, with `--v2` only version 2, with `--unstable` only the unstable part of version 1, with
/// `--remote` only the transports over a network, and then with `--peers` those of the foreign SDKs among themselves.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let paths = InteropPaths::new();
    match args.first().map(String::as_str) {
        Some("--real") => return real::run(&paths),
        Some("--recorded") => return recorded::run(&paths),
        Some("--exchange") => {
            install::ts(&paths)?;
            return exchange::run(&paths);
        }
        Some(dialogue @ ("--unstable" | "--v2")) => {
            install::rust(&paths)?;
            install::ts(&paths)?;
            let dialogue = if dialogue == "--v2" { v2::DIALOGUE } else { unstable::DIALOGUE };
            return dialogue.run(&paths).map(|_| ());
        }
        Some("--schema") if args.get(1).is_some_and(|arg| matches!(arg.as_str(), "--list" | "--write")) => {
            return schema_compat::show_differences(&paths, args.get(1).is_some_and(|arg| arg == "--write"));
        }
        Some("--schema") => {
            install::ts(&paths)?;
            for found in schema_compat::check(&paths) {
                println!("measured: {}", found?);
            }
            return Ok(());
        }
        _ => {}
    }
    let surface: Value = serde_json::from_str(&fs::read_to_string(paths.sources.join("surface.json"))?)?;
    install::peers(&paths)?;
    if args.first().is_some_and(|arg| arg == "--remote") {
        let is_foreign = args.get(1).is_some_and(|arg| arg == "--peers");
        println!("measured: {}", remote::run(&paths, &surface, is_foreign)?);
        return Ok(());
    }
    let mut pairs = Vec::new();
    for sdk in SDKS {
        match args.first().map(String::as_str) {
            None => pairs.extend([(OURS, sdk), (sdk, OURS)]),
            Some("--peers") => pairs.extend(SDKS.map(|agent| (sdk, agent))),
            Some(other) => return Err(format!("cargo xtask interop knows no `{other}`").into()),
        }
    }
    let rows = rows(&surface);
    let pairings = pairs.iter().map(|(client, agent)| pair(&paths, &surface, client, agent));
    let pairings: Vec<_> = pairings.collect::<Result<_>>()?;
    let (mut checks, mut messages) = (schema_compat::check(&paths), 0);
    if args.is_empty() {
        checks.push(wire::check(&paths, &pairs, &wire::V1).map(|(count, found)| {
            messages = count;
            found
        }));
    }
    show(&rows, &pairings, &surface, checks)?;
    if args.is_empty() {
        let (unstable, v2) = (unstable::DIALOGUE.run(&paths)?, v2::DIALOGUE.run(&paths)?);
        let remote = remote::run(&paths, &surface, false)?;
        exchange::run(&paths)?;
        println!(
            "measured: {} pairings, {} methods and variants, {messages} messages valid against the published schema; \
             in the unstable part of version 1 {unstable}; in version 2 {v2}; over a network {remote}",
            pairs.len(),
            rows.len(),
        );
    }
    Ok(())
}

/// This program in the part of one of our peers.
pub(crate) fn part(name: &str, args: &[String]) -> Option<Result<()>> {
    Some(match name {
        "interop-agent" if args.first().is_some_and(|arg| arg == remote::SERVE) => agent::serve(),
        "interop-agent" => agent::main().map_err(Into::into),
        "interop-client" => client::drive(args),
        "interop-agent-unstable" => unstable::agent::main().map_err(Into::into),
        "interop-client-unstable" => unstable::client::drive(args),
        "interop-agent-v2" => v2::agent::main().map_err(Into::into),
        "interop-client-v2" => v2::client::drive(args),
        "interop-exchange-agent" => exchange::agent(),
        "interop-exchange-client" => exchange::client(args),
        _ => return None,
    })
}

/// Returns the rows that one of two SDKs lacks.
fn lacks(surface: &Value, sides: [&str; 2]) -> Vec<String> {
    let known = sides.map(|sdk| surface["lacks"][sdk].as_object());
    known.into_iter().flatten().flat_map(|map| map.keys().cloned()).collect()
}

/// Runs one client against one agent and reads both reports.
fn pair(paths: &InteropPaths, surface: &Value, client: &'static str, agent: &'static str) -> Result<Pairing> {
    let lacks = lacks(surface, [client, agent]);
    let (problem, reports) = drive(paths, [client, agent], ["client", "agent"], &lacks)?;
    Ok(Pairing { client, agent, lacks, problem, reports })
}

/// Runs a client on one SDK with an agent on another, in a folder of their own. Returns what went wrong with the
/// client, and what both reported.
fn drive(
    paths: &InteropPaths,
    [client, agent]: [&str; 2],
    [client_role, agent_role]: [&str; 2],
    lacks: &[String],
) -> Result<(Option<String>, Reports)> {
    let run = RunFolder::new(paths, &format!("{client}-{client_role}-drives-{agent}"), lacks)?;
    let agent_command = install::program(paths, agent, agent_role)?;
    let mut command = install::program(paths, client, client_role)?;
    command.arg(agent_command.get_program()).args(agent_command.get_args());
    let problem = finish(run.prepare(&mut command)?, LIMIT).err().map(|error| error.to_string());
    Ok((problem, run.reports()?))
}

/// The folder of one run, in which both sides report.
struct RunFolder<'a> {
    dir: PathBuf,
    surface: PathBuf,
    lacks: &'a [String],
}

impl<'a> RunFolder<'a> {
    fn new(paths: &InteropPaths, name: &str, lacks: &'a [String]) -> Result<Self> {
        let dir = paths.target.join("runs").join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("project/more"))?;
        let surface = paths.sources.join("surface.json").canonicalize()?;
        Ok(RunFolder { dir: dir.canonicalize()?, surface, lacks })
    }

    fn report_files(&self) -> [PathBuf; 2] {
        [self.dir.join("client.jsonl"), self.dir.join("agent.jsonl")]
    }

    /// Sets what a program of the run needs.
    fn prepare<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let [client_report, agent_report] = self.report_files();
        let log = File::options().create(true).append(true).open(self.dir.join("stderr.log"))?;
        command
            .env("INTEROP_SURFACE", &self.surface)
            .env("INTEROP_LACKS", self.lacks.join(","))
            .env("INTEROP_CWD", self.dir.join("project"))
            .env("INTEROP_CLIENT_REPORT", client_report)
            .env("INTEROP_AGENT_REPORT", agent_report)
            .env(wire::FILE, self.dir.join("wire.jsonl"))
            .stderr(log);
        Ok(command)
    }

    fn reports(&self) -> Result<Reports> {
        let [client_report, agent_report] = self.report_files().map(|path| read_report(&path));
        Ok([client_report?, agent_report?])
    }
}

/// Runs a command to its end, or kills it when its time is over.
pub(crate) fn finish(command: &mut Command, limit: Duration) -> Result<()> {
    let name = format!("{command:?}");
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{name}: {status}").into()),
            None if start.elapsed() > limit => {
                child.kill()?;
                child.wait()?;
                return Err(format!("{name}: not done in {limit:?}").into());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn read_report(path: &Path) -> Result<BTreeMap<String, Report>> {
    let mut rows = BTreeMap::<String, Report>::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let line: Value = serde_json::from_str(line)?;
        let row = rows.entry(line["row"].as_str().unwrap_or_default().to_owned()).or_default();
        let detail = line["detail"].as_str().unwrap_or_default().to_owned();
        if line["ok"] == true {
            row.detail.push(detail);
        } else {
            row.problem.get_or_insert(detail);
        }
    }
    Ok(rows)
}

/// Every method and variant the surface speaks of, methods first, in the order in which they first appear.
fn rows(surface: &Value) -> Vec<String> {
    let (mut methods, mut variants) = (Vec::new(), Vec::new());
    let mut add = |item: &Value| {
        for key in ["method", "notify", "cancel"] {
            push_new(&mut methods, &item[key]);
        }
        push_new(&mut variants, &item["sessionUpdate"]);
    };
    for entry in surface["agent"].as_array().into_iter().flatten() {
        add(entry);
        for item in ["updates", "calls"].iter().filter_map(|list| entry[*list].as_array()).flatten() {
            add(item);
        }
    }
    methods.push("session/update".to_owned());
    methods.extend(variants);
    methods
}

fn push_new(list: &mut Vec<String>, value: &Value) {
    if let Some(name) = value.as_str()
        && !list.iter().any(|other| other == name)
    {
        list.push(name.to_owned());
    }
}

impl Pairing {
    /// The cell of one row: what to print, and the problem if it is one.
    fn cell(&self, row: &str) -> (&'static str, Option<String>) {
        if self.lacks.iter().any(|lacking| lacking == row) {
            let grown = self.reports.iter().find_map(|report| report.get(row)?.problem.clone());
            return if grown.is_some() { ("FAIL", grown) } else { ("lacks", None) };
        }
        let sides = ["client", "agent"].iter().zip(&self.reports);
        let mut missing = Vec::new();
        for (side, report) in sides {
            match report.get(row) {
                Some(Report { problem: Some(problem), .. }) => {
                    return ("FAIL", Some(format!("the {side} saw {problem}")));
                }
                Some(_) => {}
                // The variants stand for it, one row each.
                None if row == "session/update" && report.contains_key("agent_message_chunk") => {}
                None => missing.push(*side),
            }
        }
        if missing.is_empty() {
            let cell = match (row.ends_with("_clear"), self.client == OURS) {
                (true, true) => "cleared",
                (true, false) => "readable",
                _ => "ok",
            };
            return (cell, None);
        }
        ("EMPTY", Some(format!("no report from the {}", missing.join(" and the "))))
    }
}

/// Prints the matrix and its notes. Fails if a cell differs from the expected one.
fn show(rows: &[String], pairings: &[Pairing], surface: &Value, checks: Vec<Result<String>>) -> Result<()> {
    let mut matrix = Matrix::default();
    let heads: Vec<_> =
        pairings.iter().map(|p| [format!("{} drives", p.client), p.agent.to_owned()]).collect();
    matrix.rows(rows.iter().map(String::as_str), &heads, |column, row| {
        pairings.get(column).map_or(("", None), |pairing| pairing.cell(row))
    });
    for pairing in pairings {
        let who = format!("{} drives {}", pairing.client, pairing.agent);
        if let Some(problem) = &pairing.problem {
            matrix.problem(format_args!("{who}: {problem}"));
        }
        let client = &pairing.reports[0];
        if let Some(Report { problem: Some(problem), .. }) = client.get("an error") {
            matrix.problem(format_args!("{who}: an error response: {problem}"));
        }
        for (row, report) in client.iter().filter(|(row, _)| row.ends_with("_clear")) {
            if let [negotiated, anyway] = report.detail.as_slice() {
                matrix.note(format_args!(
                    "{who}: {row}: the text as negotiated {negotiated:?}, sent anyway {anyway:?}"
                ));
            }
        }
    }
    for sdk in SDKS {
        for (what, why) in surface["lacks"][sdk].as_object().into_iter().flatten() {
            matrix.note(format_args!("{sdk} lacks {what}: {}", why.as_str().unwrap_or_default()));
        }
    }
    for check in checks {
        matrix.check(check);
    }
    matrix.finish("in the interop run")
}
