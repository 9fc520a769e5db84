//! Everything every process said during all checks, looked at as a whole. These checks come last.

use std::collections::{HashMap, HashSet};

use duologue_rpc::{Malformed, ResponseOutcome as Answered};
use duologue_schema::{AgentNotification, SessionUpdate};
use duologue_transcript::{ParsedLine, Record, Side, TranscriptEntry, entries};
use serde_json::Value;

use super::bench::{Bench, Client};
use super::finding::{
    Check, Finding, Outcome, Verdict, check, check_of_answers, fail, page, pass, skip, skip_dependent, warn,
};
use super::wire::{id_name, nearly_same_id};
use crate::validate::misfit;

pub(super) const CHECKS: &[Check] = &[
    check!(
        "stdout-only-messages",
        Must,
        page::TRANSPORTS,
        "Every line on stdout is one JSON-RPC message, and nothing else is there.",
        stdout_only_messages
    ),
    check!(
        "nothing-before-initialize",
        Must,
        page::INITIALIZATION,
        "The agent says nothing before it has answered `initialize`.",
        nothing_before_initialize
    ),
    check!(
        "one-answer",
        Must,
        page::JSON_RPC,
        "No request is answered twice, and nothing is answered that was not asked.",
        one_answer
    ),
    check!(
        "request-ids-differ",
        Must,
        page::JSON_RPC,
        "The agent's own requests that wait at the same time have different ids.",
        request_ids_differ
    ),
    check!(
        "frames-valid",
        Must,
        page::SCHEMA,
        "Every message has the form that the schema gives it.",
        frames_valid
    ),
    check!(
        "updates-name-session",
        Must,
        page::PROMPT_TURN,
        "Every update names a session of this connection.",
        updates_name_session
    ),
    check!(
        "only-advertised",
        Must,
        page::INITIALIZATION,
        "The agent calls no method that the client did not say it has.",
        only_advertised
    ),
    check!(
        "extension-names",
        Should,
        page::EXTENSIBILITY,
        "The names of methods that are not part of the protocol begin with `_`.",
        extension_names
    ),
];

/// What a look at one process found, and the records that show it.
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

    /// Shows it with what came before, from the last request on.
    fn in_context(self, all: &[TranscriptEntry<'_>]) -> Self {
        let asked = all.iter().rev().find(|entry| {
            let is_request = matches!(entry.parsed, ParsedLine::Request { .. });
            is_request && entry.from() == Side::Client && entry.record < self.record
        });
        Fault { first: asked.map_or(self.first, |entry| entry.record), ..self }
    }
}

