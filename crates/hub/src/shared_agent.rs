//! A process of the agent that all sessions share.
//!
//! Each session has a lane: a [`HostedAgent`] at whose other end is the router of the process. The router makes the ids of
//! requests unique and finds the lane of each message by its session.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use duologue_rpc::raw_message::{call_frame, member, member_text, response_frame, splice, text};
use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::{
    CancelNotification, CancelRequestNotification, CloseSessionRequest, Error as RpcError, InitializeRequest,
    InitializeResponse, LoadSessionRequest, NewSessionRequest, Notification as _, Request as _,
    ResumeSessionRequest, SessionId,
};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::abilities::AdvertisedAbilities;
use crate::child_sessions::ChildSessions;
use crate::error::Error;
use crate::hosted_agent::{AgentEnd, AgentLane, CLOSED_OUTPUT, HostedAgent, READS_NO_MORE};
use crate::log_reader::session_id;
use crate::projection::error_response;

/// Limit on the lines that the agent sends for a session before the response that names it.
const EARLY_LINES: usize = 256;
/// Limit on their bytes.
const EARLY_BYTES: usize = 16 << 20;
/// Limit on the child sessions of all lanes whose messages reach them. The oldest ones are forgotten first.
const CHILDREN: usize = 4096;
/// Limit on the lines of the agent that wait for a session. Above it the router waits, and all sessions with it.
const WAITING_LINES: usize = 64;

/// The place of the process that all sessions share.
#[derive(Debug, Default)]
pub(crate) struct SharedAgent {
    slot: tokio::sync::Mutex<SharedSlot>,
}

#[derive(Debug, Default)]
struct SharedSlot {
    process: Option<SharedProcess>,
    /// The last failure to start it. All who waited for that process fail with it.
    failed: Option<(Instant, Arc<Error>)>,
}

impl SharedAgent {
    /// Opens a lane, and starts the process with `start` if it does not run.
    pub(crate) async fn lane(
        &self,
        schemes: AdvertisedAbilities,
        limit: Duration,
        start: impl Future<Output = Result<(HostedAgent, InitializeResponse), Error>>,
    ) -> Result<(HostedAgent, InitializeResponse), Error> {
        let requested = Instant::now();
        let mut slot = self.slot.lock().await;
        if let Some(process) = &slot.process
            && let Some(lane) = process.lane(schemes, limit)
        {
            return Ok(lane);
        }
        if let Some((at, error)) = &slot.failed
            && *at >= requested
        {
            return Err(Error::Introduction(error.clone()));
        }
        match start.await {
            Ok((agent, introduction)) => {
                let process = SharedProcess::new(agent, introduction);
                match process.lane(schemes, limit) {
                    Some(lane) => {
                        slot.process = Some(process);
                        Ok(lane)
                    }
                    None => Err(process.ended().await),
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                slot.failed = Some((Instant::now(), error.clone()));
                Err(Error::Introduction(error))
            }
        }
    }
}

/// A message to the router. Lanes are named by numbers.
enum LaneEvent {
    Opened(u64, Lane),
    Line(u64, Vec<u8>),
    Closed(u64),
}

/// A running process.
#[derive(Debug)]
struct SharedProcess {
    events: mpsc::UnboundedSender<LaneEvent>,
    lanes: AtomicU64,
    introduction: InitializeResponse,
    /// Receives the end of the process.
    end: watch::Receiver<Option<AgentEnd>>,
}

impl SharedProcess {
    fn new(agent: HostedAgent, introduction: InitializeResponse) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let can_close = introduction.agent_capabilities.session_capabilities.close.is_some();
        let (ended, end) = watch::channel(None);
        tokio::spawn(async move {
            ended.send_replace(Some(Router::new(agent, can_close).run(receiver).await));
        });
        SharedProcess { events, lanes: AtomicU64::new(0), introduction, end }
    }

