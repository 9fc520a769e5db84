//! The transports over a network: our client against servers on the official SDKs, and their clients against our server,
//! over WebSocket and over HTTP with server-sent events. Each pairing goes through the whole stable surface.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::matrix::Matrix;
use super::{InteropPaths, LIMIT, OURS, Pairing, Result, RunFolder, SDKS, finish, install, lacks, rows};

/// The argument with which an agent serves on a port that it prints.
pub(super) const SERVE: &str = "--serve";

/// The schemes of the addresses, by transport.
const TRANSPORTS: [(&str, &str); 2] = [("SSE", "http"), ("WebSocket", "ws")];

/// The rows of the table. A row stands for the messages of the surface beside it.
const ROWS: [(&str, &[&str]); 8] = [
    ("new", &["initialize", "authenticate", "session/new"]),
    ("prompt with stream", &["session/prompt", "session/update", "plan", "tool_call"]),
    ("permission", &["session/request_permission"]),
    ("file read", &["fs/read_text_file"]),
    ("cancel", &["session/cancel", "$/cancel_request"]),
    ("load", &["session/load"]),
    ("clear", &["agent_message_clear", "agent_thought_clear"]),
    ("everything else", &[]),
];

/// The servers and rows that fail for a fault of the other SDK, with the reason. They fail between two of its own too.
const FAULTS: [(&str, &str, &str); 1] = [(
    "python",
    "everything else",
    "its server has no session/resume, because its agents can have the method on stdio only (`use_unstable_protocol`)",
)];

/// A server in a process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the pairings, ours with the others or those of each SDK with itself, and prints the table. Returns the summary.
pub(super) fn run(paths: &InteropPaths, surface: &Value, is_foreign: bool) -> Result<String> {
    let mut columns = Vec::new();
    for sdk in SDKS {
        let pairs = if is_foreign { vec![[sdk, sdk]] } else { vec![[OURS, sdk], [sdk, OURS]] };
        for pair in pairs {
            columns.extend(TRANSPORTS.map(|transport| (pair, transport)));
        }
    }
    // Each pairing waits most of the time, so some run at once.
    let pairings: Vec<Pairing> = std::thread::scope(|scope| {
        let running: Vec<_> = columns
            .iter()
            .map(|(pair, (_, scheme))| {
                scope.spawn(|| pairing(paths, surface, *pair, scheme).map_err(|error| error.to_string()))
            })
            .collect();
        let joined =
            running.into_iter().map(|run| run.join().map_err(|_| "a pairing panicked".to_owned())?);
        joined.collect::<Result<_, String>>()
    })?;
    let all = rows(surface);
    let heads: Vec<_> = columns
        .iter()
        .map(|([client, server], (name, _))| [format!("{client} to"), format!("{server} {name}")])
        .collect();
    let mut matrix = Matrix::default();
    for (pairing, head) in pairings.iter().zip(&heads) {
        if let Some(problem) = &pairing.problem {
            matrix.problem(format_args!("{}: {problem}", head.join(" ")));
        }
    }
    matrix.rows(ROWS.iter().map(|(row, _)| *row), &heads, |column, row| {
        let ([_, server], _) = columns[column];
        let fault = FAULTS.iter().find(|(sdk, at, _)| (*sdk, *at) == (server, row));
        let problem = problem(&pairings[column], &all, row);
        match (problem, fault) {
            (None, None) => ("ok", None),
            (None, Some(_)) => ("FAIL", Some("this cell works now; remove it from the faults".to_owned())),
            (Some(_), Some(_)) => ("theirs", None),
            (Some(problem), None) => ("FAIL", Some(problem)),
        }
    });
    for (sdk, row, reason) in FAULTS {
        matrix.note(format_args!("{sdk}: {row}: {reason}"));
    }
    matrix.finish("over a network")?;
    Ok(format!("{} pairings over two transports, {} messages each", columns.len(), all.len()))
}

/// Returns the first problem among the messages of a row.
fn problem(pairing: &Pairing, all: &[String], row: &str) -> Option<String> {
    let of_row = |name: &str| {
        ROWS.iter().find(|(_, names)| names.contains(&name)).map_or("everything else", |(row, _)| row)
    };
    let messages = all.iter().filter(|name| of_row(name) == row);
    messages.filter_map(|name| Some(format!("{name}: {}", pairing.cell(name).1?))).next()
}

fn pairing(
    paths: &InteropPaths,
    surface: &Value,
    [client, server]: [&'static str; 2],
    scheme: &str,
) -> Result<Pairing> {
    let lacks = lacks(surface, [client, server]);
    let run = RunFolder::new(paths, &format!("{client}-to-{server}-{scheme}"), &lacks)?;
    let mut command = install::program(paths, server, "agent")?;
    let mut process = Server(run.prepare(command.arg(SERVE))?.stdout(Stdio::piped()).spawn()?);
    let mut address = String::new();
    BufReader::new(process.0.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    let mut command: Command = install::program(paths, client, "client")?;
    command.arg(format!("{scheme}://{}/acp", address.trim()));
    let problem = finish(run.prepare(&mut command)?, LIMIT).err().map(|error| error.to_string());
    drop(process);
    let reports = run.reports()?;
    Ok(Pairing { client, agent: server, lacks, problem, reports })
}