/// Looks at what each process said, after a turn if there can be one. A fault whose cause another check has
/// reported is passed over.
async fn look(bench: &mut Bench, look: fn(&[TranscriptEntry<'_>]) -> Vec<Fault>) -> Outcome {
    let _ = bench.after_turn().await;
    let (mut lines, mut reported) = (0, None);
    for tape in bench.tapes().to_vec() {
        let records = tape.since(0);
        let faults = {
            let entries = entries(&records);
            lines += entries.iter().filter(|entry| entry.from() == Side::Agent).count();
            look(&entries)
        };
        for fault in faults {
            match super::explained(bench, "", Verdict::Fail, &fault.causes).await {
                None => return Ok(shown(fault, &records)),
                why => reported = reported.or(why),
            }
        }
    }
    if let Some(why) = reported {
        return Ok(skip_dependent(why));
    }
    Ok(match lines {
        0 => skip("the agent said nothing"),
        1 => pass("in 1 line"),
        _ => pass(format!("in {} lines", round(lines))),
    })
}

/// How many, roughly: the number differs a little from run to run.
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

/// Looks at each line of the agent.
fn faults(
    all: &[TranscriptEntry<'_>],
    fault: impl FnMut(&TranscriptEntry<'_>) -> Option<Fault>,
) -> Vec<Fault> {
    of_agent(all).filter_map(fault).collect()
}

fn of_agent<'a>(all: &'a [TranscriptEntry<'a>]) -> impl Iterator<Item = &'a TranscriptEntry<'a>> {
    all.iter().filter(|entry| entry.from() == Side::Agent)
}

async fn stdout_only_messages(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
        faults(all, |entry| match &entry.parsed {
            ParsedLine::Noise(Malformed::Noise(error)) => {
                Some(Fault::new(entry, format!("a line that is no message: {}", error.message)))
            }
            ParsedLine::Noise(malformed) => {
                let fault = Fault::new(entry, format!("a message that is none: {malformed}"));
                let is_silent = matches!(malformed, Malformed::Silent(_));
                Some(fault.explained_by(is_silent.then_some(ANONYMOUS).into_iter().flatten()))
            }
            ParsedLine::Response { outcome: Answered::Unreadable(error), .. } => {
                Some(Fault::new(entry, format!("an answer that cannot be read: {error}")))
            }
            ParsedLine::Response { outcome: Answered::Missing(_), .. } => {
                Some(Fault::new(entry, "an answer with neither result nor error"))
            }
            // Readers forgive it in answers, the specification does not.
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

async fn nothing_before_initialize(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
        let first =
            of_agent(all).find(|entry| !matches!(entry.parsed, ParsedLine::Noise(_) | ParsedLine::Blank));
        let fault = first.and_then(|first| match &first.parsed {
            ParsedLine::Request { method, .. } | ParsedLine::Notification { method, .. } => {
                Some(Fault::new(first, format!("its first words are {method}")))
            }
            _ => None,
        });
        Vec::from_iter(fault)
    })
    .await
}

async fn one_answer(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
        faults(all, |entry| match &entry.parsed {
            // What cannot be read is answered with the id null, however often.
            ParsedLine::Response { request: None, id, outcome, .. }
                if !(id.get() == "null" && matches!(outcome, Answered::Error(_))) =>
            {
                let asked = all.iter().any(|other| {
                    // Another spelling of an id is the concern of the checks of ids.
                    matches!(&other.parsed, ParsedLine::Request { id: asked, .. }
                        if other.from() == Side::Client
                            && (id_name(asked.token()) == id_name(id.get())
                                || nearly_same_id(asked.token(), id.get())))
                });
                let twice = of_agent(all).any(|other| {
                    other.record < entry.record
                        && matches!(&other.parsed, ParsedLine::Response { id: other, .. } if id_name(other.get()) == id_name(id.get()))
                });
                let saw = match (asked, twice) {
                    (true, true) => "a request is answered a second time".to_owned(),
                    (false, _) => format!("an answer to {}, which nobody asked", id.get()),
                    (true, false) => return None,
                };
                let causes = (id.get() == "null").then_some(ANONYMOUS);
                Some(Fault::new(entry, saw).explained_by(causes.into_iter().flatten()))
            }
            _ => None,
        })
    })
    .await
}

/// The checks that find an answer without an id.
const ANONYMOUS: [&str; 2] = ["answer-id", "unknown-notification"];

async fn request_ids_differ(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
        // Up to which record each id is in use.
        let mut in_use = HashMap::new();
        faults(all, |entry| {
            let ParsedLine::Request { id, answer, .. } = &entry.parsed else { return None };
            let until = answer.and_then(|at| all.get(at)).map_or(usize::MAX, |answer| answer.record);
            let before = in_use.insert(id_name(id.token()), until);
            let waits = before.is_some_and(|until| until > entry.record);
            waits.then(|| Fault::new(entry, format!("the id {} is in use", id.token())))
        })
    })
    .await
}

async fn frames_valid(bench: &mut Bench) -> Outcome {
    let finding = look(bench, |all| {
        faults(all, |entry| {
            let is_answer = matches!(entry.parsed, ParsedLine::Response { .. });
            let check = entry.method().filter(|_| is_answer).and_then(check_of_answers);
            Some(Fault::new(entry, malformed(entry)?).explained_by(check))
        })
    })
    .await?;
    if finding.verdict != Verdict::Pass {
        return Ok(finding);
    }
    // A kind of update that is not in the schema may be newer than we are.
    let newer = bench.tapes().iter().find_map(|tape| {
        let records = tape.since(0);
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

/// What is wrong with a message, if anything is.
fn malformed(entry: &TranscriptEntry<'_>) -> Option<String> {
    let kind = match &entry.parsed {
        ParsedLine::Request { .. } => "the request",
        ParsedLine::Notification { .. } => "the notification",
        // An empty answer may be null: earlier versions of the specification wrote it so.
        ParsedLine::Response { outcome: Answered::Result(result), .. } if result.get() == "null" => {
            return None;
        }
        _ => "the answer to",
    };
    let fault = misfit(entry)?;
    Some(format!("{kind} {} is not of the schema: {}: {}", entry.method()?, fault.path, fault.problem))
}

fn unknown_update(entry: &TranscriptEntry<'_>) -> Option<String> {
    let ParsedLine::Notification { method, params, .. } = &entry.parsed else { return None };
    match AgentNotification::decode(method, *params)?.ok()? {
        AgentNotification::SessionUpdate(told) => match told.update {
            SessionUpdate::Unknown(unknown) => Some(unknown.tag().to_owned()),
            _ => None,
        },
        _ => None,
    }
}

async fn updates_name_session(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
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
        faults(all, |entry| match (&entry.parsed, &entry.session) {
            (ParsedLine::Notification { method, .. }, session) if method == "session/update" => match session
            {
                Some(session) if known.contains(session.as_str()) => None,
                Some(session) => {
                    let saw = format!("nobody made the session {}", session.as_str());
                    Some(Fault::new(entry, saw).in_context(all))
                }
                None => Some(Fault::new(entry, "an update without a session").in_context(all)),
            },
            _ => None,
        })
    })
    .await
}

async fn only_advertised(bench: &mut Bench) -> Outcome {
    bench.expect_turns()?;
    // A client with nothing at all, since the others lend files.
    bench.session().await?;
    let mut agent = bench.fresh(Client::Bare).await?;
    let opened = agent.open().await?;
    let start = agent.tape().len();
    let turn = agent.turn(&opened.id).await;
    let records = agent.tape().since(start);
    bench.retire(agent.into_wire());
    let all = entries(&records);
    let taken = of_agent(&all).find_map(|entry| match &entry.parsed {
        ParsedLine::Request { method, .. } if gated(method) => {
            Some(Fault::new(entry, format!("{method}, of a client that advertises nothing")))
        }
        _ => None,
    });
    if let Some(fault) = taken {
        return Ok(shown(fault, &records));
    }
    turn.map_err(|finding| finding.needed("there is no turn of a client that advertises nothing"))?;
    // Nobody here has terminals or forms.
    look(bench, |all| {
        faults(all, |entry| match &entry.parsed {
            ParsedLine::Request { method, .. } if gated(method) && !method.starts_with("fs/") => {
                Some(Fault::new(entry, format!("{method}, which the client did not advertise")))
            }
            _ => None,
        })
    })
    .await
}

fn gated(method: &str) -> bool {
    method.starts_with("fs/") || method.starts_with("terminal/") || method.starts_with("elicitation/")
}

async fn extension_names(bench: &mut Bench) -> Outcome {
    look(bench, |all| {
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