    /// Opens a lane. Returns `None` if the process has ended.
    fn lane(
        &self,
        schemes: AdvertisedAbilities,
        limit: Duration,
    ) -> Option<(HostedAgent, InitializeResponse)> {
        let number = self.lanes.fetch_add(1, Ordering::Relaxed);
        let (to_agent, mut lines) = mpsc::unbounded_channel();
        let (to_hub, from_agent) = mpsc::channel(WAITING_LINES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let lane = Lane { to_hub, waiting: waiting.clone(), session: None };
        self.events.send(LaneEvent::Opened(number, lane)).ok()?;
        let events = self.events.clone();
        let pump = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if events.send(LaneEvent::Line(number, line)).is_err() {
                    return;
                }
            }
            let _ = events.send(LaneEvent::Closed(number));
        });
        let lane = AgentLane { to_agent, waiting, from_agent, pump, end: self.end.clone() };
        let agent = HostedAgent::of_lane(lane, schemes, limit);
        Some((agent, self.introduction.clone()))
    }

    /// Returns the error for a process that has ended before a lane was opened.
    async fn ended(mut self) -> Error {
        let end = self.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        let reason = end.map_or_else(|| CLOSED_OUTPUT.to_owned(), |end| end.reason());
        Error::AgentEnded { method: InitializeRequest::METHOD.to_owned(), reason }
    }
}

/// The end of a lane at the router.
struct Lane {
    to_hub: mpsc::Sender<Vec<u8>>,
    /// The bytes that the session has sent, and the router has not passed on.
    waiting: Arc<AtomicUsize>,
    /// The id of its session at the agent.
    session: Option<String>,
}

/// Passes the messages of the lanes to the process, and those of the process to the lanes.
struct Router {
    agent: HostedAgent,
    /// True if the agent closes sessions.
    can_close: bool,
    lanes: HashMap<u64, Lane>,
    /// The lanes by the ids of their sessions, and of the children that these have announced.
    sessions: HashMap<String, u64>,
    /// The sessions of `sessions` that are children, the one that was announced first at the front.
    children: VecDeque<String>,
    /// The lanes of the requests of the agent that have no response yet, by their ids as JSON.
    requests: HashMap<String, u64>,
    /// Lines for sessions that no lane has named yet.
    early: VecDeque<(String, Vec<u8>)>,
    early_bytes: usize,
}

impl Router {
    fn new(agent: HostedAgent, can_close: bool) -> Self {
        Router {
            agent,
            can_close,
            lanes: HashMap::new(),
            sessions: HashMap::new(),
            children: VecDeque::new(),
            requests: HashMap::new(),
            early: VecDeque::new(),
            early_bytes: 0,
        }
    }

