//! The state machine of a replay: it receives live lines and returns actions. It has no clock, input or output, so
//! tests can produce every order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::ReplaySettings;
use super::compare::Comparison;
use super::name_map::{NameMap, NamePair};
use super::plan::{CONNECTION, LineKind, LineState, ReplayPlan, content};
use super::report::{Difference, DifferenceLog};
use super::update_amounts::UpdateAmounts;
use crate::classify::id_key;
use crate::format::{ProcessExit, Side};
use crate::redact::placeholders::placeholders;
use crate::transcript::Transcript;

/// An action of the played side.
#[derive(Debug, PartialEq)]
pub(super) enum PlayerAction {
    /// Send these bytes, which include the end of the line.
    Send(Vec<u8>),
    /// Write this line to stderr.
    Stderr(String),
    /// Close our output.
    Close,
    /// Wait for a line of the other side, or until this time.
    Wait(Option<Duration>),
    /// The replay is over.
    Done,
}

/// Recorded lines that have not happened, in order.
#[derive(Debug, Default)]
pub(super) struct LinesAhead {
    /// The lines that we send.
    pub(super) ours: BTreeSet<usize>,
    /// The lines of the other side that have to come before ours.
    pub(super) gates: BTreeSet<usize>,
}

impl LinesAhead {
    fn remove(&mut self, at: usize) {
        self.ours.remove(&at);
        self.gates.remove(&at);
    }
}

/// The progress of a lane.
#[derive(Debug, Default)]
pub(super) struct LaneProgress {
    pub(super) ahead: LinesAhead,
    /// Requests of the other side that have not come.
    pub(super) requests: BTreeSet<usize>,
    /// Those with a response, by its line.
    pub(super) by_answer: BTreeMap<usize, usize>,
    /// The recorded and the live time of the last event.
    pub(super) anchor: Option<(Duration, Duration)>,
    /// The time of the last live line, or of the line that it may answer.
    pub(super) last_received: Duration,
    /// The time at which nothing blocked our next line any more.
    pub(super) open_since: Option<Duration>,
    pub(super) amounts: UpdateAmounts,
    /// Requests of the other side that have come and are not answered.
    pub(super) unanswered: BTreeSet<usize>,
    /// The number of our requests without a response.
    pub(super) open_requests: usize,
    /// The last prompt of version 2 that was sent or received, and the line with which the work on it ends.
    pub(super) turn: Option<(usize, usize)>,
    /// The lines that may still be skipped, except for requests of the other side.
    pub(super) others: BTreeSet<usize>,
}

/// The number of recorded lines that a live line is compared with at most. Without a limit, a replay in which each
/// line differs would take quadratic time.
pub(super) const COMPARED: usize = 256;

/// Recorded lines of the other side that have not come, in order.
#[derive(Debug, Default)]
pub(super) struct WaitingLines {
    all: BTreeSet<usize>,
    by_lane: HashMap<usize, BTreeSet<usize>>,
}

impl WaitingLines {
    fn push(&mut self, at: usize, lane: usize) {
        self.all.insert(at);
        self.by_lane.entry(lane).or_default().insert(at);
    }

    /// Returns the first waiting line at `from` or later, of one lane or of all. Removes lines that do not wait any
    /// more.
    pub(super) fn next(&mut self, from: usize, lane: Option<usize>, plan: &ReplayPlan) -> Option<usize> {
        let lines = match lane {
            Some(lane) => self.by_lane.get_mut(&lane)?,
            None => &mut self.all,
        };
        loop {
            #[cfg(test)]
            crate::steps::count();
            let at = lines.range(from..).next().copied()?;
            if plan.is_waiting(at) {
                return Some(at);
            }
            lines.remove(&at);
        }
    }
}

