//! Validates the ids of requests and sessions across frames.

use std::collections::{HashMap, HashSet};

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    CancelRequestNotification, DeleteSessionRequest, InitializeRequest, LoadSessionRequest,
    NewSessionRequest, Notification as _, Request as _, ResumeSessionRequest, SessionId, SessionNotification,
};
use duologue_transcript::{ParsedLine, Side, TranscriptEntry};
use serde::Deserialize;

use super::{FrameReport, Problem};

/// Adds the problems of ids to the reports, one for each entry.
pub(super) fn check(entries: &[TranscriptEntry<'_>], reports: &mut [FrameReport]) {
    requests(entries, reports);
    sessions(entries, reports);
}

fn requests(entries: &[TranscriptEntry<'_>], reports: &mut [FrameReport]) {
    let mut open: HashMap<(Side, &str), usize> = HashMap::new();
    let mut answered: HashSet<(Side, &str)> = HashSet::new();
    let lines: Vec<u64> = reports.iter().map(|report| report.line).collect();
    for (place, (entry, report)) in entries.iter().zip(reports).enumerate() {
        let mut error = |path: &str, problem: String| report.problems.push(Problem::error(path, problem));
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
                    report.problems.push(Problem::warning("$", "has no answer"));
                }
            }
            ParsedLine::Response { id, outcome, .. } => {
                let requested = (entry.from().other(), id.get());
                let is_complaint = id.get() == "null" && matches!(outcome, ResponseOutcome::Error(_));
                if open.remove(&requested).is_some() {
                    answered.insert(requested);
                } else if answered.contains(&requested) {
                    error("$.id", format!("{} has been answered before", id.get()));
                } else if !is_complaint {
                    error("$.id", format!("answers {}, which is the id of no request", id.get()));
                }
            }
            _ => {}
        }
    }
}

fn sessions(entries: &[TranscriptEntry<'_>], reports: &mut [FrameReport]) {
    // A log without `initialize` does not show the sessions that existed before.
    let whole = entries.iter().any(|entry| entry.method() == Some(InitializeRequest::METHOD));
    let mut made: HashMap<SessionId, usize> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        for id in makes(entry) {
            made.entry(id).or_insert(place);
        }
    }
    for (place, (entry, report)) in entries.iter().zip(reports).enumerate() {
        let is_call = matches!(entry.parsed, ParsedLine::Request { .. } | ParsedLine::Notification { .. });
        // The response to `session/new` names the session, not its params.
        let named = is_call && entry.method() != Some(NewSessionRequest::METHOD);
        let Some(session) = entry.session.as_ref().filter(|_| named && whole) else { continue };
        let path = match entry.method() {
            Some(CancelRequestNotification::METHOD) => "$.params.requestId",
            _ => "$.params.sessionId",
        };
        report.problems.extend(match made.get(session) {
            Some(maker) if *maker <= place => None,
            Some(_) if entry.from() == Side::Agent => {
                Some(Problem::warning(path, "comes before the response that creates the session"))
            }
            _ => Some(Problem::error(path, "names an unknown session")),
        });
    }
}

/// Returns the sessions that exist from this entry on.
fn makes(entry: &TranscriptEntry<'_>) -> Vec<SessionId> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Made {
        session_id: Option<SessionId>,
        sessions: Vec<Made>,
    }
    match &entry.parsed {
        // These may refer to a session of an earlier run.
        ParsedLine::Request { method, .. }
            if matches!(
                &**method,
                LoadSessionRequest::METHOD | ResumeSessionRequest::METHOD | DeleteSessionRequest::METHOD
            ) =>
        {
            entry.session.iter().cloned().collect()
        }
        // A child session.
        ParsedLine::Notification { method, params: Some(params), .. }
            if method == SessionNotification::METHOD =>
        {
            #[derive(Default, Deserialize)]
            #[serde(default)]
            struct Params {
                update: Made,
            }
            let params: Params = serde_json::from_str(params.get()).unwrap_or_default();
            params.update.session_id.into_iter().collect()
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
