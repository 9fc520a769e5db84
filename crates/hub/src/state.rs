//! The part of an owner that its log determines. Applying the records of a log restores it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::RequestId;
use serde_json::value::RawValue;

use crate::question::{OpenHostRequest, SharedQuestion, SharedQuestionKind};
use crate::record::{Asker, HubEvent, LogEntry};

/// A request of the hub to the agent that has no response yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenCall {
    pub(crate) askers: Vec<Asker>,
    pub(crate) is_prompt: bool,
    pub(crate) operation: Option<String>,
}

/// The prompt of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Running {
        call: u64,
    },
    /// The members `result` or `error` of the response, as text.
    Ended {
        outcome: String,
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
    /// Limit on the outcome in bytes. A longer one has a large `_meta`, and is not kept.
    const OUTCOME_BYTES: usize = 4 << 10;

    pub(crate) fn get(&self, operation: &str) -> Option<&Operation> {
        self.known.get(operation)
    }

    fn begin(&mut self, operation: &str, call: u64) {
        self.known.insert(operation.to_owned(), Operation::Running { call });
    }

    fn end(&mut self, operation: String, outcome: &str) {
        if outcome.len() > Self::OUTCOME_BYTES {
            self.known.remove(&operation);
            return;
        }
        self.known.insert(operation.clone(), Operation::Ended { outcome: outcome.to_owned() });
        self.ended.push_back(operation);
        if self.ended.len() > Self::KEPT
            && let Some(oldest) = self.ended.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// The state of a session that its log determines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedState {
    /// The position of the last record.
    pub(crate) end: u64,
    /// The number of the last request to the agent.
    pub(crate) last_call: u64,
    pub(crate) calls: BTreeMap<u64, OpenCall>,
    pub(crate) questions: BTreeMap<u64, SharedQuestion>,
    pub(crate) host_requests: BTreeMap<u64, OpenHostRequest>,
    pub(crate) operations: Operations,
}

impl LoggedState {
    /// Returns the call of the running turn.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.calls.iter().find(|(_, call)| call.is_prompt).map(|(number, _)| *number)
    }

    /// Applies the next record.
    pub(crate) fn apply(&mut self, entry: &LogEntry<'_>) {
        self.end += 1;
        let Some(event) = &entry.event else { return };
        let frame = entry.frame.map(|(_, frame)| frame);
        match event {
            HubEvent::Prompt { call, asker, operation } => {
                if let Some(operation) = operation {
                    self.operations.begin(operation, *call);
                }
                self.open(*call, asker, true, operation.clone());
            }
            HubEvent::Call { call, asker } => self.open(*call, asker, false, None),
            HubEvent::Joined { call, asker } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.askers.push(asker.clone());
                }
            }
            HubEvent::Answer { call, .. } => {
                let operation = self.calls.remove(call).and_then(|open| open.operation);
                if let (Some(operation), Some(frame)) = (operation, frame) {
                    self.operations.end(operation, &outcome_members(frame));
                }
            }
            HubEvent::Interrupted { call, code, reason, .. } => {
                if let Some(operation) = self.calls.remove(call).and_then(|open| open.operation) {
                    let error = crate::projection::interruption(code, reason);
                    let error = serde_json::to_string(&error).unwrap_or_default();
                    self.operations.end(operation, &format!("\"error\":{error}"));
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
                if let Some(id) = frame.and_then(request_id) {
                    let client = client.clone();
                    self.host_requests.insert(self.end, OpenHostRequest { id, client });
                }
            }
            HubEvent::HostAnswer { request, .. } => _ = self.host_requests.remove(request),
            HubEvent::Opened { .. } | HubEvent::AgentSession { .. } | HubEvent::AskedAgain { .. } => {}
        }
    }

    fn open(&mut self, call: u64, asker: &Asker, is_prompt: bool, operation: Option<String>) {
        self.last_call = self.last_call.max(call);
        let open = OpenCall { askers: vec![asker.clone()], is_prompt, operation };
        self.calls.insert(call, open);
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

/// Parses a frame of the log. Its connection had limits of its own.
pub(crate) fn parse(frame: &[u8]) -> Option<RpcMessage<'_>> {
    RpcMessage::read(frame, &Limits::default())?.ok()
}

fn request_id(frame: &RawValue) -> Option<RequestId> {
    match parse(frame.get().as_bytes())? {
        RpcMessage::Request { id, .. } => Some(id),
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
