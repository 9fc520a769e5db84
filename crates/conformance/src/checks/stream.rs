//! Checks of all lines that the agent's processes sent during the run. They run last.

use std::collections::{HashMap, HashSet};

use duologue_rpc::{Malformed, ResponseOutcome};
use duologue_schema::{
    AgentNotification, AgentRequest, Notification as _, RelativePath, SessionNotification,
};
use duologue_transcript::{ParsedLine, Record, Side, TranscriptEntry, entries, id_key};
use serde_json::Value;

use crate::finding::{Finding, Outcome, Verdict, check_of_responses, checks, fail, pass, skip, warn};
use crate::frames::first_type_error;
use crate::harness::{Harness, TestClient};
use crate::raw_process::numeric_id;

checks! { "stream";
    "stdout-only-messages" => stdout_only_messages, Must, TRANSPORTS,
        "Every line on stdout is one JSON-RPC message, and nothing else is there.";
    "nothing-before-initialize" => nothing_before_initialize, Must, INITIALIZATION,
        "The agent sends nothing before the response to `initialize`.";
    "one-answer" => one_answer, Must, JSON_RPC,
        "No request is answered twice, and every response answers a request.";
    "request-ids-differ" => request_ids_differ, Must, JSON_RPC,
        "The agent's own requests that wait at the same time have different ids.";
    "frames-valid" => frames_valid, Must, SCHEMA,
        "Every message has the form that the schema gives it.";
    "paths-absolute" => paths_absolute, Must, OVERVIEW,
        "Every path that the agent sends is absolute.";
    "updates-name-session" => updates_name_session, Must, PROMPT_TURN,
        "Every update names a session of this connection.";
    "only-advertised" => only_advertised, Must, INITIALIZATION,
        "The agent sends no request and no update that needs a capability which the client did not advertise.";
    "extension-names" => extension_names, Should, EXTENSIBILITY,
        "The names of methods that are not part of the protocol begin with `_`.";
}

/// A violation in the log of a process, and the records that show it.
struct Fault {
    saw: String,
    first: usize,
    record: usize,
    /// The checks that test its possible causes.
    causes: Vec<&'static str>,
}

impl Fault {
    fn new(entry: &TranscriptEntry<'_>, saw: impl Into<String>) -> Self {
        Fault { saw: saw.into(), first: entry.record, record: entry.record, causes: Vec::new() }
    }

    /// Adds the checks that test its possible causes.
    fn explained_by(mut self, checks: impl IntoIterator<Item = &'static str>) -> Self {
        self.causes.extend(checks);
        self
    }

    /// Extends the shown records to the last request before the violation.
    fn in_context(self, all: &[TranscriptEntry<'_>]) -> Self {
        let request = all.iter().rev().find(|entry| {
            let is_request = matches!(entry.parsed, ParsedLine::Request { .. });
            is_request && entry.from() == Side::Client && entry.record < self.record
        });
        Fault { first: request.map_or(self.first, |entry| entry.record), ..self }
    }
}

/// The violations in a log, found one at a time: a log has up to 250,000 lines.
type Faults<'a> = Box<dyn Iterator<Item = Fault> + 'a>;

/// Examines the log of each process, after a turn if possible. A violation whose cause another check has
/// reported is skipped.
async fn examine(
    harness: &mut Harness,
    find: for<'a> fn(&'a [TranscriptEntry<'a>]) -> Faults<'a>,
) -> Outcome {
    let _ = harness.after_turn().await;
    let (mut lines, mut reported) = (0, None);
    // The lists of causes that explain a violation.
    let mut explained = HashSet::new();
    for log in harness.logs().to_vec() {
        let records = log.since(0);
        let entries = entries(&records);
        lines += entries.iter().filter(|entry| entry.from() == Side::Agent).count();
        for fault in find(&entries) {
            if explained.contains(&fault.causes) {
                continue;
            }
            match crate::suite::explained(harness, "", Verdict::Fail, &fault.causes).await {
                None => return Ok(shown(fault, &records)),
                explanation => reported = reported.or(explanation),
            }
            explained.insert(fault.causes);
        }
    }
    if let Some(explanation) = reported {
        return Ok(explanation);
    }
    Ok(match lines {
        0 => skip("the agent said nothing"),
        1 => pass("in 1 line"),
        _ => pass(format!("in {} lines", round(lines))),
    })
}

/// Rounds a number of lines, since it differs a little from run to run.
fn round(lines: usize) -> String {
    match lines {
        0..20 => format!("{lines}"),
        20..100 => format!("some {}", lines / 10 * 10),
        _ => format!("some {}", lines / 100 * 100),
    }
}

fn shown(fault: Fault, records: &[Record]) -> Finding {
    fail(fault.saw).shown(records.get(fault.first..=fault.record).unwrap_or_default().iter().cloned())
}

/// Examines each line of the agent.
fn faults<'a>(
    all: &'a [TranscriptEntry<'a>],
    fault: impl FnMut(&'a TranscriptEntry<'a>) -> Option<Fault> + 'a,
) -> Faults<'a> {
    Box::new(of_agent(all).filter_map(fault))
}

