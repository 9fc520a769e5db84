//! The recording laid out for a replay: what we say, and what we wait for before we say it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use duologue_rpc::Message;
use duologue_schema::{CancelNotification, CancelRequestNotification, Notification, PromptRequest, Request};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::format::{Event, Exit, Record, Side};
use crate::reading::{Entry, Said, entries};

/// The lane of what concerns the whole connection.
pub(super) const CONNECTION: usize = 0;

/// One thing that was recorded.
#[derive(Debug)]
pub(super) struct Cue {
    pub(super) record: usize,
    pub(super) at: Duration,
    /// The session it belongs to, as a number; [`CONNECTION`] for none.
    pub(super) lane: usize,
    /// Whether we say it; the other side says it otherwise.
    pub(super) ours: bool,
    pub(super) kind: Kind,
    pub(super) state: State,
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    /// `id` is its JSON token; `answer` the cue that answers it.
    Request { id: String, method: String, answer: Option<usize> },
    /// `late` when it withdraws what had been answered: it may come or not.
    Notification { method: String, late: bool },
    /// `request` is the cue it answers.
    Response { request: Option<usize> },
    /// A line that is no message, or one of stderr.
    Aside,
    /// The end of the output.
    Eof,
    /// The end of the process.
    Exit(Exit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not happened.
    Waiting,
    /// It has.
    Done,
    /// It will not.
    Skipped,
}

/// All cues in the order of the recording.
#[derive(Debug)]
pub(super) struct Cues {
    pub(super) cues: Vec<Cue>,
    /// The recorded session of each lane; the connection has none.
    pub(super) lanes: Vec<Option<String>>,
    /// The cue behind which the client had closed its side.
    pub(super) client_closed: Option<usize>,
    /// Whether the agent ended although its client had not closed.
    pub(super) agent_died: bool,
}

impl Cues {
    pub(super) fn new(records: &[Record], plays: Side) -> Self {
        let entries = entries(records);
        let mut lanes = Lanes { numbers: HashMap::new(), names: vec![None] };
        let mut open = Open::default();
        let mut cues: Vec<Cue> = Vec::new();
        let (mut client_closed, mut agent_died) = (None, false);
        let mut said = entries.iter().peekable();
        for (index, record) in records.iter().enumerate() {
            let mut cue = |lane, ours, kind| {
                cues.push(Cue { record: index, at: record.at, lane, ours, kind, state: State::Waiting });
            };
            match &record.event {
                Event::Line(line) => {
                    let Some(entry) = said.next_if(|entry| entry.record == index) else { continue };
                    let lane = lanes.number(entry);
                    let (ours, kind) = (line.from == plays, open.kind(entry));
                    if ours || !matches!(entry.said, Said::Blank) {
                        cue(lane, ours, kind);
                    }
                }
                Event::Stderr(_) => cue(CONNECTION, plays == Side::Agent, Kind::Aside),
                Event::Eof(Side::Client) => {
                    client_closed.get_or_insert(cues.len());
                }
                Event::Eof(Side::Agent) => {
                    agent_died |= client_closed.is_none();
                    cue(CONNECTION, plays == Side::Agent, Kind::Eof);
                }
                Event::Exit(exit) => {
                    agent_died |= client_closed.is_none();
                    cue(CONNECTION, plays == Side::Agent, Kind::Exit(*exit));
                }
                Event::Dropped { .. } | Event::Unknown(_) => {}
            }
        }
        let cue_of: HashMap<usize, usize> =
            cues.iter().enumerate().map(|(at, cue)| (cue.record, at)).collect();
        for cue in &mut cues {
            if let Kind::Request { answer: other, .. } | Kind::Response { request: other } = &mut cue.kind {
                *other = other.and_then(|entry| cue_of.get(&entries.get(entry)?.record).copied());
            }
        }
        Cues { cues, lanes: lanes.names, client_closed, agent_died }
    }

    pub(super) fn get(&self, at: usize) -> Option<&Cue> {
        self.cues.get(at)
    }

    pub(super) fn state(&self, at: usize) -> State {
        self.get(at).map_or(State::Skipped, |cue| cue.state)
    }

    pub(super) fn set(&mut self, at: usize, state: State) {
        if let Some(cue) = self.cues.get_mut(at) {
            cue.state = state;
        }
    }

