//! Lines of the played side: the lines that have to come first, and the time to send each.

use std::ops::Bound;
use std::time::Duration;

use duologue_schema::{Error as WireError, ErrorCode};

use super::inbound::answer;
use super::name_map::NamePair;
use super::plan::{CONNECTION, LineKind, LineState};
use super::player::{LinesAhead, Player, PlayerAction};
use super::report::Difference;
use super::{LEAVE, Timing};
use crate::classify::id_key;
use crate::format::{RecordEvent, Side};
use crate::id_paths::IdKind;

/// The lines that the lanes allow now.
#[derive(Default)]
struct Outlook {
    /// The line to send.
    best: Option<usize>,
    /// A line of the other side that took too long.
    lost: Option<usize>,
    /// The time to look again.
    wake: Option<Duration>,
}

impl Player {
    /// Returns what to do now.
    pub(super) fn next(&mut self, now: Duration) -> PlayerAction {
        if let Some(line) = self.unrecorded_replies.pop_front() {
            return PlayerAction::Send(line);
        }
        loop {
            let Outlook { best, lost, wake } = self.outlook(now);
            if self.plays == Side::Client && self.ended {
                return self.finish_early();
            }
            if let Some(at) = best {
                if let Some(step) = self.send(at, now) {
                    return step;
                }
            } else if let Some(gate) = lost {
                self.give_up(gate);
            } else if let Some(step) = self.idle_action(now, wake) {
                return step;
            }
        }
    }

    /// Looks at the next line of each lane.
    fn outlook(&mut self, now: Duration) -> Outlook {
        let mut outlook = Outlook::default();
        for number in self.active.iter().copied().collect::<Vec<_>>() {
            #[cfg(test)]
            crate::steps::count();
            let Some(head) = self.head(number) else {
                self.active.remove(&number);
                continue;
            };
            if self.is_new_to_client(number) {
                self.active.remove(&number);
                self.not_begun.insert((head, number));
                continue;
            }
            // Nothing changes for an agent's lane that waits for itself until its gate has come.
            if let Some(gate) = self.look_at(head, now, &mut outlook)
                && self.plays == Side::Agent
                && self.lane_of(gate) == number
            {
                self.active.remove(&number);
            }
        }
        // The line that blocks one of these blocks all after it.
        let mut after = Bound::Unbounded;
        while let Some((head, number)) = self.not_begun.range((after, Bound::Unbounded)).next().copied() {
            after = Bound::Excluded((head, number));
            if self.head(number) != Some(head) || !self.is_new_to_client(number) {
                self.not_begun.remove(&(head, number));
            } else if self.look_at(head, now, &mut outlook).is_some() {
                break;
            }
        }
        outlook
    }

    /// Takes the next line of a lane into account. Returns the line that has to come before it.
    fn look_at(&mut self, head: usize, now: Duration, outlook: &mut Outlook) -> Option<usize> {
        let gate = self.blocked_by(head);
        let until = match gate {
            None => {
                let due = self.due(head, now);
                if due <= now {
                    outlook.best = Some(outlook.best.map_or(head, |other| other.min(head)));
                }
                due
            }
            // Only an agent has a limit: a live client is the editor under test, and may take its time.
            Some(_) if self.plays == Side::Agent => return gate,
            Some(gate) => {
                let limit = self.limit(gate);
                if limit <= now {
                    outlook.lost = Some(gate);
                }
                limit
            }
        };
        outlook.wake = Some(outlook.wake.map_or(until, |other| other.min(until)));
        gate
    }

    /// Returns true for a session, or the connection, in which nothing has happened yet for a played client.
    fn is_new_to_client(&self, number: usize) -> bool {
        let begun = self.lanes.get(number).is_some_and(|lane| lane.anchor.is_some());
        self.plays == Side::Client && !begun
    }

    /// Returns the action when no line can be sent now.
    fn idle_action(&mut self, now: Duration, wake: Option<Duration>) -> Option<PlayerAction> {
        if self.plays == Side::Agent {
            return Some(if self.ended || (self.closed && self.ahead.ours.is_empty()) {
                PlayerAction::Done
            } else {
                PlayerAction::Wait(wake)
            });
        }
        if wake.is_some() {
            return Some(PlayerAction::Wait(wake));
        }
        // All lines are sent. Lines that came before the client closed come first.
        let until = self.plan.client_closed.filter(|_| !self.closed).unwrap_or(usize::MAX);
        if let Some(gate) =
            (0..self.lanes.len()).find_map(|lane| self.first_gate(lane).filter(|at| *at < until))
        {
            let limit = self.limit(gate);
            if limit <= now {
                self.give_up(gate);
                return None;
            }
            return Some(PlayerAction::Wait(Some(limit)));
        }
        if self.closed {
            let limit = self.last_received.saturating_add(LEAVE.min(self.settings.patience));
            return Some(if limit > now { PlayerAction::Wait(Some(limit)) } else { PlayerAction::Done });
        }
        if let Some(settled) = self.settled(until).filter(|settled| *settled > now) {
            return Some(PlayerAction::Wait(Some(settled)));
        }
        if self.plan.agent_died {
            let limit = self.last_received.saturating_add(self.settings.patience);
            if limit > now {
                return Some(PlayerAction::Wait(Some(limit)));
            }
            let what = "the end of the agent, which ended by itself in the recording".into();
            self.differences.push(Difference::Missing { what });
        }
        self.closed = true;
        self.last_received = now;
        Some(PlayerAction::Close)
    }