fn of_agent<'a>(all: &'a [TranscriptEntry<'a>]) -> impl Iterator<Item = &'a TranscriptEntry<'a>> {
    all.iter().filter(|entry| entry.from() == Side::Agent)
}

async fn stdout_only_messages(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        faults(all, |entry| match &entry.parsed {
            ParsedLine::Noise(Malformed::Noise(error)) => {
                Some(Fault::new(entry, format!("a line that is no message: {}", error.message)))
            }
            ParsedLine::Noise(malformed) => {
                let fault = Fault::new(entry, format!("a message that is none: {malformed}"));
                let is_silent = matches!(malformed, Malformed::Silent(_));
                Some(fault.explained_by(is_silent.then_some(ANONYMOUS).into_iter().flatten()))
            }
            ParsedLine::Response { outcome: ResponseOutcome::Unreadable(error), .. } => {
                Some(Fault::new(entry, format!("an answer that cannot be read: {error}")))
            }
            ParsedLine::Response { outcome: ResponseOutcome::Missing(_), .. } => {
                Some(Fault::new(entry, "an answer with neither result nor error"))
            }
            // Clients forgive it in responses, the specification does not.
            ParsedLine::Response { .. } if !has_version(entry) => {
                Some(Fault::new(entry, "a message without \"jsonrpc\":\"2.0\""))
            }
            ParsedLine::Blank if !entry.line.bytes().is_empty() => Some(Fault::new(entry, "white space")),
            ParsedLine::Blank => Some(Fault::new(entry, "a blank line")),
            _ => None,
        })
    })
    .await
}

fn has_version(entry: &TranscriptEntry<'_>) -> bool {
    serde_json::from_slice::<Value>(entry.line.bytes()).is_ok_and(|line| line["jsonrpc"] == "2.0")
}

async fn nothing_before_initialize(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        let first =
            of_agent(all).find(|entry| !matches!(entry.parsed, ParsedLine::Noise(_) | ParsedLine::Blank));
        let fault = first.and_then(|first| match &first.parsed {
            ParsedLine::Request { method, .. } | ParsedLine::Notification { method, .. } => {
                Some(Fault::new(first, format!("its first message is {method}")))
            }
            _ => None,
        });
        Box::new(fault.into_iter())
    })
    .await
}

async fn one_answer(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        let requested: HashSet<_> = all
            .iter()
            .filter(|entry| entry.from() == Side::Client)
            .filter_map(|entry| match &entry.parsed {
                ParsedLine::Request { id, .. } => Some(id.token()),
                _ => None,
            })
            .flat_map(request_keys)
            .collect();
        let mut answered = HashSet::new();
        faults(all, move |entry| {
            let ParsedLine::Response { request, id, outcome, .. } = &entry.parsed else { return None };
            let is_duplicate = !answered.insert(id_key(id.get()));
            // Each unreadable line is answered with the id null.
            let is_complaint = id.get() == "null" && matches!(outcome, ResponseOutcome::Error(_));
            if request.is_some() || is_complaint {
                return None;
            }
            // The checks of ids report another spelling of an id.
            let is_requested = request_keys(id.get()).any(|key| requested.contains(&key));
            let saw = match (is_requested, is_duplicate) {
                (true, true) => "a request is answered a second time".to_owned(),
                (false, _) => format!("a response to {}, which is the id of no request", id.get()),
                (true, false) => return None,
            };
            let causes = (id.get() == "null").then_some(ANONYMOUS);
            Some(Fault::new(entry, saw).explained_by(causes.into_iter().flatten()))
        })
    })
    .await
}

/// Returns the keys of an id: its canonical form, and its number if it has one.
fn request_keys(id: &str) -> impl Iterator<Item = String> {
    // No canonical form begins like the key of a number.
    let number = numeric_id(id).map(|number| format!("number {number}"));
    [id_key(id)].into_iter().chain(number)
}

/// The checks that report a response without an id.
const ANONYMOUS: [&str; 2] = ["answer-id", "unknown-notification"];

