//! Validates each frame of a transcript: its envelope, its method, its side, its types and its ids.

mod between_agents;
mod capabilities;
mod compare;
mod duplicate_keys;
mod frame;
mod ids;
mod path;
mod problems;
mod turns;
mod typed;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{MethodRow, MethodSide, UNSTABLE_METHODS, v2};
use duologue_transcript::{ParsedLine, Side, Transcript, TranscriptEntry};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::problems::Problems;

/// The validation of one frame.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FrameReport {
    /// The number of the line, counted from 1.
    pub line: u64,
    /// The side that sent the frame.
    pub from: Side,
    /// True if no problem is an error.
    pub ok: bool,
    /// The method of a request or notification, or of the request that a response answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// True if decoding and encoding the frame gives the same JSON. Members that mean the same as none, such as `null`,
    /// `false` and empty lists, may be left out. Parts without a type, such as extensions, do not change. A message between agents may gain members that its sender left out.
    pub lossless: bool,
    /// The errors and warnings. After 100 warnings the last one is the number of the others.
    pub problems: Vec<Problem>,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FrameKind {
    /// A request.
    Request,
    /// A notification.
    Notification,
    /// A response to a request.
    Response,
    /// A line that is no message.
    Noise,
}

/// An error or a warning about a frame.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The weight of the problem.
    pub level: ProblemLevel,
    /// The JSON path of the faulty part; `$` is the frame.
    pub path: String,
    /// The description.
    pub problem: String,
}

/// The weight of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ProblemLevel {
    /// A violation of the protocol.
    Error,
    /// A part that is ignored, forgiven or read as something else.
    Warning,
}

impl Problem {
    fn error(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Problem { level: ProblemLevel::Error, path: path.into(), problem: problem.into() }
    }

    fn warning(path: impl Into<String>, problem: impl Into<String>) -> Self {
        let (path, problem) = (path.into(), problem.into());
        Problem { level: ProblemLevel::Warning, path, problem }
    }
}

/// Validates every frame of a transcript against the protocol. Returns one report for each line of the conversation.
/// [`FrameReport::line`] is the number of its record, counted from 1.
///
/// ```
/// use duologue_conformance::frames::validate;
/// use duologue_transcript::{Importer, Side, Transcript};
///
/// let log = r#"{"direction":"out","message":{"jsonrpc":"2.0","id":1,"method":"session/nwe","params":{}}}"#;
/// let mut importer = Importer::new(log.as_bytes()).seen_by(Side::Client);
/// let records: Vec<_> = importer.by_ref().collect::<Result<_, _>>()?;
/// let reports = validate(&Transcript::new(importer.header(), records));
/// assert!(!reports[0].ok);
/// assert_eq!(reports[0].problems[0].path, "$.method");
/// # Ok::<(), duologue_transcript::Error>(())
/// ```
#[must_use]
pub fn validate(transcript: &Transcript) -> Vec<FrameReport> {
    validate_file(transcript, &[])
}

/// [`validate`] for a transcript that was read from a file: record `n` is on the line `lines[n]`.
#[doc(hidden)]
#[must_use]
pub fn validate_file(transcript: &Transcript, lines: &[u64]) -> Vec<FrameReport> {
    let entries = transcript.entries();
    let line =
        |entry: &TranscriptEntry<'_>| lines.get(entry.record).copied().unwrap_or(entry.record as u64 + 1);
    let mut reports: Vec<FrameReport> = entries
        .iter()
        .map(|entry| {
            let (lossless, problems) = frame::check(entry, transcript.header().redacted);
            FrameReport {
                line: line(entry),
                from: entry.from(),
                ok: true,
                method: entry.method().map(str::to_owned),
                kind: kind(entry),
                lossless,
                problems,
            }
        })
        .collect();
    ids::check(&entries, &mut reports);
    turns::check(&entries, &mut reports);
    capabilities::check(&entries, &mut reports);
    for report in &mut reports {
        report.ok = report.problems.iter().all(|problem| problem.level != ProblemLevel::Error);
    }
    reports
}

/// Returns the first part of the params or the result that has not its type.
pub(crate) fn first_type_error(entry: &TranscriptEntry<'_>) -> Option<Problem> {
    let mut problems = Problems::default();
    let value = |raw: Option<&RawValue>| match raw {
        Some(raw) => serde_json::from_str(raw.get()).ok(),
        None => Some(Value::Object(Map::new())),
    };
    match &entry.parsed {
        ParsedLine::Request { params, .. } | ParsedLine::Notification { params, .. } => {
            typed::params(entry, &value(*params)?, &mut problems)
        }
        ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. } => {
            typed::result(entry, &value(Some(result))?, &mut problems)
        }
        _ => return None,
    };
    problems.first_error()
}

fn kind(entry: &TranscriptEntry<'_>) -> FrameKind {
    match entry.parsed {
        ParsedLine::Request { .. } => FrameKind::Request,
        ParsedLine::Notification { .. } => FrameKind::Notification,
        ParsedLine::Response { .. } => FrameKind::Response,
        _ => FrameKind::Noise,
    }
}

/// Returns the row of the method of a request or notification, of the protocol or of the messages between agents.
/// Of several, the one that fits the message.
fn row(entry: &TranscriptEntry<'_>) -> Option<&'static MethodRow> {
    let method = entry.method()?;
    let is_request = matches!(entry.parsed, ParsedLine::Request { .. });
    let handler = match entry.from() {
        Side::Client => MethodSide::Agent,
        _ => MethodSide::Client,
    };
    let fits = |row: &&MethodRow| row.side == handler && row.result.is_some() == is_request;
    let stable = if entry.is_v2() { v2::METHODS } else { duologue_schema::METHODS };
    let [of_agents, of_clients, _] = UNSTABLE_METHODS;
    let unstable = [of_agents, of_clients].into_iter().flatten().filter(|_| !entry.is_v2());
    let mut rows = stable.into_iter().flatten().chain(unstable).filter(|row| row.method == method);
    let first = rows.next();
    let fitting = first.into_iter().chain(rows).find(fits);
    fitting.or(first).or_else(|| between_agents::row(method))
}