    pub(super) fn is_waiting(&self, at: usize) -> bool {
        self.state(at) == State::Waiting
    }
}

struct Lanes {
    numbers: HashMap<String, usize>,
    names: Vec<Option<String>>,
}

impl Lanes {
    fn number(&mut self, entry: &Entry<'_>) -> usize {
        let Some(session) = &entry.session else { return CONNECTION };
        if let Some(number) = self.numbers.get(session.as_str()) {
            return *number;
        }
        let number = self.names.len();
        self.numbers.insert(session.as_str().into(), number);
        self.names.push(Some(session.as_str().into()));
        number
    }
}

/// The requests that have no answer yet, as one reads along.
#[derive(Default)]
struct Open {
    ids: HashSet<(Side, String)>,
    /// How many prompts each session runs.
    prompts: HashMap<String, usize>,
}

impl Open {
    fn kind(&mut self, entry: &Entry<'_>) -> Kind {
        let session = entry.session.as_ref().map_or("", |id| id.as_str());
        let is_prompt = entry.method() == Some(PromptRequest::METHOD);
        match &entry.said {
            Said::Request { id, method, answer, .. } => {
                self.ids.insert((entry.from(), id.token().into()));
                if is_prompt {
                    *self.prompts.entry(session.into()).or_default() += 1;
                }
                Kind::Request { id: id.token().into(), method: method.to_string(), answer: *answer }
            }
            Said::Notification { method, params } => {
                let late = if method == CancelRequestNotification::METHOD {
                    named_request(*params).is_none_or(|id| !self.ids.contains(&(entry.from(), id)))
                } else {
                    method == CancelNotification::METHOD
                        && self.prompts.get(session).is_none_or(|it| *it == 0)
                };
                Kind::Notification { method: method.to_string(), late }
            }
            Said::Response { id, request, .. } => {
                self.ids.remove(&(entry.from().other(), id.get().into()));
                if let (true, Some(running)) = (is_prompt, self.prompts.get_mut(session)) {
                    *running = running.saturating_sub(1);
                }
                Kind::Response { request: *request }
            }
            Said::Noise(_) | Said::Blank => Kind::Aside,
        }
    }
}

/// The token of the id that `requestId` names.
pub(super) fn named_request(params: Option<&RawValue>) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    serde_json::from_str::<Named<'_>>(params?.get()).ok().map(|named| named.request_id.get().into())
}

/// The params of a request or notification, the result or the error of an answer.
pub(super) fn content(record: &Record) -> Value {
    let read = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let message = record.line().and_then(|line| line.message()).and_then(Result::ok);
    match message {
        Some(Message::Request { params, .. } | Message::Notification { params, .. }) => read(params),
        Some(Message::Response { outcome, .. }) => Some(outcome_value(&outcome)),
        _ => None,
    }
    .unwrap_or_default()
}

/// An outcome as JSON with one member, `result` or `error`.
pub(super) fn outcome_value(outcome: &duologue_rpc::Outcome<'_>) -> Value {
    use duologue_rpc::Outcome;
    match outcome {
        Outcome::Result(raw) => {
            serde_json::json!({ "result": serde_json::from_str::<Value>(raw.get()).unwrap_or_default() })
        }
        // What an error says is for people; what it means is its code.
        Outcome::Error(error) => serde_json::json!({ "error": { "code": error.code } }),
        _ => serde_json::json!({ "error": {} }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Line;

    fn records(lines: &[(Side, &str)]) -> Vec<Record> {
        let record = |(at, (from, text)): (usize, &(Side, &str))| {
            Record::new(Duration::from_micros(at as u64), Event::Line(Line::new(*from, text.as_bytes())))
        };
        lines.iter().enumerate().map(record).collect()
    }

    #[test]
    fn sessions_are_lanes_and_late_withdrawals_are_told_apart() {
        use Side::{Agent, Client};
        let records = records(&[
            (Client, r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/a"}}"#),
            (Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#),
            (Client, r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#),
            (Agent, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
            (Client, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#),
            (Agent, "noise"),
        ]);
        let cues = Cues::new(&records, Side::Agent);
        let lanes: Vec<_> = cues.cues.iter().map(|cue| cue.lane).collect();
        assert_eq!(lanes, [1, 1, 1, 1, 1, 1, 0, 0]);
        let late: Vec<_> = cues
            .cues
            .iter()
            .filter_map(|cue| match &cue.kind {
                Kind::Notification { late, .. } => Some(*late),
                _ => None,
            })
            .collect();
        assert_eq!(late, [true, false, true]);
        assert_eq!(cues.get(5).map(|cue| &cue.kind), Some(&Kind::Response { request: Some(3) }));
        assert_eq!(cues.lanes, [None, Some("s".to_owned())]);
    }
}
