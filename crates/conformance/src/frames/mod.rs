//! What is right and wrong with each frame of a conversation.

mod agents;
mod compare;
mod envelope;
mod ids;
mod twice;
mod typed;

use duologue_rpc::ResponseOutcome;
use duologue_schema::MethodRow;
use duologue_transcript::{ParsedLine, Side, TranscriptEntry};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::source::Source;

/// What is to be said about one frame.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    /// The line of the file.
    pub(crate) line: u64,
    pub(crate) from: Side,
    /// Whether it has no error.
    pub(crate) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    pub(crate) kind: Kind,
    /// Whether its typed form writes the same JSON. What is not typed, such as an extension, stays as it is. What
    /// agents leave out of messages to each other may be written.
    pub(crate) lossless: bool,
    pub(crate) problems: Vec<Problem>,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Request,
    Notification,
    Response,
    Noise,
}

/// Something wrong with a frame.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) level: Level,
    /// A JSON path to where it is; `$` is the frame.
    pub(crate) path: String,
    /// What it is.
    pub(crate) problem: String,
    /// Whether it is only that something was left out and reads as something.
    #[serde(skip)]
    addition: bool,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Against the protocol.
    Error,
    /// Worth knowing.
    Warning,
}

impl Problem {
    fn error(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Problem { level: Level::Error, path: path.into(), problem: problem.into(), addition: false }
    }

    fn addition(path: impl Into<String>, reads_as: &Value) -> Self {
        Problem { addition: true, ..Problem::warning(path, format!("was left out and reads as {reads_as}")) }
    }

    fn warning(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Problem { level: Level::Warning, path: path.into(), problem: problem.into(), addition: false }
    }
}

/// The verdict on every line.
pub(crate) fn validate(source: &Source) -> Vec<Verdict> {
    let entries = source.transcript.entries();
    let line = |entry: &TranscriptEntry<'_>| source.lines.get(entry.record).copied().unwrap_or_default();
    let mut verdicts: Vec<Verdict> = entries
        .iter()
        .map(|entry| {
            let kind = kind(entry);
            let (lossless, problems) = envelope::check(entry, source.transcript.header().redacted);
            Verdict {
                line: line(entry),
                from: entry.from(),
                ok: true,
                method: entry.method().map(str::to_owned),
                kind,
                lossless,
                problems,
            }
        })
        .collect();
    ids::check(&entries, &mut verdicts);
    for verdict in &mut verdicts {
        verdict.ok = verdict.problems.iter().all(|problem| problem.level != Level::Error);
    }
    verdicts
}

/// The first place where params or a result do not have their type.
pub(crate) fn misfit(entry: &TranscriptEntry<'_>) -> Option<Problem> {
    let mut problems = Vec::new();
    let value = |raw: Option<&RawValue>| match raw {
        Some(raw) => serde_json::from_str(raw.get()).ok(),
        None => Some(Value::Object(Map::new())),
    };
    match &entry.parsed {
        ParsedLine::Request { method, params, .. } | ParsedLine::Notification { method, params, .. } => {
            typed::params(method, &value(*params)?, &mut problems)
        }
        ParsedLine::Response { method: Some(method), outcome: ResponseOutcome::Result(result), .. } => {
            typed::result(method, entry.from().other(), &value(Some(result))?, &mut problems)
        }
        _ => return None,
    };
    problems.into_iter().find(|problem| problem.level == Level::Error)
}

fn kind(entry: &TranscriptEntry<'_>) -> Kind {
    match entry.parsed {
        ParsedLine::Request { .. } => Kind::Request,
        ParsedLine::Notification { .. } => Kind::Notification,
        ParsedLine::Response { .. } => Kind::Response,
        _ => Kind::Noise,
    }
}

/// The row of a method in the protocol's table, or in one of those of agents.
fn row(method: &str) -> Option<&'static MethodRow> {
    let of_protocol = duologue_schema::METHODS.into_iter().flatten().find(|row| row.method == method);
    of_protocol.or_else(|| agents::row(method))
}
