//! What a frame is among the others: the ids of requests and sessions.

use std::collections::{HashMap, HashSet};

use duologue_rpc::ResponseOutcome;
use duologue_schema::SessionId;
use duologue_transcript::{ParsedLine, Side, TranscriptEntry};
use serde::Deserialize;

use super::{Problem, Verdict};

/// Adds what is wrong with ids to the verdicts, one for each entry.
pub(super) fn check(entries: &[TranscriptEntry<'_>], verdicts: &mut [Verdict]) {
    requests(entries, verdicts);
    sessions(entries, verdicts);
}

fn requests(entries: &[TranscriptEntry<'_>], verdicts: &mut [Verdict]) {
    let mut open: HashMap<(Side, &str), usize> = HashMap::new();
    let mut answered: HashSet<(Side, &str)> = HashSet::new();
    let lines: Vec<u64> = verdicts.iter().map(|verdict| verdict.line).collect();
    for (place, (entry, verdict)) in entries.iter().zip(verdicts).enumerate() {
        let mut error = |path: &str, problem: String| verdict.problems.push(Problem::error(path, problem));
        match &entry.parsed {
            ParsedLine::Request { id, answer, .. } => {
                if id.token() == "null" {
                    error("$.id", "an id is a string or an integer".into());
                }
                if let Some(other) = open.insert((entry.from(), id.token()), place) {
                    let line = lines.get(other).copied().unwrap_or_default();
                    error(
                        "$.id",
                        format!("{id} is in use by the request of line {line}, which has no answer yet"),
                    );
                }
                if answer.is_none() {
                    verdict.problems.push(Problem::warning("$", "has no answer"));
                }
            }
            ParsedLine::Response { id, outcome, .. } => {
                let asked = (entry.from().other(), id.get());
                let is_complaint = id.get() == "null" && matches!(outcome, ResponseOutcome::Error(_));
                if open.remove(&asked).is_some() {
                    answered.insert(asked);
                } else if answered.contains(&asked) {
                    error("$.id", format!("{} has been answered before", id.get()));
                } else if !is_complaint {
                    error("$.id", format!("answers {}, which nobody has asked", id.get()));
                }
            }
            _ => {}
        }
    }
}

fn sessions(entries: &[TranscriptEntry<'_>], verdicts: &mut [Verdict]) {
    // A log that begins in the middle says nothing about the sessions made before.
    let whole = entries.iter().any(|entry| entry.method() == Some("initialize"));
    let mut made: HashMap<SessionId, usize> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        for id in makes(entry) {
            made.entry(id).or_insert(place);
        }
    }
    for (place, (entry, verdict)) in entries.iter().zip(verdicts).enumerate() {
        let told = matches!(entry.parsed, ParsedLine::Request { .. } | ParsedLine::Notification { .. });
        // The answer to such a request names its session, not its params.
        let named = told && entry.method() != Some("session/new");
        let Some(session) = entry.session.as_ref().filter(|_| named && whole) else { continue };
        let path = match entry.method() {
            Some("$/cancel_request") => "$.params.requestId",
            _ => "$.params.sessionId",
        };
        verdict.problems.extend(match made.get(session) {
            Some(maker) if *maker <= place => None,
            Some(_) if entry.from() == Side::Agent => {
                Some(Problem::warning(path, "comes before the answer that makes the session"))
            }
            _ => Some(Problem::error(path, "names a session that nobody has made")),
        });
    }
}

/// The sessions that exist from this entry on.
fn makes(entry: &TranscriptEntry<'_>) -> Vec<SessionId> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Made {
        session_id: Option<SessionId>,
        sessions: Vec<Made>,
    }
    match &entry.parsed {
        // These may be about a session of an earlier run.
        ParsedLine::Request { method, .. }
            if matches!(&**method, "session/load" | "session/resume" | "session/delete") =>
        {
            entry.session.iter().cloned().collect()
        }
        ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. } => {
            let made: Made = serde_json::from_str(result.get()).unwrap_or_default();
            made.session_id
                .into_iter()
                .chain(made.sessions.into_iter().filter_map(|made| made.session_id))
                .collect()
        }
        _ => Vec::new(),
    }
}
