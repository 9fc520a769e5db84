//! Lines from the live side: matches each with a recorded line, or reports the difference.

use std::time::Duration;

use duologue_rpc::{Limits, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelNotification, CancelRequestNotification, Error as WireError, ErrorCode, Notification, Request,
    RequestId, RequestPermissionRequest,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::plan::{CONNECTION, LineKind, LineState, body, outcome_value};
use super::player::{COMPARED, Player};
use super::report::Difference;
use crate::classify::{id_key, is_idle, request_of};
use crate::format::Side;
use crate::id_paths::SESSION;

impl Player {
    /// Receives a line of the live side.
    pub(super) fn receive(&mut self, line: &[u8], now: Duration) {
        self.last_received = now;
        match RpcMessage::read(line, &Limits::default()) {
            None => {}
            Some(Ok(RpcMessage::Request { id, method, params })) => self.request(&id, &method, params, now),
            Some(Ok(RpcMessage::Notification { method, params })) => {
                self.notification(&method, params, line, now);
            }
            Some(Ok(RpcMessage::Response { id, outcome })) => self.response(id.get(), &outcome, now),
            Some(Ok(_)) => {}
            Some(Err(malformed)) => self.noise(line, &malformed, now),
        }
    }

    /// Notes that the live side has closed its output.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.active = (0..self.lanes.len()).collect();
    }

    fn request(&mut self, id: &RequestId, method: &str, params: Option<&RawValue>, now: Duration) {
        let live = body(params);
        let session = live.get(SESSION).and_then(Value::as_str);
        let lane = session.map(|live| self.plan.lane_numbers.get(self.names.session(live)).copied());
        let nearest = match (self.plays, lane) {
            (Side::Client, Some(None)) => None,
            (Side::Client, lane) => self.nearest(method, Some(lane.flatten().unwrap_or(CONNECTION)), &live),
            (Side::Agent, Some(lane)) => {
                // A request of another session differs at least in its session.
                let equal =
                    self.nearest(method, lane, &live).filter(|(_, (differences, _))| *differences == 0);
                equal.or_else(|| self.nearest(method, None, &live))
            }
            (Side::Agent, None) => self.nearest(method, None, &live),
        };
        // A client's request with other params is another request. An agent's request gets the recorded answer, and the
        // difference appears in the final comparison.
        let fits =
            |(_, (differences, _)): &(usize, (usize, usize))| *differences == 0 || self.plays == Side::Client;
        let found = nearest.filter(fits).map(|(at, _)| (at, self.compare(at, self.lane_of(at), &live).pairs));
        let Some((at, pairs)) = found else {
            return self.unexpected(id, method, &live, nearest.map(|(at, _)| at));
        };
        let lane = self.lane_of(at);
        pairs.into_iter().for_each(|pair| self.names.learn(lane, pair));
        if let Some(LineKind::Request { id: recorded, .. }) = self.plan.get(at).map(|line| &line.kind) {
            self.names.learn_request(false, recorded, id.token());
        }
        self.accept_request(at, id.token());
        self.mark_done(at, now);
        if self.plays == Side::Agent {
            self.skip_to(at);
        }
    }

    /// Returns the waiting request that differs least, with the number of its differences and of the names
    /// that would have to change. Of several, the first.
    fn nearest(
        &mut self,
        method: &str,
        lane: Option<usize>,
        live: &Value,
    ) -> Option<(usize, (usize, usize))> {
        let mut nearest: Option<(usize, (usize, usize))> = None;
        let mut from = 0;
        for _ in 0..COMPARED {
            let Some(at) = self.expected.get_mut(method)?.next(from, lane, &self.plan) else { break };
            let comparison = self.compare(at, self.lane_of(at), live);
            let distance = (comparison.differences(), comparison.renamed());
            if nearest.is_none_or(|(_, least)| distance < least) {
                nearest = Some((at, distance));
            }
            if distance == (0, 0) {
                break;
            }
            from = at + 1;
        }
        nearest
    }

    /// Answers a request that was not recorded.
    fn unexpected(&mut self, id: &RequestId, method: &str, live: &Value, nearest: Option<usize>) {
        let (mut diff, mut place) = (String::new(), String::new());
        if let Some(at) = nearest {
            let comparison = self.compare(at, self.lane_of(at), live);
            diff = comparison.diff(live, &self.differences.diff_bytes);
            place = comparison.first().unwrap_or_default();
        }
        let was_recorded = self.expected.contains_key(method);
        let message = match (nearest, was_recorded) {
            (Some(at), _) => format!(
                "not in the recording: {method}; the nearest, {}, differs at `{place}`",
                self.describe(at)
            ),
            (None, true) => format!("not in the recording: {method} once more"),
            (None, false) => format!("not in the recording: {method}"),
        };
        let outcome = if self.plays == Side::Client && method == RequestPermissionRequest::METHOD {
            format!(r#""result":{}"#, json!({"outcome": {"outcome": "cancelled"}}))
        } else {
            let code = if was_recorded { ErrorCode::INVALID_PARAMS } else { ErrorCode::METHOD_NOT_FOUND };
            let data = if diff.is_empty() { Value::Null } else { json!({"difference": diff}) };
            let mut error = WireError::new(code, message.clone());
            error.data = (!data.is_null()).then(|| data.into());
            format!(r#""error":{}"#, serde_json::to_string(&error).unwrap_or_default())
        };
        self.answer(id, &outcome);
        self.differences.push(Difference::Unexpected { what: message, diff });
    }

    fn report_unexpected(&mut self, what: String) {
        self.differences.push(Difference::Unexpected { what, diff: String::new() });
    }

    /// Returns true if responses that are not in the recording wait for the output.
    pub(super) fn owes_replies(&self) -> bool {
        !self.unrecorded_replies.is_empty()
    }

    /// Queues a response that is not in the recording.
    fn answer(&mut self, id: &RequestId, outcome: &str) {
        self.unrecorded_replies.push_back(answer(id.token(), outcome));
    }

    /// Reports requests as missing that were answered in the recording before this one, but have not come. The lines
    /// that belong to them are skipped.
    fn skip_to(&mut self, to: usize) {
        let lane = self.lane_of(to);
        let Some(waiting) = self.lanes.get(lane).map(|lane| &lane.by_answer) else { return };
        let mut passed: Vec<usize> =
            waiting.range(..to).map(|(_, request)| *request).inspect(counted).collect();
        passed.sort_unstable();
        let Some(first) = passed.first().copied() else { return };
        for at in &passed {
            let what = self.describe(*at);
            self.differences.push(Difference::Missing { what });
        }
        // The other requests between stay, since their answers may still be needed.
        let others = self.lanes.get(lane).map(|lane| lane.others.range(first..to).copied().inspect(counted));
        let others: Vec<usize> = others.into_iter().flatten().collect();
        for at in passed.into_iter().chain(others) {
            self.set_state(at, LineState::Skipped);
        }
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>, line: &[u8], now: Duration) {
        let live = body(params);
        let withdrawn = request_of(params).filter(|_| method == CancelRequestNotification::METHOD);
        let lane = match &withdrawn {
            Some(id) => self.received_requests.get(id).map_or(CONNECTION, |at| self.lane_of(*at)),
            None => live.get(SESSION).and_then(Value::as_str).map_or(CONNECTION, |live| self.live_lane(live)),
        };
        if self.plays == Side::Client {
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.amounts.count_live(line);
                lane.last_received = now;
            }
            // The first one after the response ends the turn.
            if let Some((prompt, end)) = self.open_turn(lane)
                && is_idle(method, params)
                && self.answer_of(prompt).is_none_or(|answer| !self.plan.is_waiting(answer))
            {
                self.mark_done(end, now);
            }
            return;
        }
        // A cancel that crosses the response is not a difference, and neither is a second one.
        let cancels = withdrawn.is_some() || method == CancelNotification::METHOD;
        let open = match &withdrawn {
            Some(id) => self.received_requests.get(id).copied(),
            None if cancels => {
                let unanswered = self.lanes.get(lane).and_then(|lane| lane.unanswered.last().copied());
                unanswered.or_else(|| self.open_turn(lane).map(|(prompt, _)| prompt))
            }
            None => Some(0),
        };
        let Some(from) = open else { return };
        let (mut first, mut equal, mut next) = (None, None, from);
        for _ in 0..COMPARED {
            let expected = self.expected_notifications.get_mut(method);
            let Some(at) = expected.and_then(|expected| expected.next(next, Some(lane), &self.plan)) else {
                break;
            };
            first.get_or_insert(at);
            if cancels || self.compare(at, lane, &live).is_equal() {
                equal = Some(at);
                break;
            }
            next = at + 1;
        }
        if let Some(at) = equal {
            let pairs = self.compare(at, lane, &live).pairs;
            pairs.into_iter().for_each(|pair| self.names.learn(lane, pair));
            self.mark_done(at, now);
            if cancels {
                let last = self.cancelled.entry((lane, method.to_owned())).or_default();
                *last = at.max(*last);
            }
        } else if let Some(at) = first {
            let diff = self.compare(at, lane, &live).diff(&live, &self.differences.diff_bytes);
            self.differences.push(Difference::Other { what: self.describe(at), diff });
            self.mark_done(at, now);
        } else if !(cancels
            && self.cancelled.get(&(lane, method.to_owned())).is_some_and(|last| *last >= from))
        {
            let what = format!("not in the recording: {method}");
            self.report_unexpected(what);
        }
    }

    fn response(&mut self, id: &str, outcome: &ResponseOutcome<'_>, now: Duration) {
        let Some(request) = self.open_requests.remove(&id_key(id)) else {
            let what = format!("a response with the id {id}, which no open request has");
            self.report_unexpected(what);
            return;
        };
        let lane = self.lane_of(request);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.last_received = now;
            lane.open_requests = lane.open_requests.saturating_sub(1);
        }
        let Some(at) = self.answer_of(request) else {
            if self.plays == Side::Client {
                let what = format!("{} has a response, but none in the recording", self.describe(request));
                self.report_unexpected(what);
            }
            return;
        };
        let live = outcome_value(outcome);
        let comparison = self.compare(at, lane, &live);
        let recorded = self.content(at);
        let same_kind = recorded.get("error").is_some() == live.get("error").is_some();
        // The answers of an agent are compared at the end.
        let differs = !(comparison.is_equal() || self.plays == Side::Client && same_kind);
        let diff = differs.then(|| comparison.diff(&live, &self.differences.diff_bytes));
        let pairs = comparison.pairs;
        if let Some(diff) = diff {
            let what = format!("the answer to {}", self.describe(request));
            self.differences.push(Difference::Other { what, diff });
        }
        if !same_kind && let Some(end) = self.plan.turn_ends.get(&request).copied() {
            // Without an accepted prompt there is no turn.
            self.set_state(end, LineState::Skipped);
        }
        pairs.into_iter().for_each(|pair| self.names.learn(lane, pair));
        if self.plays == Side::Client {
            // The agent will not send requests any more that it had sent before this answer.
            let waiting = self.lanes.get(lane).map(|lane| lane.requests.range(request..at).copied());
            let never: Vec<_> = waiting.into_iter().flatten().inspect(counted).collect();
            never.into_iter().for_each(|at| self.give_up(at));
        }
        self.mark_done(at, now);
    }

    fn noise(&mut self, line: &[u8], malformed: &Malformed, now: Duration) {
        if self.plays == Side::Client {
            return;
        }
        let next = self.noise.next(0, Some(CONNECTION), &self.plan);
        let mut answered = false;
        match next {
            Some(at) => {
                if let Malformed::Request(id, _) = malformed
                    && let Some(answer) = self.plan.answer_to_noise.get(&at).copied()
                {
                    answered = true;
                    self.accept_request(at, id.token());
                    self.await_reply(answer);
                }
                self.mark_done(at, now);
            }
            None => {
                let text = String::from_utf8_lossy(line);
                let what = format!("a line that is not a message ({malformed}): {}", shortened(&text));
                self.report_unexpected(what);
            }
        }
        if let (Malformed::Request(id, error), false) = (malformed, answered) {
            self.answer(id, &format!(r#""error":{}"#, serde_json::to_string(error).unwrap_or_default()));
        }
    }
}

/// Returns the line of a response; `outcome` is its member `result` or `error`.
pub(super) fn answer(id: &str, outcome: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{outcome}}}\n").into_bytes()
}

/// Counts a step of a loop, for tests.
fn counted(_: &usize) {
    #[cfg(test)]
    crate::steps::count();
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.into(),
    }
}