/// Plays one side of a recording.
pub(super) struct Player {
    pub(super) transcript: Transcript,
    pub(super) settings: ReplaySettings,
    pub(super) plays: Side,
    pub(super) plan: ReplayPlan,
    pub(super) lanes: Vec<LaneProgress>,
    pub(super) names: NameMap,
    /// Requests of the other side that have not come, by method.
    pub(super) expected: HashMap<String, WaitingLines>,
    /// Notifications of the other side that have not come, by method.
    pub(super) expected_notifications: HashMap<String, WaitingLines>,
    /// Lines of the other side in the connection's lane that are not messages and have not come.
    pub(super) noise: WaitingLines,
    /// The last recorded cancel that has come, by lane and method.
    pub(super) cancelled: HashMap<(usize, String), usize>,
    /// The lines in all lanes.
    pub(super) ahead: LinesAhead,
    /// The lanes that may have changed since they were last found blocked.
    pub(super) active: BTreeSet<usize>,
    /// The first line and the number of each lane in which a played client has sent nothing yet.
    pub(super) not_begun: BTreeSet<(usize, usize)>,
    /// Requests of the other side that have come, by live id.
    pub(super) received_requests: HashMap<String, usize>,
    /// The live ids of received requests as they are spelled, until the response is sent.
    pub(super) reply_ids: HashMap<usize, String>,
    /// Our responses in the connection's lane that the other side waits for.
    pub(super) awaited_replies: BTreeSet<usize>,
    /// Our requests without a response, by live id.
    pub(super) open_requests: HashMap<String, usize>,
    /// Responses that are not in the recording.
    pub(super) unrecorded_replies: VecDeque<Vec<u8>>,
    pub(super) differences: DifferenceLog,
    /// The recorded and the live time of the last event in any lane.
    pub(super) anchor: (Duration, Duration),
    pub(super) last_received: Duration,
    pub(super) ended: bool,
    pub(super) closed: bool,
    pub(super) exit: Option<ProcessExit>,
    pub(super) fresh_ids: u64,
}

impl Player {
    pub(super) fn new(transcript: Transcript, settings: ReplaySettings, plays: Side) -> Self {
        let plan = ReplayPlan::new(&transcript, plays);
        let mut lanes: Vec<LaneProgress> = plan.lanes.iter().map(|_| LaneProgress::default()).collect();
        let mut expected: HashMap<String, WaitingLines> = HashMap::new();
        let mut expected_notifications: HashMap<String, WaitingLines> = HashMap::new();
        let mut noise = WaitingLines::default();
        let mut ahead = LinesAhead::default();
        let turn_ends: HashSet<usize> = plan.turn_ends.values().copied().collect();
        for (at, planned) in plan.lines.iter().enumerate() {
            let Some(lane) = lanes.get_mut(planned.lane) else { continue };
            if planned.ours || !matches!(planned.kind, LineKind::Request { .. }) {
                lane.others.insert(at);
            }
            if planned.ours {
                lane.ahead.ours.insert(at);
                ahead.ours.insert(at);
                continue;
            }
            let gates = match &planned.kind {
                LineKind::Request { .. } => true,
                LineKind::Response { request, .. } => request.is_some(),
                // Agents split their text differently in each run, see `UpdateAmounts`.
                // A client waits for the end of a turn.
                LineKind::Notification { late, .. } => {
                    plays == Side::Agent && !late || turn_ends.contains(&at)
                }
                LineKind::NotAMessage => plays == Side::Agent,
                LineKind::Eof | LineKind::Exit(_) => false,
            };
            match &planned.kind {
                LineKind::Request { method, answer, .. } => {
                    expected.entry(method.clone()).or_default().push(at, planned.lane);
                    lane.requests.insert(at);
                    lane.by_answer.extend(answer.map(|answer| (answer, at)));
                }
                LineKind::NotAMessage => noise.push(at, planned.lane),
                LineKind::Notification { method, .. } => {
                    expected_notifications.entry(method.clone()).or_default().push(at, planned.lane);
                }
                _ => {}
            }
            if gates {
                lane.ahead.gates.insert(at);
                ahead.gates.insert(at);
            } else if let (Side::Client, LineKind::Notification { .. }) = (plays, &planned.kind) {
                lane.amounts.expect(at);
            }
        }
        let mut names = NameMap::new(transcript.header().redacted);
        if let Some(live) = &settings.cwd
            && let Some(recorded) = transcript.cwd()
        {
            let live = live.to_string_lossy().into_owned();
            names.learn(CONNECTION, NamePair::Folder { recorded, live });
        }
        let active = (0..lanes.len()).collect();
        Player {
            transcript,
            settings,
            plays,
            plan,
            lanes,
            names,
            expected,
            expected_notifications,
            noise,
            cancelled: HashMap::new(),
            ahead,
            active,
            not_begun: BTreeSet::new(),
            received_requests: HashMap::new(),
            reply_ids: HashMap::new(),
            awaited_replies: BTreeSet::new(),
            open_requests: HashMap::new(),
            unrecorded_replies: VecDeque::new(),
            differences: DifferenceLog::default(),
            anchor: (Duration::ZERO, Duration::ZERO),
            last_received: Duration::ZERO,
            ended: false,
            closed: false,
            exit: None,
            fresh_ids: 0,
        }
    }

