//! The exchange between agents, with a peer on the official TypeScript SDK that uses the SDK's hooks for custom
//! methods. Our client runs with its agent and its client with our agent. In each pair both ends send requests.

mod answers;
mod delegate;
mod dialogue;
mod ends;
pub(super) mod quiet;
mod walkthrough;
mod work;

use super::matrix::Matrix;
use super::{InteropPaths, OURS, Report, Result, drive};
use std::collections::BTreeMap;

pub(crate) use ends::{agent, client};

/// The end that sends the request of a row.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Both,
    /// Our side never sends this, or has only one response to it.
    Theirs,
    /// Our side never responds with this.
    Ours,
}

/// The rows of the table.
const ROWS: &[(&str, By)] = &[
    ("ping", By::Both),
    ("ping, payload null and in no session", By::Theirs),
    ("discover", By::Both),
    ("query", By::Both),
    ("null for what is left out", By::Both),
    ("query, refused", By::Both),
    ("query, refused without an envelope", By::Ours),
    ("query, asked back", By::Both),
    ("query, withdrawn", By::Both),
    ("query, answers that do not fit", By::Ours),
    ("query, missed", By::Theirs),
    ("no v is v 1", By::Theirs),
    ("v 2", By::Theirs),
    ("wrong to", By::Theirs),
    ("kind of another method", By::Theirs),
    ("unknown kind", By::Theirs),
    ("unknown kind, as a notification", By::Theirs),
    ("unknown session", By::Theirs),
    ("query, answered twice", By::Ours),
    ("query, answered by notification", By::Ours),
    ("query, ended by error", By::Ours),
    ("query, late", By::Ours),
    ("delegate, result", By::Both),
    ("delegate, failed", By::Both),
    ("delegate, partial", By::Both),
    ("delegate, ended by error", By::Both),
    ("delegate, progress", By::Both),
    ("delegate, deadline", By::Theirs),
    ("delegate, sent twice", By::Theirs),
    ("delegate, refused", By::Both),
    ("delegate, no report", By::Both),
    ("delegate, result before ack", By::Ours),
    ("delegate, ack by notification", By::Ours),
    ("delegate, ended twice", By::Ours),
    ("cancel", By::Both),
    ("overloaded", By::Both),
    ("notify", By::Both),
    ("letters about nothing", By::Theirs),
    ("dialogue, signed", By::Both),
    ("dialogue, altered", By::Theirs),
    ("dialogue, altered answer", By::Ours),
    ("dialogue, forged and unsigned", By::Theirs),
    ("dialogue, twice", By::Theirs),
    ("dialogue, expired", By::Theirs),
    ("dialogue, out of order", By::Theirs),
    ("dialogue, illegal moves", By::Theirs),
    ("dialogue, bargained", By::Ours),
    ("dialogue, refused", By::Ours),
    ("work", By::Both),
    ("work, not done", By::Both),
    ("work, missed", By::Theirs),
    ("work, unknown recommendation", By::Ours),
];

/// Runs the two pairs and prints the results. Fails if a cell differs from the expected one.
pub(super) fn run(paths: &InteropPaths) -> Result<()> {
    let (mut columns, mut matrix) = (Vec::new(), Matrix::default());
    for [client, agent] in [[OURS, "ts"], ["ts", OURS]] {
        let (problem, reports) = drive(paths, [client, agent], ["exchange-client", "exchange-agent"], &[])?;
        if let Some(problem) = problem {
            matrix.problem(format_args!("the client {client} with the agent {agent}: {problem}"));
        }
        let heads = [
            [format!("{client} client"), format!("asks {agent}")],
            [format!("{agent} agent"), format!("asks {client}")],
        ];
        let by = |asker| if asker == OURS { By::Ours } else { By::Theirs };
        let ends = [by(client), by(agent)].into_iter().zip(heads).zip(reports);
        columns.extend(ends.map(|((by, head), report)| Column { head, by, report }));
    }
    let quiet = quiet::check(paths);
    matrix.check(quiet.map_err(|problem| format!("an agent that speaks no envelopes: {problem}").into()));
    for column in &columns {
        for row in column.report.keys().filter(|row| ROWS.iter().all(|(known, _)| known != row)) {
            matrix.problem(format_args!("{}: {row}: not in the table", column.head.join(" ")));
        }
    }
    let heads: Vec<_> = columns.iter().map(|column| column.head.clone()).collect();
    matrix.rows(ROWS.iter().map(|(row, _)| *row), &heads, |column, row| {
        let by = ROWS.iter().find(|(known, _)| *known == row).map(|(_, by)| *by);
        columns.get(column).zip(by).map_or(("", None), |(column, by)| column.cell(row, by))
    });
    matrix.finish("between agents")
}

/// The report of one end on all of its requests.
struct Column {
    head: [String; 2],
    by: By,
    report: BTreeMap<String, Report>,
}

impl Column {
    /// The cell of one row: what to print, and the problem if it is one.
    fn cell(&self, row: &str, by: By) -> (&'static str, Option<String>) {
        match self.report.get(row) {
            Some(Report { problem: Some(problem), .. }) => ("FAIL", Some(problem.clone())),
            Some(_) => ("ok", None),
            None if by == By::Both || by == self.by => ("EMPTY", Some("no report".to_owned())),
            None => ("-", None),
        }
    }
}
