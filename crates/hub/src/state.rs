//! The part of an owner that its log determines. Applying the records of a log restores it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::{RequestId, SessionId};
use duologue_transcript::Side;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::child_sessions::ChildSessions;
use crate::cleared_messages::{ClearedMessages, StreamUpdate};
use crate::exchange_state::{ExchangeScheme, ExchangeState};
use crate::picture::Picture;
use crate::question::{OpenHostRequest, SharedQuestion, SharedQuestionKind};
use crate::record::{Asker, HubEvent, LogEntry};

/// A request of the hub to the agent that has no response yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenCall {
    pub(crate) askers: Vec<Asker>,
    pub(crate) is_prompt: bool,
    /// True for a message between agents.
    pub(crate) is_peers: bool,
    pub(crate) operation: Option<String>,
}

/// The code of a prompt that the agent did not receive, because it has lost the conversation.
pub(crate) const CONTEXT_LOST: &str = "context_lost";
/// The code of a prompt that the agent did not receive, because it has not restored the session.
pub(crate) const RESTORE_FAILED: &str = "restore_failed";

/// The prompt of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Running {
        call: u64,
    },
    /// The members `result` or `error` of the response, as text, and the position of its record.
    Ended {
        outcome: String,
        position: u64,
    },
}

/// The operations that clients named, with the newest [`Operations::KEPT`] that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    known: HashMap<String, Operation>,
    ended: VecDeque<String>,
}

impl Operations {
    /// A client repeats an operation after a lost connection, so the newest are enough.
    const KEPT: usize = 64;
    /// Limit on the outcome in bytes. A longer one is kept without what a client can do without.
    const OUTCOME_BYTES: usize = 4 << 10;

    pub(crate) fn get(&self, operation: &str) -> Option<&Operation> {
        self.known.get(operation)
    }

    fn begin(&mut self, operation: &str, call: u64) {
        self.known.insert(operation.to_owned(), Operation::Running { call });
    }

    fn forget(&mut self, operation: &str) {
        self.known.remove(operation);
    }