async fn request_ids_differ(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        // The record until which each id is in use.
        let mut in_use = HashMap::new();
        faults(all, move |entry| {
            let ParsedLine::Request { id, answer, .. } = &entry.parsed else { return None };
            let until = answer.and_then(|at| all.get(at)).map_or(usize::MAX, |answer| answer.record);
            let before = in_use.insert(id_key(id.token()), until);
            let waits = before.is_some_and(|until| until > entry.record);
            waits.then(|| Fault::new(entry, format!("the id {} is in use", id.token())))
        })
    })
    .await
}

async fn frames_valid(harness: &mut Harness) -> Outcome {
    let finding = examine(harness, |all| {
        faults(all, |entry| {
            let is_answer = matches!(entry.parsed, ParsedLine::Response { .. });
            let check = entry.method().filter(|_| is_answer).and_then(check_of_responses);
            Some(Fault::new(entry, malformed(entry)?).explained_by(check))
        })
    })
    .await?;
    if finding.verdict != Verdict::Pass {
        return Ok(finding);
    }
    // An unknown kind of update may be newer than our schema.
    let newer = harness.logs().iter().find_map(|log| {
        let records = log.since(0);
        let (tag, record) =
            of_agent(&entries(&records)).find_map(|entry| Some((unknown_update(entry)?, entry.record)))?;
        records.get(record).cloned().map(|record| (tag, record))
    });
    match newer {
        Some((tag, record)) => {
            Ok(warn(format!("version 1 knows no update named {tag}; its clients drop it")).shown([record]))
        }
        None => Ok(finding),
    }
}

/// Returns the description of the first part of a message that violates the schema.
fn malformed(entry: &TranscriptEntry<'_>) -> Option<String> {
    let kind = match &entry.parsed {
        ParsedLine::Request { .. } => "the request",
        ParsedLine::Notification { .. } => "the notification",
        // Earlier versions of the specification wrote an empty result as null.
        ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. } if result.get() == "null" => {
            return None;
        }
        _ => "the answer to",
    };
    let fault = first_type_error(entry)?;
    Some(format!("{kind} {} is not of the schema: {}: {}", entry.method()?, fault.path, fault.problem))
}

fn unknown_update(entry: &TranscriptEntry<'_>) -> Option<String> {
    let ParsedLine::Notification { method, params, .. } = &entry.parsed else { return None };
    match AgentNotification::decode(method, *params)?.ok()? {
        AgentNotification::SessionUpdate(notification) => {
            notification.update.tag_outside_v1().map(str::to_owned)
        }
        _ => None,
    }
}

async fn paths_absolute(harness: &mut Harness) -> Outcome {
    examine(harness, |all| faults(all, |entry| Some(Fault::new(entry, relative_path(entry)?)))).await
}

/// Returns the description of a relative path in a request or a notification of the agent.
fn relative_path(entry: &TranscriptEntry<'_>) -> Option<String> {
    let described = |found: RelativePath<'_>| format!("{found}, in {}", entry.method().unwrap_or_default());
    match &entry.parsed {
        ParsedLine::Notification { method, params, .. } => {
            AgentNotification::decode(method, *params)?.ok()?.relative_path().map(described)
        }
        ParsedLine::Request { method, params, .. } => {
            AgentRequest::decode(method, *params)?.ok()?.relative_path().map(described)
        }
        _ => None,
    }
}

async fn updates_name_session(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        let known: HashSet<&str> = all
            .iter()
            .filter(|entry| match &entry.parsed {
                ParsedLine::Request { method, .. } => {
                    entry.from() == Side::Client && method.starts_with("session/")
                }
                _ => false,
            })
            .filter_map(|entry| entry.session.as_ref().map(|session| session.as_str()))
            .collect();
        faults(all, move |entry| match (&entry.parsed, &entry.session) {
            (ParsedLine::Notification { method, .. }, session) if method == SessionNotification::METHOD => {
                match session {
                    Some(session) if known.contains(session.as_str()) => None,
                    Some(session) => {
                        let saw = format!("the session {} is unknown", session.as_str());
                        Some(Fault::new(entry, saw).in_context(all))
                    }
                    None => Some(Fault::new(entry, "an update without a session").in_context(all)),
                }
            }
            _ => None,
        })
    })
    .await
}

