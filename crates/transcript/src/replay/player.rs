//! The state of a replay: live lines go in, our lines come out. No clock and no input or output of
//! its own, so that every order can be tested.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::Settings;
use super::amounts::Amounts;
use super::compare::{Comparison, Freedom};
use super::cues::{CONNECTION, Cues, Kind, State, content};
use super::names::{Names, Pair};
use super::report::Difference;
use crate::format::{Exit, Side};
use crate::reading::id_key;
use crate::redact::placeholders::placeholders;
use crate::transcript::Transcript;

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Write these bytes; the end of the line is among them.
    Say(Vec<u8>),
    /// Write this line to stderr.
    Stderr(String),
    /// Close our output.
    Close,
    /// Nothing before the other side says something, or before this time.
    Wait(Option<Duration>),
    /// The replay is over.
    Done,
}

/// A lane's own progress.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// What we say, in order; the first has not been said.
    pub(super) ours: VecDeque<usize>,
    /// What we wait for, in order; the first has not come.
    pub(super) gates: VecDeque<usize>,
    /// When something last happened here: in the recording, and live.
    pub(super) anchor: Option<(Duration, Duration)>,
    /// When the other side last said something here, or could have begun to.
    pub(super) heard: Duration,
    /// When all that had to come before our next line had come.
    pub(super) open_since: Option<Duration>,
    pub(super) amounts: Amounts,
}

/// Plays one side of a recording.
pub(super) struct Player {
    pub(super) transcript: Transcript,
    pub(super) settings: Settings,
    pub(super) plays: Side,
    pub(super) cues: Cues,
    pub(super) lanes: Vec<Lane>,
    pub(super) names: Names,
    /// Requests of the other side that have not come, by method.
    pub(super) expected: HashMap<String, Vec<usize>>,
    /// Requests of the other side that have come, by live id; none was not recorded.
    pub(super) taken: HashMap<String, usize>,
    /// The live ids of those that came, as they are spelled, until they are answered.
    pub(super) askers: HashMap<usize, String>,
    /// Answers of ours in the lane of the connection that somebody waits for.
    pub(super) wanted: BTreeSet<usize>,
    /// Our requests that have no answer yet, by live id.
    pub(super) asked: HashMap<String, usize>,
    /// Answers that were not recorded.
    pub(super) errands: VecDeque<Vec<u8>>,
    pub(super) differences: Vec<Difference>,
    /// When something last happened anywhere: in the recording, and live.
    pub(super) anchor: (Duration, Duration),
    pub(super) heard: Duration,
    pub(super) ended: bool,
    pub(super) closed: bool,
    pub(super) exit: Option<Exit>,
    pub(super) fresh_ids: u64,
}