    /// Reports the missing lines of an agent that has ended, the first one of each session.
    fn finish_early(&mut self) -> PlayerAction {
        for lane in 0..self.lanes.len() {
            let owed = self.first_gate(lane).filter(|at| match self.plan.get(*at).map(|line| &line.kind) {
                Some(LineKind::Response { request: Some(request), .. }) => {
                    self.plan.state(*request) == LineState::Done
                }
                _ => true,
            });
            if let Some(gate) = owed {
                self.give_up(gate);
            }
        }
        let unsaid = self.ahead.ours.len();
        if unsaid > 0 {
            let what = format!("the agent ended before {unsaid} more recorded lines of the client");
            self.differences.push(Difference::Other { what, diff: String::new() });
        }
        for lane in &mut self.lanes {
            lane.ahead = LinesAhead::default();
        }
        self.ahead = LinesAhead::default();
        if std::mem::replace(&mut self.closed, true) { PlayerAction::Done } else { PlayerAction::Close }
    }

    /// Returns the time until which a line is awaited. A time that is never reached is no limit.
    fn limit(&self, gate: usize) -> Duration {
        self.last_received_in(self.lane_of(gate)).saturating_add(self.settings.patience)
    }

    fn head(&self, lane: usize) -> Option<usize> {
        self.lanes.get(lane)?.ahead.ours.first().copied()
    }

    fn first_gate(&self, lane: usize) -> Option<usize> {
        self.lanes.get(lane)?.ahead.gates.first().copied()
    }

    /// Returns the line that has to come before this one can be sent.
    fn blocked_by(&self, at: usize) -> Option<usize> {
        let line = self.plan.get(at)?;
        let before = |lane: usize| self.first_gate(lane).filter(|gate| *gate < at);
        let anywhere = || self.ahead.gates.first().copied().filter(|gate| *gate < at);
        let awaits_close = self.plays == Side::Agent && !self.ended;
        if let Some(closed) = self.plan.client_closed.filter(|closed| awaits_close && *closed <= at) {
            return Some(closed);
        }
        if matches!(line.kind, LineKind::Eof | LineKind::Exit(_)) {
            // The end comes after all other lines.
            return anywhere().or_else(|| self.ahead.ours.first().copied().filter(|other| *other < at));
        }
        if self.plays == Side::Client {
            // A client may depend on any line before: its sessions begin after earlier responses, and a line of the connection
            // may concern each session.
            if line.lane == CONNECTION || self.is_new_to_client(line.lane) {
                return anywhere();
            }
            return before(line.lane).or_else(|| before(CONNECTION));
        }
        if let Some(gate) = before(line.lane) {
            return Some(gate);
        }
        if line.lane == CONNECTION && !self.answers_wait_behind(at) {
            // The session of a line in the connection's lane is unknown, so it keeps its place among all lines. An exception
            // is made if a response that the live side waits for is behind it.
            return anywhere();
        }
        None
    }

    /// Returns true if this line or a later one of ours in the connection's lane is a response that can be sent.
    fn answers_wait_behind(&self, at: usize) -> bool {
        let limit = self.first_gate(CONNECTION).unwrap_or(usize::MAX);
        self.awaited_replies.range(at..limit).next().is_some()
    }

    /// Returns the time at which an unblocked line is sent.
    fn due(&mut self, at: usize, now: Duration) -> Duration {
        let Some(line) = self.plan.get(at) else { return now };
        let (recorded, number) = (line.at, line.lane);
        let (before, live) = self.lanes.get(number).and_then(|lane| lane.anchor).unwrap_or(self.anchor);
        let pace = match self.settings.timing {
            Timing::Fast => Duration::ZERO,
            Timing::Recorded => recorded.saturating_sub(before),
            Timing::Scaled(factor) => {
                let seconds = recorded.saturating_sub(before).as_secs_f64() * factor;
                let endless = if seconds > 0.0 { Duration::MAX } else { Duration::ZERO };
                Duration::try_from_secs_f64(seconds).unwrap_or(endless)
            }
        };
        let due = if self.ended { now } else { live.saturating_add(pace) };
        if self.plays == Side::Agent {
            return due;
        }
        // Updates before this line may be split otherwise, and a text may be shorter, so they are awaited only for a
        // limited time. The recorded time is added if the line interrupts a request.
        let interrupts = self.lanes.get(number).is_some_and(|lane| lane.open_requests > 0)
            || self.open_turn(number).is_some();
        let took = if interrupts { recorded.saturating_sub(before) } else { Duration::ZERO };
        let settle = self.settings.settle.saturating_add(took);
        if self.received_enough(number, at) {
            return due;
        }
        let Some(lane) = self.lanes.get_mut(number) else { return due };
        let since = *lane.open_since.get_or_insert(now);
        due.max(since.max(lane.last_received).saturating_add(settle))
    }