    /// Runs until the process ends, or reads no more. All lanes end with it. Returns its end.
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<LaneEvent>) -> AgentEnd {
        let otherwise = loop {
            let goes_on = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.event(event).await,
                    None => false,
                },
                line = self.agent.next() => match line {
                    Some(line) => self.receive_from_agent(line).await,
                    None => break CLOSED_OUTPUT,
                },
            };
            if !goes_on {
                break READS_NO_MORE;
            }
        };
        let Router { mut agent, lanes, .. } = self;
        // The next lane starts another process.
        drop((events, lanes));
        agent.wait_for_end(otherwise).await
    }

    /// Returns false if the agent reads no more.
    async fn event(&mut self, event: LaneEvent) -> bool {
        match event {
            LaneEvent::Opened(number, lane) => {
                self.lanes.insert(number, lane);
                true
            }
            LaneEvent::Line(number, line) => {
                if let Some(lane) = self.lanes.get(&number) {
                    lane.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                self.receive_from_lane(number, line).await
            }
            LaneEvent::Closed(number) => self.close(number),
        }
    }

    async fn receive_from_lane(&mut self, number: u64, line: Vec<u8>) -> bool {
        let translated = match RpcMessage::read_strict(&line, &Limits::default()) {
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                let restores = method == LoadSessionRequest::METHOD || method == ResumeSessionRequest::METHOD;
                let session = params.filter(|_| restores).and_then(session_id);
                if let Some(session) = session
                    && !self.claim(number, session)
                {
                    let error = RpcError::resource_not_found("another session of the server has this id");
                    return self.deliver(number, error_response(id.token(), &error)).await;
                }
                with_member(&line, "id", &lane_id(number, id.token()))
            }
            Some(Ok(RpcMessage::Notification { method, params: Some(params) }))
                if method == CancelRequestNotification::METHOD =>
            {
                let id = member(params.get().as_bytes(), "requestId").and_then(|id| params.get().get(id));
                id.and_then(|id| {
                    let params = with_member(params.get().as_bytes(), "requestId", &lane_id(number, id))?;
                    with_member(&line, "params", std::str::from_utf8(&params).ok()?)
                })
            }
            Some(Ok(RpcMessage::Response { id, .. })) => {
                self.requests.remove(id.get());
                None
            }
            _ => None,
        };
        let is_sent = self.agent.send(translated.unwrap_or(line));
        self.deliver_early(number).await;
        is_sent
    }

    /// Gives a session to a lane. Returns false if another lane has it.
    fn claim(&mut self, number: u64, session: String) -> bool {
        if self.sessions.get(&session).is_some_and(|owner| *owner != number) {
            return false;
        }
        let Some(lane) = self.lanes.get_mut(&number) else { return true };
        if let Some(former) = lane.session.replace(session.clone()) {
            self.sessions.remove(&former);
        }
        self.sessions.insert(session, number);
        true
    }

    /// Returns false if the agent reads no more.
    async fn receive_from_agent(&mut self, line: Vec<u8>) -> bool {
        let repaired = RpcMessage::repair(&line);
        let line = repaired.unwrap_or(line);
        let (session, request) = match RpcMessage::read_strict(&line, &Limits::default()) {
            Some(Ok(RpcMessage::Response { id, .. })) => {
                let found = text(id.get().as_bytes())
                    .as_deref()
                    .and_then(lane_of)
                    .map(|(number, id)| (number, id.to_owned()));
                let Some((number, id)) = found else { return true };
                let is_new = id == format!("\"hub:{}\"", NewSessionRequest::METHOD);
                let result = member(&line, "result").and_then(|result| line.get(result)).filter(|_| is_new);
                if let Some(session) = result.and_then(|result| member_text(result, "sessionId")) {
                    let session = session.into_owned();
                    if !self.claim(number, session) {
                        let error = RpcError::internal("the agent gave a new session the id of another one");
                        self.deliver(number, error_response(&id, &error)).await;
                        return true;
                    }
                }
                if let Some(line) = with_member(&line, "id", &id) {
                    self.deliver(number, line).await;
                    self.deliver_early(number).await;
                }
                return true;
            }
            Some(Ok(RpcMessage::Request { id, params, .. })) => {
                (params.and_then(session_id), Some(id.token().to_owned()))
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                if method == CancelRequestNotification::METHOD {
                    let id = params
                        .and_then(|params| params.get().get(member(params.get().as_bytes(), "requestId")?));
                    let lane = id.and_then(|id| self.requests.get(id)).copied();
                    if let Some(number) = lane {
                        self.deliver(number, line).await;
                    }
                    return true;
                }
                (params.and_then(session_id), None)
            }
            _ => {
                tracing::debug!("dropped a line of the agent that is no message");
                return true;
            }
        };
        match session.as_ref().and_then(|session| self.sessions.get(session)).copied() {
            Some(number) => {
                match request {
                    Some(id) => _ = self.requests.insert(id, number),
                    None => self.note_child(number, &line),
                }
                self.deliver(number, line).await;
                true
            }
            None => match (session, request) {
                // The response that names the session may follow.
                (Some(session), None) if self.lanes.values().any(|lane| lane.session.is_none()) => {
                    self.early_bytes += line.len();
                    self.early.push_back((session, line));
                    while self.early.len() > EARLY_LINES || self.early_bytes > EARLY_BYTES {
                        let Some((_, oldest)) = self.early.pop_front() else { break };
                        self.early_bytes -= oldest.len();
                        tracing::debug!("dropped a notification of the agent for an unknown session");
                    }
                    true
                }
                (_, Some(id)) => {
                    let error = RpcError::resource_not_found("no client has this session open");
                    self.agent.send(error_response(&id, &error))
                }
                _ => {
                    tracing::debug!("dropped a notification of the agent for an unknown session");
                    true
                }
            },
        }
    }

    /// Gives the child that a notification announces to the lane of its parent.
    fn note_child(&mut self, number: u64, line: &[u8]) {
        let Some(child) = announced_child(line) else { return };
        if child.len() > ChildSessions::ID_BYTES || self.sessions.contains_key(&child) {
            return;
        }
        self.sessions.insert(child.clone(), number);
        self.children.push_back(child);
        if self.children.len() > CHILDREN
            && let Some(oldest) = self.children.pop_front()
        {
            self.sessions.remove(&oldest);
        }
    }

    async fn deliver(&mut self, number: u64, line: Vec<u8>) -> bool {
        if let Some(lane) = self.lanes.get(&number) {
            // A lane that is closed loses its lines.
            let _ = lane.to_hub.send(line).await;
        }
        true
    }

    /// Delivers what came for the session of a lane before it was known.
    async fn deliver_early(&mut self, number: u64) {
        if self.early.is_empty() {
            return;
        }
        let Some(session) = self.lanes.get(&number).and_then(|lane| lane.session.clone()) else { return };
        let (mine, others) = std::mem::take(&mut self.early).into_iter().partition(|(of, _)| *of == session);
        self.early = others;
        let mine: VecDeque<_> = mine;
        for (_, line) in mine {
            self.early_bytes -= line.len();
            self.deliver(number, line).await;
        }
    }

    /// Ends the session of a lane at the agent. Returns false if the agent reads no more.
    fn close(&mut self, number: u64) -> bool {
        let session = self.lanes.remove(&number).and_then(|lane| lane.session);
        let mut lines = Vec::new();
        let error = RpcError::request_cancelled();
        let open = self.requests.extract_if(|_, lane| *lane == number);
        lines.extend(open.map(|(id, _)| response_frame(&id, Err(&error))));
        self.sessions.retain(|_, lane| *lane != number);
        self.children.retain(|child| self.sessions.contains_key(child));
        if let Some(session) = session {
            let cancel = CancelNotification::new(SessionId::from(session.clone()));
            lines.push(call_frame(None, CancelNotification::METHOD, &cancel));
            if self.can_close {
                let id = to_raw_value(&format!("hub:{}", CloseSessionRequest::METHOD));
                let params = json!({ "sessionId": session });
                lines.push(id.and_then(|id| call_frame(Some(&id), CloseSessionRequest::METHOD, &params)));
            }
        }
        lines.into_iter().flatten().all(|line| self.agent.send(line))
    }
}

