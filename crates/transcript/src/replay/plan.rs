//! The lines of a recording, prepared for a replay: who sends each, and to which request it belongs.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use duologue_rpc::{Malformed, RpcMessage};
use duologue_schema::{CancelNotification, CancelRequestNotification, Notification, PromptRequest, Request};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::classify::{ParsedLine, TranscriptEntry, entries, id_key};
use crate::format::{ProcessExit, Record, RecordEvent, Side};
use crate::transcript::Transcript;

/// The lane of lines that belong to no session.
pub(super) const CONNECTION: usize = 0;

/// A recorded line.
#[derive(Debug)]
pub(super) struct PlannedLine {
    pub(super) record: usize,
    pub(super) at: Duration,
    /// The number of its session's lane; [`CONNECTION`] if it belongs to no session.
    pub(super) lane: usize,
    /// True if the played side sends it.
    pub(super) ours: bool,
    pub(super) kind: LineKind,
    pub(super) state: LineState,
}

impl PlannedLine {
    fn new(record: usize, at: Duration, lane: usize, ours: bool, kind: LineKind) -> Self {
        PlannedLine { record, at, lane, ours, kind, state: LineState::Waiting }
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum LineKind {
    /// A request. `id` is its JSON token, `answer` the line of its response.
    Request { id: String, method: String, answer: Option<usize> },
    /// A notification. `late` if it cancels a request that had been answered: it may come or not.
    Notification { method: String, late: bool },
    /// A response. `request` is the line that it answers. `lost` if the response itself is in a gap or after the end of
    /// the recording.
    Response { request: Option<usize>, lost: bool },
    /// A line that is not a message, or one of stderr.
    NotAMessage,
    /// The end of the output.
    Eof,
    /// The end of the process.
    Exit(ProcessExit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineState {
    /// It has not happened yet.
    Waiting,
    /// It has happened.
    Done,
    /// It will not happen.
    Skipped,
}

/// All lines in the order of the recording.
#[derive(Debug)]
pub(super) struct ReplayPlan {
    pub(super) lines: Vec<PlannedLine>,
    /// The recorded session of each lane; the connection has none.
    pub(super) lanes: Vec<Option<String>>,
    /// The lane of each recorded session.
    pub(super) lane_numbers: HashMap<String, usize>,
    /// The response to each line that is not a message but has an id.
    pub(super) answer_to_noise: HashMap<usize, usize>,
    /// The line with which the work on each accepted prompt of version 2 ends.
    pub(super) turn_ends: HashMap<usize, usize>,
    /// The line before which the client closed its output.
    pub(super) client_closed: Option<usize>,
    /// True if the agent ended before its client closed.
    pub(super) agent_died: bool,
}

impl ReplayPlan {
    pub(super) fn new(transcript: &Transcript, plays: Side) -> Self {
        let records = transcript.records();
        let entries = entries(records);
        let mut lanes = Lanes { numbers: HashMap::new(), names: vec![None] };
        let mut open = Open::default();
        let mut unanswered = Unanswered::default();
        let mut lines: Vec<PlannedLine> = Vec::new();
        let (mut client_closed, mut agent_died) = (None, false);
        let mut parsed = entries.iter().enumerate().peekable();
        let mut now = Duration::ZERO;
        for (index, record) in records.iter().enumerate() {
            now = record.at;
            let planned = |lane, ours, kind| PlannedLine::new(index, now, lane, ours, kind);
            match &record.event {
                RecordEvent::Line(line) => {
                    let Some((place, entry)) = parsed.next_if(|(_, entry)| entry.record == index) else {
                        continue;
                    };
                    let lane = lanes.number(entry);
                    let ours = line.from == plays;
                    let kind = open.kind(place, &entries, entry, ours);
                    if let (false, LineKind::Request { answer, .. }) = (ours, &kind) {
                        // A client that waits for a lost response sends nothing more.
                        lines.extend(unanswered.lost(Some(lane), now));
                        if answer.is_none() {
                            unanswered.open.push((place, lane, index));
                        }
                    }
                    if ours || !matches!(entry.parsed, ParsedLine::Blank) {
                        lines.push(planned(lane, ours, kind));
                    }
                }
                RecordEvent::Stderr(_) => {
                    lines.push(planned(CONNECTION, plays == Side::Agent, LineKind::NotAMessage))
                }
                RecordEvent::Eof(Side::Client) => {
                    lines.extend(unanswered.lost(None, now));
                    client_closed.get_or_insert(lines.len());
                }
                event @ (RecordEvent::Eof(Side::Agent) | RecordEvent::Exit(_)) => {
                    lines.extend(unanswered.lost(None, now));
                    agent_died |= client_closed.is_none();
                    let kind = match event {
                        RecordEvent::Exit(exit) => LineKind::Exit(*exit),
                        _ => LineKind::Eof,
                    };
                    lines.push(planned(CONNECTION, plays == Side::Agent, kind));
                }
                RecordEvent::Dropped { .. } => unanswered.gap(),
                RecordEvent::Unknown(_) => {}
            }
        }
        let ends = client_closed.is_some() || agent_died;
        if transcript.is_cut() || !ends {
            unanswered.gap();
            lines.extend(unanswered.lost(None, now));
        }
        if transcript.is_cut() && !ends && plays == Side::Agent {
            // The rest is unknown, so the agent ends here.
            lines.push(PlannedLine::new(records.len(), now, CONNECTION, true, LineKind::Eof));
        }
        link(&mut lines, &entries);
        let mut answer_to_noise = HashMap::new();
        for (at, planned) in lines.iter().enumerate() {
            if let LineKind::Response { request: Some(request), .. } = planned.kind
                && lines.get(request).is_some_and(|request| request.kind == LineKind::NotAMessage)
            {
                answer_to_noise.entry(request).or_insert(at);
            }
        }
        let turn_ends = turn_ends(&lines, &entries);
        ReplayPlan {
            lines,
            turn_ends,
            lanes: lanes.names,
            lane_numbers: lanes.numbers,
            answer_to_noise,
            client_closed,
            agent_died,
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&PlannedLine> {
        self.lines.get(at)
    }

    pub(super) fn state(&self, at: usize) -> LineState {
        self.get(at).map_or(LineState::Skipped, |planned| planned.state)
    }

    pub(super) fn set(&mut self, at: usize, state: LineState) {
        if let Some(planned) = self.lines.get_mut(at) {
            planned.state = state;
        }
    }

    pub(super) fn is_waiting(&self, at: usize) -> bool {
        self.state(at) == LineState::Waiting
    }
}

/// Returns the line of the state `idle` after each prompt of version 2, by the line of the prompt.
fn turn_ends(lines: &[PlannedLine], entries: &[TranscriptEntry<'_>]) -> HashMap<usize, usize> {
    let mut by_record: HashMap<usize, &TranscriptEntry<'_>> =
        entries.iter().map(|entry| (entry.record, entry)).collect();
    let mut open: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut ends = HashMap::new();
    for (at, planned) in lines.iter().enumerate() {
        let Some(entry) = by_record.remove(&planned.record) else { continue };
        let open = open.entry(planned.lane).or_default();
        match &planned.kind {
            LineKind::Request { method, .. } if method == PromptRequest::METHOD => open.push(at),
            // The agent has rejected the prompt.
            LineKind::Response { request, .. } if entry.ends_turn() => {
                open.retain(|prompt| Some(*prompt) != *request);
            }
            LineKind::Notification { .. } if entry.ends_turn() => {
                ends.extend(open.drain(..).map(|prompt| (prompt, at)));
            }
            _ => {}
        }
    }
    ends
}

/// Replaces indexes of entries by indexes of lines.
fn link(lines: &mut [PlannedLine], entries: &[TranscriptEntry<'_>]) {
    let is_lost = |planned: &PlannedLine| matches!(planned.kind, LineKind::Response { lost: true, .. });
    let parsed = lines.iter().enumerate().filter(|(_, planned)| !is_lost(planned));
    let line_of: HashMap<usize, usize> = parsed.map(|(at, planned)| (planned.record, at)).collect();
    let mut lost = Vec::new();
    for (at, planned) in lines.iter_mut().enumerate() {
        if let LineKind::Request { answer: other, .. } | LineKind::Response { request: other, .. } =
            &mut planned.kind
        {
            *other = other.and_then(|entry| line_of.get(&entries.get(entry)?.record).copied());
        }
        if let LineKind::Response { request: Some(request), lost: true } = planned.kind {
            lost.push((request, at));
        }
    }
    for (request, at) in lost {
        if let Some(LineKind::Request { answer, .. }) =
            lines.get_mut(request).map(|planned| &mut planned.kind)
        {
            *answer = Some(at);
        }
    }
}

/// Requests of the other side without a response in the recording: entry, lane and record.
#[derive(Default)]
struct Unanswered {
    open: Vec<(usize, usize, usize)>,
    /// The requests before a gap, which may contain their response: entry and record, by lane.
    lost: BTreeMap<usize, Vec<(usize, usize)>>,
}

impl Unanswered {
    fn gap(&mut self) {
        for (place, lane, record) in self.open.drain(..) {
            self.lost.entry(lane).or_default().push((place, record));
        }
    }

    /// Takes the lost responses of one lane or of all.
    fn lost(&mut self, only: Option<usize>, at: Duration) -> Vec<PlannedLine> {
        let lost = match only {
            Some(lane) => self.lost.remove(&lane).map(|lost| (lane, lost)).into_iter().collect(),
            None => std::mem::take(&mut self.lost),
        };
        let each = lost.into_iter().flat_map(|(lane, lost)| lost.into_iter().map(move |lost| (lane, lost)));
        let mut lost: Vec<_> = each.collect();
        lost.sort_by_key(|(_, (place, _))| *place);
        let lines = lost.into_iter().map(|(lane, (place, record))| {
            let kind = LineKind::Response { request: Some(place), lost: true };
            PlannedLine::new(record, at, lane, true, kind)
        });
        lines.collect()
    }
}

struct Lanes {
    numbers: HashMap<String, usize>,
    names: Vec<Option<String>>,
}

impl Lanes {
    fn number(&mut self, entry: &TranscriptEntry<'_>) -> usize {
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

/// The malformed requests and the prompts without a response, while reading the recording.
#[derive(Default)]
struct Open {
    /// Malformed requests with an id, by entry.
    malformed: HashMap<(Side, String), usize>,
    /// The number of running prompts of each session.
    prompts: HashMap<String, usize>,
}

impl Open {
    fn kind(
        &mut self,
        place: usize,
        entries: &[TranscriptEntry<'_>],
        entry: &TranscriptEntry<'_>,
        ours: bool,
    ) -> LineKind {
        let session = entry.session.as_ref().map_or("", |id| id.as_str());
        let is_prompt = entry.method() == Some(PromptRequest::METHOD);
        if entry.ends_turn()
            && let Some(running) = self.prompts.get_mut(session)
        {
            // In version 2 one state ends the work on all prompts.
            *running = if entry.is_v2() && !is_prompt { 0 } else { running.saturating_sub(1) };
        }
        match &entry.parsed {
            ParsedLine::Request { id, method, answer, .. } => {
                if is_prompt {
                    *self.prompts.entry(session.into()).or_default() += 1;
                }
                LineKind::Request { id: id.token().into(), method: method.to_string(), answer: *answer }
            }
            ParsedLine::Notification { method, .. } => {
                let late = if method == CancelRequestNotification::METHOD {
                    let request = entry.withdraws.and_then(|request| entries.get(request));
                    let answered = |request: &TranscriptEntry<'_>| matches!(request.parsed, ParsedLine::Request { answer: Some(answer), .. } if answer < place);
                    request.is_none_or(answered)
                } else {
                    method == CancelNotification::METHOD
                        && self.prompts.get(session).is_none_or(|it| *it == 0)
                };
                LineKind::Notification { method: method.to_string(), late }
            }
            ParsedLine::Response { id, request: None, .. } if ours => {
                let request = self.malformed.remove(&(entry.from().other(), id_key(id.get())));
                // A response with the id null answers no request.
                if request.is_none() && id.get() == "null" {
                    return LineKind::NotAMessage;
                }
                LineKind::Response { request, lost: false }
            }
            ParsedLine::Response { request, .. } => LineKind::Response { request: *request, lost: false },
            ParsedLine::Noise(Malformed::Request(id, _)) => {
                self.malformed.insert((entry.from(), id_key(id.token())), place);
                LineKind::NotAMessage
            }
            ParsedLine::Noise(_) | ParsedLine::Blank => LineKind::NotAMessage,
        }
    }
}

/// Returns params or a result as JSON. A value that cannot be represented (`1e400`) becomes its text in an object,
/// which is equal to nothing else.
pub(super) fn body(raw: Option<&RawValue>) -> Value {
    let Some(raw) = raw else { return Value::Null };
    serde_json::from_str(raw.get()).unwrap_or_else(|_| json!({ "unreadable": raw.get() }))
}

/// Returns the params of a request or notification, or the outcome of a response.
pub(super) fn content(record: &Record) -> Value {
    let message = record.line().and_then(|line| line.message()).and_then(Result::ok);
    match message {
        Some(RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. }) => body(params),
        Some(RpcMessage::Response { outcome, .. }) => outcome_value(&outcome),
        _ => Value::Null,
    }
}

/// Returns an outcome as an object with the member `result` or `error`.
pub(super) fn outcome_value(outcome: &duologue_rpc::ResponseOutcome<'_>) -> Value {
    use duologue_rpc::ResponseOutcome;
    match outcome {
        ResponseOutcome::Result(raw) => json!({ "result": body(Some(raw)) }),
        // The message of an error is for users; its meaning is in the code.
        ResponseOutcome::Error(error) => json!({ "error": { "code": error.code } }),
        _ => json!({ "error": {} }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Header, RecordedLine};

    fn records(lines: &[(Side, &str)]) -> Vec<Record> {
        let record = |(at, (from, text)): (usize, &(Side, &str))| {
            Record::new(
                Duration::from_micros(at as u64),
                RecordEvent::Line(RecordedLine::new(*from, text.as_bytes())),
            )
        };
        lines.iter().enumerate().map(record).collect()
    }

    #[test]
    fn each_session_has_a_lane_and_late_cancels_are_marked() {
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
        let lines = ReplayPlan::new(&Transcript::new(Header::new("by hand"), records), Side::Agent);
        let lanes: Vec<_> = lines.lines.iter().map(|planned| planned.lane).collect();
        assert_eq!(lanes, [1, 1, 1, 1, 1, 1, 1, 0]);
        let late: Vec<_> = lines
            .lines
            .iter()
            .filter_map(|planned| match &planned.kind {
                LineKind::Notification { late, .. } => Some(*late),
                _ => None,
            })
            .collect();
        assert_eq!(late, [true, false, true]);
        assert_eq!(
            lines.get(5).map(|planned| &planned.kind),
            Some(&LineKind::Response { request: Some(3), lost: false })
        );
        assert_eq!(lines.lanes, [None, Some("s".to_owned())]);
    }

    /// Returns the cancels of a conversation in this version, and true for those that came too late.
    fn late_cancels(version: u8, lines: &[(Side, &str)]) -> Vec<bool> {
        let start = format!(
            r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":{version},"info":{{"name":"a","version":"1"}}}}}}"#
        );
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2}}"#;
        let all: Vec<_> = [(Side::Client, initialize), (Side::Agent, start.as_str())]
            .into_iter()
            .chain(lines.iter().copied())
            .collect();
        let plan = ReplayPlan::new(&Transcript::new(Header::new("by hand"), records(&all)), Side::Agent);
        let late = plan.lines.iter().filter_map(|planned| match &planned.kind {
            LineKind::Notification { late, .. } if !planned.ours => Some(*late),
            _ => None,
        });
        late.collect()
    }

    /// A cancel is late if no prompt is running. In version 2 one state ends the work on all prompts.
    #[test]
    fn a_cancel_is_late_without_a_running_prompt() {
        use Side::{Agent, Client};
        let one =
            (Client, r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#);
        let two =
            (Client, r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#);
        let cancel = (Client, r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#);
        let response = (Agent, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let rejected = (Agent, r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#);
        let idle = (
            Agent,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle"}}}"#,
        );
        assert_eq!(late_cancels(1, &[one, response, cancel]), [true]);
        assert_eq!(late_cancels(1, &[one, two, response, cancel]), [false]);
        assert_eq!(late_cancels(2, &[one, two, rejected, cancel]), [false]);
        assert_eq!(late_cancels(2, &[one, two, response, cancel, idle, cancel]), [false, true]);
        let unknown = (Client, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}"#);
        assert_eq!(late_cancels(1, &[one, unknown]), [true]);
    }
}