    /// Returns true if a live agent has sent as much in a lane as was recorded before a line.
    fn received_enough(&mut self, lane: usize, before: usize) -> bool {
        let (names, plan, records) = (&self.names, &self.plan, self.transcript.records());
        let line = |at: usize| {
            let line = plan.get(at).and_then(|line| records.get(line.record)?.line());
            let live = line.and_then(|line| names.rewrite(lane, line.text()?, None));
            live.or_else(|| line.map(|line| line.bytes().to_vec())).unwrap_or_default()
        };
        self.lanes.get_mut(lane).is_none_or(|lane| lane.amounts.covers(before, line))
    }

    /// Returns the time at which notifications at the end of the lanes are not awaited any more.
    fn settled(&mut self, until: usize) -> Option<Duration> {
        let lanes: Vec<usize> = (0..self.lanes.len()).collect();
        let behind = lanes.into_iter().filter(|lane| !self.received_enough(*lane, until));
        let last = behind.collect::<Vec<_>>().into_iter().map(|lane| self.last_received_in(lane)).max();
        last.map(|last| last.saturating_add(self.settings.settle))
    }

    fn send(&mut self, at: usize, now: Duration) -> Option<PlayerAction> {
        let line = self.plan.get(at)?;
        let number = line.lane;
        let mut id = None;
        match &line.kind {
            LineKind::Response { request, lost } => {
                let (request, lost) = (*request, *lost);
                let Some(request) = request else {
                    // Its request is unknown, so no open request is answered.
                    let what =
                        format!("{} has no request in the recording and is left out", self.describe(at));
                    self.differences.push(Difference::Gap { what });
                    self.set_state(at, LineState::Skipped);
                    return None;
                };
                id = self.take_reply_id(request);
                let Some(live) = &id else {
                    // The request has not come.
                    self.set_state(at, LineState::Skipped);
                    return None;
                };
                if lost {
                    let what = format!(
                        "the recording ends or has a gap before the answer to {}",
                        self.describe(request)
                    );
                    let error = WireError::new(ErrorCode::INTERNAL_ERROR, what.clone());
                    let error = serde_json::to_string(&error).unwrap_or_default();
                    let line = answer(live, &format!(r#""error":{error}"#));
                    self.differences.push(Difference::Gap { what });
                    self.mark_done(at, now);
                    return Some(PlayerAction::Send(line));
                }
            }
            LineKind::Request { id: recorded, .. } => {
                let mut live = recorded.clone();
                while self.open_requests.contains_key(&id_key(&live)) {
                    self.fresh_ids += 1;
                    live = format!("\"replay-{}\"", self.fresh_ids);
                }
                self.names.learn_request(true, recorded, &live);
                self.open_requests.insert(id_key(&live), at);
                self.begin_turn(at);
                self.lanes.get_mut(number).into_iter().for_each(|lane| lane.open_requests += 1);
                id = Some(live);
            }
            LineKind::Eof | LineKind::Exit(_) => {
                if let (LineKind::Exit(exit), true) = (&line.kind, self.plan.agent_died) {
                    self.exit = Some(*exit);
                }
                self.set_state(at, LineState::Done);
                self.closed = true;
                return Some(PlayerAction::Close);
            }
            _ => {}
        }
        let record = self.plan.get(at).and_then(|line| self.transcript.records().get(line.record))?;
        let step = match &record.event {
            RecordEvent::Line(line) => {
                let live = line.text().and_then(|text| self.names.rewrite(number, text, id.as_deref()));
                if let Some(text) = line.text() {
                    self.names.keep(number, text);
                }
                let mut bytes = live.unwrap_or_else(|| line.bytes().to_vec());
                bytes.extend_from_slice(line.end.as_str().as_bytes());
                PlayerAction::Send(bytes)
            }
            RecordEvent::Stderr(text) => PlayerAction::Stderr(text.clone()),
            _ => {
                self.set_state(at, LineState::Skipped);
                return None;
            }
        };
        if self.plays == Side::Agent {
            self.learn_session(at, number);
        }
        self.mark_done(at, now);
        Some(step)
    }

    /// Registers the recorded name of a session that we create.
    fn learn_session(&mut self, at: usize, number: usize) {
        let answer = matches!(self.plan.get(at).map(|line| &line.kind), Some(LineKind::Response { .. }));
        let Some(name) = self.plan.lanes.get(number).cloned().flatten().filter(|_| answer) else {
            return;
        };
        if self.names.id(number, IdKind::Session, &name).is_none() {
            let pair = NamePair::Id { kind: IdKind::Session, recorded: name.clone(), live: name };
            self.names.learn(number, pair);
        }
    }
}