    pub(super) fn set_state(&mut self, at: usize, state: LineState) {
        self.plan.set(at, state);
        let number = self.lane_of(at);
        self.ahead.remove(at);
        let answer = self.answer_of(at);
        if let Some(lane) = self.lanes.get_mut(number) {
            lane.ahead.remove(at);
            lane.requests.remove(&at);
            lane.others.remove(&at);
            answer.and_then(|answer| lane.by_answer.remove(&answer));
        }
        // A request that has come or been sent gets its response in any case. One that is skipped takes it along.
        if let Some(answer) = answer {
            let number = self.lane_of(answer);
            self.lanes.get_mut(number).into_iter().for_each(|lane| _ = lane.others.remove(&answer));
        }
        self.awaited_replies.remove(&at);
        self.active.insert(number);
    }

    pub(super) fn differences(&mut self) -> Vec<Difference> {
        self.differences.take()
    }

    /// Returns the end of the recorded agent's process, if the replay reached it.
    pub(super) fn exit(&self) -> Option<ProcessExit> {
        self.exit
    }

    /// Returns the recorded lines of the other side that have not come.
    pub(super) fn unused(&self) -> Vec<String> {
        let closed = self.plan.client_closed.unwrap_or(usize::MAX);
        (0..self.plan.lines.len())
            .filter(|at| self.plan.is_waiting(*at) && *at < closed)
            .filter(|at| self.plan.get(*at).is_some_and(|planned| !planned.ours))
            .filter(|at| {
                let Some(planned) = self.plan.get(*at) else { return false };
                match &planned.kind {
                    LineKind::Request { .. } => true,
                    LineKind::Response { request, .. } => {
                        request.is_some_and(|it| self.plan.state(it) == LineState::Done)
                    }
                    LineKind::Notification { late, .. } => self.plays == Side::Agent && !late,
                    _ => false,
                }
            })
            .map(|at| self.describe(at))
            .collect()
    }

    /// Matches a live request with a recorded one. The response gets the id of the live one.
    pub(super) fn accept_request(&mut self, at: usize, id: &str) {
        self.received_requests.insert(id_key(id), at);
        self.reply_ids.insert(at, id.into());
        let lane = self.lane_of(at);
        self.lanes.get_mut(lane).into_iter().for_each(|lane| _ = lane.unanswered.insert(at));
        self.begin_turn(at);
        if let (CONNECTION, Some(answer)) = (lane, self.answer_of(at)) {
            self.await_reply(answer);
        }
    }

    /// Notes that a prompt was sent or received.
    pub(super) fn begin_turn(&mut self, at: usize) {
        let Some(end) = self.plan.turn_ends.get(&at).copied() else { return };
        let lane = self.lane_of(at);
        self.lanes.get_mut(lane).into_iter().for_each(|lane| lane.turn = Some((at, end)));
    }

    /// Returns the prompt of version 2 on which the agent works, and the line with which that work ends.
    pub(super) fn open_turn(&self, lane: usize) -> Option<(usize, usize)> {
        self.lanes.get(lane)?.turn.filter(|(_, end)| self.plan.is_waiting(*end))
    }