    fn end(&mut self, operation: String, outcome: &str, position: u64) {
        let outcome = match outcome.len() > Self::OUTCOME_BYTES {
            true => short_outcome(outcome, Self::OUTCOME_BYTES),
            false => outcome.to_owned(),
        };
        self.known.insert(operation.clone(), Operation::Ended { outcome, position });
        self.ended.push_back(operation);
        if self.ended.len() > Self::KEPT
            && let Some(oldest) = self.ended.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// The state of a session that its log determines.
#[derive(Clone, Debug)]
pub(crate) struct LoggedState {
    pub(crate) session: SessionId,
    /// The position of the last record.
    pub(crate) end: u64,
    /// The number of the last request to the agent.
    pub(crate) last_call: u64,
    pub(crate) calls: BTreeMap<u64, OpenCall>,
    pub(crate) questions: BTreeMap<u64, SharedQuestion>,
    pub(crate) host_requests: BTreeMap<u64, OpenHostRequest>,
    pub(crate) operations: Operations,
    pub(crate) cleared: ClearedMessages,
    pub(crate) exchange: ExchangeState,
    pub(crate) picture: Picture,
    pub(crate) children: ChildSessions,
}

impl LoggedState {
    pub(crate) fn new(session: SessionId) -> Self {
        LoggedState {
            session,
            end: 0,
            last_call: 0,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            host_requests: BTreeMap::new(),
            operations: Operations::default(),
            cleared: ClearedMessages::default(),
            exchange: ExchangeState::default(),
            picture: Picture::default(),
            children: ChildSessions::default(),
        }
    }

    /// Returns the call of the running turn.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.calls.iter().find(|(_, call)| call.is_prompt).map(|(number, _)| *number)
    }

    /// Applies the next record.
    pub(crate) fn apply(&mut self, entry: &LogEntry<'_>) {
        let has_update = matches!(
            entry.event,
            None | Some(HubEvent::Cleared { .. } | HubEvent::ClearedNothing | HubEvent::Renamed { .. })
        );
        let frame = entry.frame.filter(|(side, _)| has_update && *side == Side::Agent);
        let update = frame.and_then(|(_, frame)| StreamUpdate::read(frame.get().as_bytes()));
        self.apply_read(entry, update.as_ref());
    }

    /// Applies the record of a chunk that has no event.
    pub(crate) fn apply_chunk(&mut self, chunk: &StreamUpdate<'_>) {
        self.end += 1;
        self.cleared.apply(&self.session, chunk, self.end);
    }

    /// Applies the next record, with the update in it, if it has one that concerns messages.
    pub(crate) fn apply_read(&mut self, entry: &LogEntry<'_>, update: Option<&StreamUpdate<'_>>) {
        self.end += 1;
        let frame = entry.frame.map(|(_, frame)| frame);
        match update {
            Some(update) => self.cleared.apply(&self.session, update, self.end),
            None => self.picture.apply(&self.session, entry),
        }
        let Some(event) = &entry.event else { return };
        match event {
            HubEvent::Prompt { call, asker, operation } => {
                if let Some(operation) = operation {
                    self.operations.begin(operation, *call);
                }
                self.cleared.end_turn();
                self.open(*call, asker, true, operation.clone());
            }
            HubEvent::Call { call, asker } => {
                self.open(*call, asker, false, None);
                if let Some((method, params)) = frame.and_then(peer_message) {
                    self.exchange.requested(&method, params, &asker.client, *call);
                    if let Some(open) = self.calls.get_mut(call) {
                        open.is_peers = true;
                    }
                }
            }
            HubEvent::Addressed { .. } => {
                if let Some((method, params)) = frame.and_then(peer_message) {
                    self.exchange.notified(&method, params);
                }
            }
            HubEvent::Joined { call, asker } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.askers.push(asker.clone());
                }
            }
            HubEvent::Answer { call, .. } => {
                let operation = self.close(*call, frame);
                if let (Some(operation), Some(frame)) = (operation, frame) {
                    self.operations.end(operation, &outcome_members(frame), self.end);
                }
            }
            HubEvent::Interrupted { call, code, reason, .. } => {
                let operation = self.close(*call, None);
                // The agent has not received the prompt, and the same operation may run without the conversation.
                if let Some(operation) = operation.as_deref().filter(|_| code == CONTEXT_LOST) {
                    self.operations.forget(operation);
                } else if let Some(operation) = operation {
                    let error = crate::projection::interruption(code, reason);
                    let error = serde_json::to_string(&error).unwrap_or_default();
                    self.operations.end(operation, &format!("\"error\":{error}"), self.end);
                }
            }
            HubEvent::Question => {
                if let Some((id, kind)) = frame.and_then(question) {
                    let refused = BTreeSet::new();
                    let question = SharedQuestion { id, kind, refused, unattended: None };
                    self.questions.insert(self.end, question);
                }
            }
            HubEvent::Answered { question, .. } => _ = self.questions.remove(question),
            HubEvent::HostRequest { client } => {
                if let Some((id, method)) = frame.and_then(request) {
                    if let Some((method, params)) = frame.and_then(peer_message) {
                        self.exchange.sent(&method, params, client);
                    }
                    let client = client.clone();
                    self.host_requests.insert(self.end, OpenHostRequest { id, method, client });
                }
            }
            HubEvent::HostAnswer { request, .. } => _ = self.host_requests.remove(request),
            HubEvent::ChildSession { id } => self.children.insert(id.clone(), self.end),
            // It may give the ids of former children to others.
            HubEvent::AgentSession { .. } => self.children = ChildSessions::default(),
            HubEvent::Opened { .. }
            | HubEvent::TurnEnded
            | HubEvent::AskedAgain { .. }
            | HubEvent::Cleared { .. }
            | HubEvent::ClearedNothing
            | HubEvent::Renamed { .. } => {}
        }
    }

    fn open(&mut self, call: u64, asker: &Asker, is_prompt: bool, operation: Option<String>) {
        self.last_call = self.last_call.max(call);
        let open = OpenCall { askers: vec![asker.clone()], is_prompt, is_peers: false, operation };
        self.calls.insert(call, open);
    }

    /// Ends a call, and returns its operation.
    fn close(&mut self, call: u64, response: Option<&RawValue>) -> Option<String> {
        self.exchange.answered(call, response.map(|response| response.get().as_bytes()));
        let open = self.calls.remove(&call)?;
        if open.is_prompt {
            self.cleared.end_turn();
        }
        open.operation
    }

    /// Returns the number of requests of the agent without a response.
    pub(crate) fn agent_requests(&self) -> usize {
        self.questions.len() + self.host_requests.len()
    }

    /// Starts or stops the clock of each question: `can_answer` tells if a connected client could answer it.
    pub(crate) fn watch_questions(&mut self, now: Duration, can_answer: impl Fn(&SharedQuestion) -> bool) {
        for question in self.questions.values_mut() {
            question.unattended = match can_answer(question) {
                true => None,
                false => question.unattended.or(Some(now)),
            };
        }
    }
}