async fn only_advertised(harness: &mut Harness) -> Outcome {
    harness.expect_turns()?;
    // A client without capabilities, since the client of the other checks has files.
    harness.session().await?;
    let mut agent = harness.fresh(TestClient::Bare).await?;
    let opened = agent.open().await?;
    let start = agent.log().len();
    let turn = agent.turn(&opened.id).await;
    let records = agent.log().since(start);
    harness.retire(agent.into_process());
    let all = entries(&records);
    let taken = of_agent(&all).find_map(|entry| {
        let name = gated_request(entry).map(str::to_owned).or_else(|| gated_update(entry))?;
        Some(Fault::new(entry, format!("{name}, of a client that advertises nothing")))
    });
    if let Some(fault) = taken {
        return Ok(shown(fault, &records));
    }
    turn.map_err(|finding| finding.needed("there is no turn of a client that advertises nothing"))?;
    // No client of the checks has terminals, forms, plans with ids or child sessions.
    examine(harness, |all| {
        faults(all, |entry| {
            let request = gated_request(entry).filter(|method| !method.starts_with("fs/"));
            let name = request.map(str::to_owned).or_else(|| gated_update(entry))?;
            Some(Fault::new(entry, format!("{name}, which the client did not advertise")))
        })
    })
    .await
}

/// Returns the method of a request that needs a capability of the client.
fn gated_request<'a>(entry: &'a TranscriptEntry<'_>) -> Option<&'a str> {
    let ParsedLine::Request { method, .. } = &entry.parsed else { return None };
    ["fs/", "terminal/", "elicitation/"].iter().any(|part| method.starts_with(part)).then_some(&**method)
}

/// Returns the name of an update that needs the capability `plan` or `subagents` of the client, or of the part that needs it.
fn gated_update(entry: &TranscriptEntry<'_>) -> Option<String> {
    let ParsedLine::Notification { method, params, .. } = &entry.parsed else { return None };
    let params = params.filter(|_| &**method == SessionNotification::METHOD)?;
    let params: Value = serde_json::from_str(params.get()).ok()?;
    let update = &params["update"];
    let is_reference = |content: &Value| content["type"] == "session";
    match update["sessionUpdate"].as_str()? {
        name @ ("plan_update" | "plan_removed") => Some(format!("`{name}` (`plan`)")),
        name @ ("subagent_update" | "session_message" | "session_message_chunk") => {
            Some(format!("`{name}` (`subagents`)"))
        }
        "tool_call" | "tool_call_update" if update["content"].as_array()?.iter().any(is_reference) => {
            Some("a reference to a session in a tool call (`subagents`)".to_owned())
        }
        _ => None,
    }
}

async fn extension_names(harness: &mut Harness) -> Outcome {
    examine(harness, |all| {
        faults(all, |entry| match &entry.parsed {
            ParsedLine::Request { method, .. } | ParsedLine::Notification { method, .. } => {
                let known =
                    duologue_schema::METHODS.iter().copied().flatten().any(|row| row.method == &**method);
                let free = method.starts_with('_') || method.starts_with("$/");
                (!known && !free).then(|| {
                    Fault::new(entry, format!("{method} is neither of the protocol nor begins with _"))
                })
            }
            _ => None,
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use duologue_transcript::{Header, Transcript};
    use serde_json::json;

    use super::*;

    #[test]
    fn updates_that_need_a_capability_are_found() {
        let content = |kind: &str| json!([{"type": kind, "sessionId": "c", "terminalId": "t"}]);
        for (update, expected) in [
            (json!({"sessionUpdate": "plan", "entries": []}), None),
            (json!({"sessionUpdate": "plan_update", "plan": {}}), Some("`plan_update` (`plan`)")),
            (json!({"sessionUpdate": "plan_removed", "planId": "p"}), Some("`plan_removed` (`plan`)")),
            (json!({"sessionUpdate": "subagent_update"}), Some("`subagent_update` (`subagents`)")),
            (json!({"sessionUpdate": "session_message"}), Some("`session_message` (`subagents`)")),
            (
                json!({"sessionUpdate": "session_message_chunk"}),
                Some("`session_message_chunk` (`subagents`)"),
            ),
            (
                json!({"sessionUpdate": "tool_call", "content": content("session")}),
                Some("a reference to a session in a tool call (`subagents`)"),
            ),
            (json!({"sessionUpdate": "tool_call_update", "content": content("terminal")}), None),
            (json!({"sessionUpdate": "tool_call_update"}), None),
        ] {
            let params = json!({"sessionId": "s", "update": update});
            let frame = json!({"jsonrpc": "2.0", "method": "session/update", "params": params});
            let lines = [
                json!(Header::new("test")).to_string(),
                json!({"at": 0, "from": "agent", "frame": frame}).to_string(),
            ];
            let transcript = Transcript::read(lines.join("\n").as_bytes()).unwrap();
            let found = transcript.entries().first().and_then(gated_update);
            assert_eq!(found.as_deref(), expected, "{update}");
        }
    }
}