    /// Notes that the other side waits for a response of ours.
    pub(super) fn await_reply(&mut self, answer: usize) {
        self.awaited_replies.insert(answer);
    }

    /// Returns the live id of a received request, unless it has been answered.
    pub(super) fn take_reply_id(&mut self, at: usize) -> Option<String> {
        let id = self.reply_ids.remove(&at)?;
        let lane = self.lane_of(at);
        self.lanes.get_mut(lane).into_iter().for_each(|lane| _ = lane.unanswered.remove(&at));
        // The id may have been used again.
        let key = id_key(&id);
        if self.received_requests.get(&key) == Some(&at) {
            self.received_requests.remove(&key);
        }
        Some(id)
    }

    /// Marks a line as sent or received.
    pub(super) fn mark_done(&mut self, at: usize, now: Duration) {
        self.set_state(at, LineState::Done);
        let Some(planned) = self.plan.get(at) else { return };
        let (recorded, number) = (planned.at, planned.lane);
        self.anchor = (recorded.max(self.anchor.0), now);
        if let Some(lane) = self.lanes.get_mut(number) {
            let before = lane.anchor.map_or(Duration::ZERO, |(before, _)| before);
            lane.anchor = Some((recorded.max(before), now));
            lane.open_since = None;
        }
    }

    /// Reports a line as missing, and skips the lines that depend on it.
    pub(super) fn give_up(&mut self, at: usize) {
        let what = self.describe(at);
        self.differences.push(Difference::Missing { what });
        self.set_state(at, LineState::Skipped);
        if let Some(answer) = self.answer_of(at) {
            self.set_state(answer, LineState::Skipped);
        }
    }

    pub(super) fn compare(&self, at: usize, lane: usize, live: &Value) -> Comparison<'_> {
        let holes = placeholders(self.transcript.header().redacted);
        Comparison::new(&self.names, lane, self.plays.other(), holes).run(
            &self.settings.ignored,
            &self.content(at),
            live,
        )
    }

    pub(super) fn content(&self, at: usize) -> Value {
        let record = self.plan.get(at).and_then(|planned| self.transcript.records().get(planned.record));
        record.map(content).unwrap_or_default()
    }

    pub(super) fn last_received_in(&self, lane: usize) -> Duration {
        self.lanes.get(lane).map_or(self.last_received, |lane| lane.last_received.max(self.anchor.1))
    }

    pub(super) fn lane_of(&self, at: usize) -> usize {
        self.plan.get(at).map_or(CONNECTION, |planned| planned.lane)
    }

    pub(super) fn session_of(&self, lane: usize) -> Option<&str> {
        self.plan.lanes.get(lane)?.as_deref()
    }

    pub(super) fn live_lane(&self, live: &str) -> usize {
        self.plan.lane_numbers.get(self.names.session(live)).copied().unwrap_or(CONNECTION)
    }

    pub(super) fn answer_of(&self, at: usize) -> Option<usize> {
        match self.plan.get(at)?.kind {
            LineKind::Request { answer, .. } => answer,
            _ => None,
        }
    }

    /// Describes a recorded line.
    pub(super) fn describe(&self, at: usize) -> String {
        let Some(planned) = self.plan.get(at) else { return String::new() };
        let session = self.session_of(planned.lane).map(|name| format!(" in {name}")).unwrap_or_default();
        // The header is the first line of the file.
        let line = planned.record + 2;
        match &planned.kind {
            LineKind::Request { method, .. } | LineKind::Notification { method, .. } => {
                format!("the {method}{session} of line {line}")
            }
            LineKind::Response { request, .. } => match request {
                Some(request) => format!("the answer of line {line} to {}", self.describe(*request)),
                None => format!("the answer of line {line}"),
            },
            LineKind::NotAMessage => format!("line {line}, which is not a message"),
            LineKind::Eof | LineKind::Exit(_) => "the end".into(),
        }
    }
}