/// Returns an outcome without its `_meta` and `data`, and without the members that exceed the limit. The reason for which a
/// turn ended, and the beginning of an error message are kept.
fn short_outcome(outcome: &str, limit: usize) -> String {
    /// The members to keep, the most important first. Of a text, this many characters.
    const FIRST: [&str; 3] = ["stopReason", "code", "message"];
    const MESSAGE: usize = 512;

    let whole: Map<String, Value> = serde_json::from_str(&format!("{{{outcome}}}")).unwrap_or_default();
    let (name, value) = match whole.into_iter().next() {
        Some((name, Value::Object(value))) => (name, value),
        _ => return "\"result\":null".to_owned(),
    };
    let (first, others): (Vec<_>, Vec<_>) =
        value.into_iter().partition(|(name, _)| FIRST.contains(&name.as_str()));
    let mut kept = Map::new();
    let mut bytes = 0;
    for (name, value) in first.into_iter().chain(others) {
        let value = match value {
            Value::String(text) => Value::String(text.chars().take(MESSAGE).collect()),
            value => value,
        };
        let length = name.len() + value.to_string().len();
        if name != "_meta" && name != "data" && bytes + length <= limit / 2 {
            bytes += length;
            kept.insert(name, value);
        }
    }
    format!("{}:{}", Value::from(name), Value::Object(kept))
}

/// Parses a frame of the log. Its connection had limits of its own.
pub(crate) fn parse(frame: &[u8]) -> Option<RpcMessage<'_>> {
    RpcMessage::read_strict(frame, &Limits::default())?.ok()
}

/// Returns the id and the method of a request.
fn request(frame: &RawValue) -> Option<(RequestId, String)> {
    match parse(frame.get().as_bytes())? {
        RpcMessage::Request { id, method, .. } => Some((id, method.into_owned())),
        _ => None,
    }
}

/// Returns the method and the params of a message between agents.
fn peer_message(frame: &RawValue) -> Option<(Cow<'_, str>, &[u8])> {
    match parse(frame.get().as_bytes())? {
        RpcMessage::Request { method, params: Some(params), .. }
        | RpcMessage::Notification { method, params: Some(params) } => {
            ExchangeScheme::of(&method)?;
            Some((method, params.get().as_bytes()))
        }
        _ => None,
    }
}

fn question(frame: &RawValue) -> Option<(RequestId, SharedQuestionKind)> {
    let RpcMessage::Request { id, method, params } = parse(frame.get().as_bytes())? else { return None };
    let kind = SharedQuestionKind::read(&method, params?.get())?.ok()?;
    Some((id, kind))
}

/// Returns the member `result` or `error` of a response as text, for a response with another id.
pub(crate) fn outcome_members(response: &RawValue) -> String {
    use duologue_rpc::raw_message::member;

    let bytes = response.get().as_bytes();
    let text = |name: &str| {
        let value = std::str::from_utf8(bytes.get(member(bytes, name)?)?).ok()?;
        Some(format!("\"{name}\":{value}"))
    };
    text("error").or_else(|| text("result")).unwrap_or_else(|| "\"result\":null".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_outcome_is_kept_in_short() {
        let long = "x".repeat(Operations::OUTCOME_BYTES);
        let result =
            json!({"_meta": {"a": long}, "stopReason": "end_turn", "usage": {"n": 1}, "more": [long]});
        let error = json!({"code": -32603, "data": {"a": long}, "message": long});
        let huge = json!({"stopReason": long});
        for (outcome, expected) in [
            (
                format!("\"result\":{result}"),
                json!({"result": {"stopReason": "end_turn", "usage": {"n": 1}}}),
            ),
            (format!("\"error\":{error}"), json!({"error": {"code": -32603, "message": long.get(..512)}})),
            (format!("\"result\":{huge}"), json!({"result": {"stopReason": long.get(..512)}})),
            (format!("\"result\":\"{long}\""), json!({"result": null})),
        ] {
            let mut operations = Operations::default();
            operations.begin("o", 1);
            operations.end("o".to_owned(), &outcome, 7);
            let Some(Operation::Ended { outcome, position: 7 }) = operations.get("o") else {
                panic!("the operation is forgotten")
            };
            assert!(outcome.len() <= Operations::OUTCOME_BYTES);
            assert_eq!(serde_json::from_str::<Value>(&format!("{{{outcome}}}")).unwrap(), expected);
        }
    }
}