impl Player {
    pub(super) fn new(transcript: Transcript, settings: Settings, plays: Side) -> Self {
        let cues = Cues::new(&transcript, plays);
        let mut lanes: Vec<Lane> = cues.lanes.iter().map(|_| Lane::default()).collect();
        let mut expected: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, cue) in cues.cues.iter().enumerate() {
            let Some(lane) = lanes.get_mut(cue.lane) else { continue };
            if cue.ours {
                lane.ours.push_back(at);
                continue;
            }
            let gates = match &cue.kind {
                Kind::Request { method, .. } => {
                    expected.entry(method.clone()).or_default().push(at);
                    true
                }
                Kind::Response { request, .. } => request.is_some(),
                // How an agent cuts its text differs from run to run, see `Amounts`.
                Kind::Notification { late, .. } => plays == Side::Agent && !late,
                Kind::Aside => plays == Side::Agent,
                Kind::Eof | Kind::Exit(_) => false,
            };
            if gates {
                lane.gates.push_back(at);
            } else if let (Side::Client, Kind::Notification { .. }) = (plays, &cue.kind) {
                lane.amounts.expect(at);
            }
        }
        let mut names = Names::new(transcript.header().redacted);
        if let Some((recorded, live)) = settings
            .cwd
            .as_ref()
            .and_then(|live| Some((transcript.cwd()?, live.to_string_lossy().into_owned())))
        {
            names.learn(CONNECTION, Pair::Folder { recorded, live });
        }
        Player {
            transcript,
            settings,
            plays,
            cues,
            lanes,
            names,
            expected,
            taken: HashMap::new(),
            askers: HashMap::new(),
            wanted: BTreeSet::new(),
            asked: HashMap::new(),
            errands: VecDeque::new(),
            differences: Vec::new(),
            anchor: (Duration::ZERO, Duration::ZERO),
            heard: Duration::ZERO,
            ended: false,
            closed: false,
            exit: None,
            fresh_ids: 0,
        }
    }

    pub(super) fn differences(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.differences)
    }

    /// How the agent of the recording ended by itself, if the replay came that far.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// What the other side had said in the recording, and never said.
    pub(super) fn unused(&self) -> Vec<String> {
        let closed = self.cues.client_closed.unwrap_or(usize::MAX);
        (0..self.cues.cues.len())
            .filter(|at| self.cues.is_waiting(*at) && *at < closed)
            .filter(|at| self.cues.get(*at).is_some_and(|cue| !cue.ours))
            .filter(|at| {
                let Some(cue) = self.cues.get(*at) else { return false };
                match &cue.kind {
                    Kind::Request { .. } => true,
                    Kind::Response { request, .. } => {
                        request.is_some_and(|it| self.cues.state(it) == State::Done)
                    }
                    Kind::Notification { late, .. } => self.plays == Side::Agent && !late,
                    _ => false,
                }
            })
            .map(|at| self.describe(at))
            .collect()
    }

    /// A request of the other side is this recorded one, and its answer is to have this id.
    pub(super) fn take(&mut self, at: usize, id: &str) {
        self.taken.insert(id_key(id), at);
        self.askers.insert(at, id.into());
        if let (CONNECTION, Some(answer)) = (self.lane_of(at), self.answer_of(at)) {
            self.wanted.insert(answer);
        }
    }

    /// The id that the answer to this recorded request is to have, if it has not been answered.
    pub(super) fn asker(&mut self, at: usize) -> Option<String> {
        let id = self.askers.remove(&at)?;
        // The id may have been used again.
        let key = id_key(&id);
        if self.taken.get(&key) == Some(&at) {
            self.taken.remove(&key);
        }
        Some(id)
    }

    /// Something that was waited for is here.
    pub(super) fn came(&mut self, at: usize, now: Duration) {
        let lane = self.lane_of(at);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.heard = now;
        }
        self.happened(at, now);
    }

    pub(super) fn happened(&mut self, at: usize, now: Duration) {
        self.cues.set(at, State::Done);
        let Some(cue) = self.cues.get(at) else { return };
        let (recorded, number) = (cue.at, cue.lane);
        self.anchor = (recorded.max(self.anchor.0), now);
        if let Some(lane) = self.lanes.get_mut(number) {
            let before = lane.anchor.map_or(Duration::ZERO, |(before, _)| before);
            lane.anchor = Some((recorded.max(before), now));
            lane.open_since = None;
            if self.plays == Side::Client {
                lane.heard = now;
            }
        }
    }

    /// Something will not come; what depends on it is left out.
    pub(super) fn give_up(&mut self, at: usize) {
        if !self.cues.is_waiting(at) {
            return;
        }
        let what = self.describe(at);
        self.differences.push(Difference::Missing { what });
        self.cues.set(at, State::Skipped);
        if let Some(answer) = self.answer_of(at) {
            self.cues.set(answer, State::Skipped);
        }
    }

    pub(super) fn compare(&self, at: usize, lane: usize, live: &Value) -> Comparison<'_> {
        let freedom = if self.plays == Side::Agent { Freedom::Client } else { Freedom::Agent };
        let holes = placeholders(self.transcript.header().redacted);
        Comparison::new(&self.names, lane, freedom, holes).run(
            &self.settings.ignored,
            &self.content(at),
            live,
        )
    }

    pub(super) fn content(&self, at: usize) -> Value {
        let record = self.cues.get(at).and_then(|cue| self.transcript.records().get(cue.record));
        record.map(content).unwrap_or_default()
    }

    pub(super) fn heard_in(&self, lane: usize) -> Duration {
        self.lanes.get(lane).map_or(self.heard, |lane| lane.heard.max(self.anchor.1))
    }

    pub(super) fn lane_of(&self, at: usize) -> usize {
        self.cues.get(at).map_or(CONNECTION, |cue| cue.lane)
    }

    pub(super) fn session_of(&self, lane: usize) -> Option<&str> {
        self.cues.lanes.get(lane)?.as_deref()
    }

    pub(super) fn live_lane(&self, live: &str) -> usize {
        let recorded = self.names.session(live);
        self.cues.lanes.iter().position(|name| name.as_deref() == Some(recorded)).unwrap_or(CONNECTION)
    }

    pub(super) fn answer_of(&self, at: usize) -> Option<usize> {
        match self.cues.get(at)?.kind {
            Kind::Request { answer, .. } => answer,
            _ => None,
        }
    }

    pub(super) fn is_their_request(&self, at: usize) -> bool {
        self.cues.get(at).is_some_and(|cue| {
            !cue.ours && cue.state == State::Waiting && matches!(cue.kind, Kind::Request { .. })
        })
    }

    /// A recorded line in a few words.
    pub(super) fn describe(&self, at: usize) -> String {
        let Some(cue) = self.cues.get(at) else { return String::new() };
        let session = self.session_of(cue.lane).map(|name| format!(" in {name}")).unwrap_or_default();
        // The header is the first line of the file.
        let line = cue.record + 2;
        match &cue.kind {
            Kind::Request { method, .. } => format!("the {method}{session} of line {line}"),
            Kind::Notification { method, .. } => format!("the {method}{session} of line {line}"),
            Kind::Response { request, .. } => match request {
                Some(request) => format!("the answer of line {line} to {}", self.describe(*request)),
                None => format!("the answer of line {line}"),
            },
            Kind::Aside => format!("line {line}, which is no message"),
            Kind::Eof | Kind::Exit(_) => "the end".into(),
        }
    }
}