/// Returns the id of the child in a `subagent_update`.
fn announced_child(line: &[u8]) -> Option<String> {
    memchr::memmem::find(line, b"subagent_update")?;
    let params = line.get(member(line, "params")?)?;
    let update = params.get(member(params, "update")?)?;
    let is_announcement = member_text(update, "sessionUpdate").as_deref() == Some("subagent_update");
    is_announcement.then(|| member_text(update, "sessionId").map(Cow::into_owned)).flatten()
}

/// Returns the id of a lane's request for the agent, as JSON.
fn lane_id(number: u64, id: &str) -> String {
    json!(format!("{number}:{id}")).to_string()
}

/// Returns the lane of an id that [`lane_id`] has made, and the id at the lane as JSON.
fn lane_of(id: &str) -> Option<(u64, &str)> {
    let (number, id) = id.split_once(':')?;
    Some((number.parse().ok()?, id))
}

/// Replaces the value of a member.
fn with_member(object: &[u8], name: &str, value: &str) -> Option<Vec<u8>> {
    splice(object, member(object, name)?, value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_lanes_are_reversible() {
        for id in ["7", r#""hub:session/new""#, r#""a\"b:c""#] {
            let made = lane_id(12, id);
            let read = text(made.as_bytes()).unwrap();
            assert_eq!(lane_of(&read), Some((12, id)));
        }
        assert_eq!(lane_of("hub:session/close"), None);
    }
}
