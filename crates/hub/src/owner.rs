//! The owner of a session: a state machine without I/O.

mod agent_calls;
mod agent_side;
mod client_side;
mod hosts;
mod peer_messages;
mod replay;
mod restoring;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use duologue_rpc::RpcMessage;
use duologue_schema::{Error as RpcError, InitializeResponse, RequestId, SessionId};
use duologue_transcript::Side;
use serde_json::Value;
use serde_json::value::RawValue;

use self::replay::LateReplay;
use self::restoring::{LostValue, Restoring, first_step};
use crate::abilities::{Abilities, AdvertisedAbilities};
use crate::child_sessions::{child_position, with_session_ids};
use crate::chunk_line;
use crate::cleared_messages::StreamUpdate;
use crate::input::{OwnerAction, OwnerInput};
use crate::picture::{OpenedValues, Picture};
use crate::projection::{error_response, interruption};
use crate::record::{Asker, ClientKey, HubEvent, InvalidRecord, LogEntry};
use crate::state::{LoggedState, parse};

/// The settings of an owner.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OwnerSettings {
    /// The time after which a question is cancelled if no connected client can answer it. 24 hours by default.
    pub question: Duration,
    /// The time after which a turn is cancelled if no client is connected. No limit by default.
    pub unattended_turn: Option<Duration>,
    /// The time in which an agent ends a turn that was cancelled. Its process is ended after it. 30 seconds by default.
    pub cancel_grace: Duration,
    /// The time after which a second cancellation of a turn ends the process. 5 seconds by default.
    pub second_cancel: Duration,
    /// The time in which a new process answers each request that restores the session, questions to the user not
    /// counted. 2 minutes by default.
    pub restore: Duration,
    /// Limit on the requests of clients that wait for the agent, and on all messages that wait while it is being started.
    /// 256 by default.
    pub client_requests: usize,
    /// Limit on the id of a client's request in bytes. Each record of its end repeats it. 256 by default.
    pub request_id_bytes: usize,
    /// Limit on the requests of the agent that wait for clients. 256 by default.
    pub agent_requests: usize,
    /// Limit on the number of times that the agent's process is started again within `restart_period`. Beyond it, requests
    /// fail with the code `restart_limit`. 10 by default.
    pub restarts: usize,
    /// The time in which the ends of the process are counted. 60 seconds by default.
    pub restart_period: Duration,
    /// Returns the requests of the agent to other agents as [`OwnerAction::Route`]. False by default: clients receive them.
    pub routes_calls: bool,
    /// The agent's process serves other sessions too, and is not ended for one that it has lost. False by default; a hub sets
    /// it.
    pub is_process_shared: bool,
}

impl Default for OwnerSettings {
    fn default() -> Self {
        OwnerSettings {
            question: Duration::from_secs(24 * 60 * 60),
            unattended_turn: None,
            cancel_grace: Duration::from_secs(30),
            second_cancel: Duration::from_secs(5),
            restore: Duration::from_secs(120),
            client_requests: 256,
            request_id_bytes: 256,
            agent_requests: 256,
            restarts: 10,
            restart_period: Duration::from_secs(60),
            routes_calls: false,
            is_process_shared: false,
        }
    }
}

/// A client that has the session open.
#[derive(Clone, Copy, Debug)]
struct AttachedClient {
    abilities: Abilities,
    is_present: bool,
    /// Its place in the order of the clients.
    number: u64,
}

/// The process of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentProcess {
    Running,
    Starting { fresh: bool },
    Ended,
}

/// An output that waits for the log.
#[derive(Debug)]
struct Waiting {
    position: u64,
    output: OwnerAction,
    /// True for the answer to a request of the agent, which an agent receives that restores the session.
    is_answer: bool,
}

impl Waiting {
    fn new(position: u64, output: OwnerAction) -> Self {
        Waiting { position, output, is_answer: false }
    }
}

/// A turn that was cancelled and goes on.
#[derive(Clone, Copy, Debug)]
struct CancelledTurn {
    call: u64,
    at: Duration,
}

/// The owner of a session. It alone talks to the agent, writes the log and decides which answer counts.
///
/// Each input returns actions. An output of the session is in the log before anybody receives it: messages to the agent
/// and acknowledgements are returned when [`OwnerInput::Written`] or [`OwnerInput::Synced`] covers their records, and
/// clients read the log up to [`visible`](Self::visible).
///
/// `now` is the time since the log began, by a monotonic clock.
#[derive(Debug)]
pub struct SessionOwner {
    session: SessionId,
    settings: OwnerSettings,
    state: LoggedState,
    clients: BTreeMap<ClientKey, AttachedClient>,
    /// The number of clients so far.
    client_count: u64,
    /// The clients on which terminals were created, by the ids of the terminals.
    terminals: HashMap<String, ClientKey>,
    process: AgentProcess,
    /// True if a new process of the agent can resume or load the session.
    can_restore: bool,
    /// True if a process was ended because it had lost the session, and no prompt was answered since.
    has_lost_session: bool,
    /// The work of a process that was started and does not run the session yet.
    restoring: Option<Box<Restoring>>,
    /// The conversation that an agent which has restored the session may send again.
    replay: Option<LateReplay>,
    /// The values that the agent did not take back. Prompts are refused until a client chooses.
    lost: Vec<LostValue>,
    cancelled: Option<CancelledTurn>,
    /// The times at which the process ended or could not be started, at most `restarts + 1` of them.
    process_ends: VecDeque<Duration>,
    written: u64,
    synced: u64,
    /// The requests of the agent to other agents that have no response yet, by their ids as JSON.
    calls_of_agent: HashSet<String>,
    /// Messages to the agent, in order.
    to_agent: VecDeque<Waiting>,
    /// Acknowledgements and routed requests that need a written record.
    acknowledged_written: VecDeque<Waiting>,
    /// Acknowledgements that need a synced record.
    acknowledged_synced: VecDeque<Waiting>,
    /// The records that clients see only after a sync.
    synced_first: VecDeque<u64>,
    /// The requests whose responses are recorded and not visible yet, with the positions of the records.
    unseen: VecDeque<(u64, Vec<Asker>)>,
    /// The bytes of the records that are not written.
    unwritten: VecDeque<usize>,
    unwritten_bytes: usize,
    /// The time since which no client is connected.
    unattended: Option<Duration>,
    now: Duration,
    actions: Vec<OwnerAction>,
}

impl SessionOwner {
    /// Creates the owner of a new session, whose process runs. `end` is the position of the last record in the log.
    #[must_use]
    pub fn new(session: SessionId, settings: OwnerSettings, end: u64) -> Self {
        let state = LoggedState { end, ..LoggedState::new(session.clone()) };
        SessionOwner::with_state(session, settings, state, AgentProcess::Running)
    }

    /// Notes the agent that began the session, and its response.
    #[must_use]
    pub(crate) fn opened(mut self, introduction: &InitializeResponse, response: &RawValue) -> Self {
        self.can_restore = first_step(introduction).is_some();
        self.state.picture = Picture::new(OpenedValues::of(response.get().as_bytes()));
        self
    }

    /// Restores an owner from the records of its log, in order. Its process has ended. The first input ends what was
    /// open: prompts fail with `interrupted`, questions are cancelled.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for a line that is not a record.
    pub fn restore<'a>(
        session: SessionId,
        settings: OwnerSettings,
        log: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, InvalidRecord> {
        let mut restore = OwnerRestore::new(session.clone());
        let mut end = 0;
        for line in log {
            end += 1;
            restore.apply(end, &LogEntry::read(line)?);
        }
        Ok(restore.finish(session, settings, end))
    }

    fn with_state(
        session: SessionId,
        settings: OwnerSettings,
        state: LoggedState,
        process: AgentProcess,
    ) -> Self {
        SessionOwner {
            session,
            settings,
            written: state.end,
            synced: state.end,
            state,
            clients: BTreeMap::new(),
            client_count: 0,
            terminals: HashMap::new(),
            process,
            can_restore: false,
            has_lost_session: false,
            restoring: None,
            replay: None,
            lost: Vec::new(),
            cancelled: None,
            process_ends: VecDeque::new(),
            calls_of_agent: HashSet::new(),
            to_agent: VecDeque::new(),
            acknowledged_written: VecDeque::new(),
            acknowledged_synced: VecDeque::new(),
            synced_first: VecDeque::new(),
            unseen: VecDeque::new(),
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            unattended: None,
            now: Duration::ZERO,
            actions: Vec::new(),
        }
    }

    /// Returns the position of the last record, written or not.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.state.end
    }

    /// Returns the position up to which clients may read the log.
    #[must_use]
    pub fn visible(&self) -> u64 {
        let gate = self.synced_first.front().map_or(u64::MAX, |position| position - 1);
        self.written.min(gate)
    }

    /// Returns the bytes that wait for the log. A caller stops reading from the agent above a limit of its own.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Returns true while a prompt runs.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.state.turn().is_some()
    }

    /// Returns true while a prompt runs that this client has not sent.
    #[must_use]
    pub fn has_turn_of_others(&self, client: &ClientKey) -> bool {
        let call = self.state.turn().and_then(|call| self.state.calls.get(&call));
        call.is_some_and(|call| call.askers.iter().all(|asker| asker.client != *client))
    }

    /// Returns true while a prompt or a delegation runs.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.has_turn() || self.state.exchange.delegations().next().is_some()
    }

    /// Returns true while a request of a client waits for the agent, or a delegation runs.
    pub(crate) fn has_requests(&self) -> bool {
        !self.state.calls.is_empty() || self.is_working()
    }

    /// Returns the schemes of messages between agents that at least one client handles.
    pub(crate) fn schemes(&self) -> AdvertisedAbilities {
        let clients = self.clients.values().map(|client| client.abilities.schemes());
        clients.fold(AdvertisedAbilities::default(), AdvertisedAbilities::union)
    }

    /// Returns the positions of the requests of the agent that wait for an answer of a client.
    pub(crate) fn open_requests(&self) -> BTreeSet<u64> {
        self.state.questions.keys().chain(self.state.host_requests.keys()).copied().collect()
    }

    /// Returns the positions of the questions that clients can see and nobody has answered.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = u64> + '_ {
        let visible = self.visible();
        self.state.questions.keys().copied().take_while(move |position| *position <= visible)
    }

    /// Returns the result for an answer to an open question, or the reason for which it does not fit.
    pub(crate) fn result_of(&self, question: u64, answer: &Value) -> Option<Result<Box<RawValue>, String>> {
        Some(self.state.questions.get(&question)?.kind.result_of(answer))
    }

    /// Returns the requests of a client that wait for their responses.
    #[must_use]
    pub fn requests_of(&self, client: &ClientKey) -> Vec<RequestId> {
        let askers = self.state.calls.values().flat_map(|call| &call.askers);
        askers.filter(|asker| asker.client == *client).map(|asker| asker.id.clone()).collect()
    }

    /// Returns the number of messages to the agent that wait for the log or for the process.
    #[must_use]
    pub fn waiting_for_agent(&self) -> usize {
        self.to_agent.len()
    }

    /// Returns the time at which [`OwnerInput::Time`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let questions = self.state.questions.values().filter_map(|question| question.unattended);
        let question = questions.min().map(|since| since + self.settings.question);
        let turn = self.settings.unattended_turn.zip(self.unattended).filter(|_| self.has_turn());
        let cancel = self.cancelled.map(|cancelled| cancelled.at + self.settings.cancel_grace);
        let restore = self.restoring.as_ref().filter(|_| self.state.questions.is_empty());
        let restore = restore.map(|restoring| restoring.since + self.settings.restore);
        let turn = turn.map(|(limit, since)| since + limit);
        question.into_iter().chain(turn).chain(cancel).chain(restore).min()
    }

    /// Handles an input, and returns the actions that follow from it.
    pub fn handle(&mut self, now: Duration, input: OwnerInput<'_>) -> Vec<OwnerAction> {
        self.now = self.now.max(now);
        if self.process == AgentProcess::Ended {
            self.interrupt_all("interrupted", "the agent's process ended before it answered");
        }
        match input {
            OwnerInput::Attached { client, abilities } => self.attach(client, abilities),
            OwnerInput::Absent(client) => self.set_present(client, false),
            OwnerInput::Returned(client) => self.set_present(client, true),
            OwnerInput::Left(client) => self.leave(client),
            OwnerInput::FromClient { client, number, line } => self.receive_from_client(client, number, line),
            OwnerInput::Answer { client, question, result } => {
                self.answer_question(client, question, result);
            }
            OwnerInput::FromAgent(line) => self.receive_from_agent(line),
            OwnerInput::Routed(line) => self.receive_routed(line),
            OwnerInput::AgentReady { introduction, params, conversation } => {
                self.agent_ready(introduction, params, conversation);
            }
            OwnerInput::AgentEnded(reason) => {
                self.count_process_end();
                self.agent_ended("interrupted", reason);
            }
            OwnerInput::Closing => {
                if self.has_turn() {
                    self.cancel_turn();
                }
            }
            OwnerInput::Closed(reason) => {
                self.end_as_cancelled();
                self.agent_ended("interrupted", reason);
            }
            OwnerInput::Written(position) => self.written(position),
            OwnerInput::Synced(position) => {
                self.written(position);
                self.synced = self.synced.max(position);
                while self.synced_first.front().is_some_and(|first| *first <= self.synced) {
                    self.synced_first.pop_front();
                }
            }
            OwnerInput::Time => {}
        }
        self.check_deadlines();
        self.release();
        let visible = self.visible();
        while self.unseen.front().is_some_and(|(position, _)| *position <= visible) {
            self.unseen.pop_front();
        }
        std::mem::take(&mut self.actions)
    }

    /// Ends the session because its log cannot be written. Returns a response for each request that waits, and for
    /// each whose response clients cannot see. Nothing is recorded: a restart from the log ends what was open.
    pub fn fail(&mut self, reason: &str) -> Vec<OwnerAction> {
        let error = interruption("log_failed", reason);
        let unseen = self.unseen.iter().flat_map(|(_, askers)| askers);
        let askers = self.state.calls.values().flat_map(|call| &call.askers).chain(unseen);
        let reply = |asker: &Asker| OwnerAction::Reply {
            client: asker.client.clone(),
            line: error_response(asker.id.token(), &error),
        };
        // The outcome of a repeated operation waits for a sync.
        let waiting = self.acknowledged_synced.iter().filter_map(|waiting| {
            let OwnerAction::Reply { client, line } = &waiting.output else { return None };
            let Some(RpcMessage::Response { id, .. }) = parse(line) else { return None };
            Some(OwnerAction::Reply { client: client.clone(), line: error_response(id.get(), &error) })
        });
        askers.map(reply).chain(waiting).collect()
    }

    fn written(&mut self, position: u64) {
        while self.written < position
            && let Some(bytes) = self.unwritten.pop_front()
        {
            self.written += 1;
            self.unwritten_bytes -= bytes;
        }
    }

    /// Returns the outputs whose records are written or synced.
    fn release(&mut self) {
        let (written, synced, process) = (self.written, self.synced, self.process);
        if self.restoring.is_some() && self.to_agent.iter().any(|waiting| waiting.is_answer) {
            let waiting = std::mem::take(&mut self.to_agent);
            let (released, kept): (VecDeque<_>, VecDeque<_>) =
                waiting.into_iter().partition(|waiting| waiting.is_answer && waiting.position <= written);
            self.to_agent = kept;
            self.actions.extend(released.into_iter().map(|waiting| waiting.output));
        }
        let queues = [
            (&mut self.to_agent, if process == AgentProcess::Running { written } else { 0 }),
            (&mut self.acknowledged_written, written),
            (&mut self.acknowledged_synced, synced),
        ];
        for (queue, position) in queues {
            let count = queue.partition_point(|waiting| waiting.position <= position);
            self.actions.extend(queue.drain(..count).map(|waiting| waiting.output));
        }
    }

    /// Appends a record and returns its position. It has no update of the agent.
    fn record(&mut self, frame: Option<(Side, &RawValue)>, event: Option<HubEvent>) -> u64 {
        self.record_update(frame, event, None)
    }

    /// Appends a record, with the update in it, and returns its position.
    fn record_update(
        &mut self,
        frame: Option<(Side, &RawValue)>,
        event: Option<HubEvent>,
        update: Option<&StreamUpdate<'_>>,
    ) -> u64 {
        let entry = LogEntry { at: micros(self.now), frame, event };
        self.state.apply_read(&entry, update);
        let line = entry.write().unwrap_or_else(|error| {
            // All members are strings, numbers and JSON that was parsed. The position stays in use.
            tracing::error!(session = %self.session, %error, "a record could not be written");
            format!(r#"{{"at":{}}}"#, entry.at).into_bytes()
        });
        self.append(line);
        if let Some(HubEvent::Answer { to, .. } | HubEvent::Interrupted { to, .. }) = entry.event {
            self.unseen.push_back((self.state.end, to));
        }
        self.state.end
    }

    /// Appends the record of a chunk that has no event.
    fn record_chunk(&mut self, line: &[u8], chunk: &StreamUpdate<'_>) {
        self.state.apply_chunk(chunk);
        self.append(chunk_line::record(micros(self.now), line));
    }

    fn append(&mut self, record: Vec<u8>) {
        self.unwritten.push_back(record.len());
        self.unwritten_bytes += record.len();
        self.actions.push(OwnerAction::Append(record));
    }

    /// Hides a record from clients until it survives a power cut.
    fn sync_first(&mut self, position: u64) {
        self.synced_first.push_back(position);
        self.actions.push(OwnerAction::Sync);
    }

    fn send_to_agent(&mut self, position: u64, frame: &RawValue) {
        let output = self.to_agent_line(frame);
        self.to_agent.push_back(Waiting::new(position, output));
    }

    /// Sends the answer to a request of the agent.
    fn send_answer(&mut self, position: u64, frame: &RawValue) {
        let output = self.to_agent_line(frame);
        self.to_agent.push_back(Waiting { is_answer: true, ..Waiting::new(position, output) });
    }

    /// Returns the message for the agent, which knows its children by its own ids.
    fn to_agent_line(&self, frame: &RawValue) -> OwnerAction {
        let line = frame.get().as_bytes();
        let own_id =
            |id: &str| self.state.children.agent_id(child_position(&self.session, id)?).map(str::to_owned);
        let is_possible = memchr::memchr(b'~', line).is_some();
        let line = is_possible.then(|| with_session_ids(line, own_id)).flatten();
        OwnerAction::ToAgent(line.unwrap_or_else(|| frame.get().into()))
    }

    fn reply(&mut self, client: &ClientKey, line: Vec<u8>) {
        self.actions.push(OwnerAction::Reply { client: client.clone(), line });
    }
}

/// An owner that is being restored, record by record. See [`SessionOwner::restore`].
#[derive(Debug)]
pub(crate) struct OwnerRestore(LoggedState);

impl OwnerRestore {
    pub(crate) fn new(session: SessionId) -> Self {
        OwnerRestore(LoggedState::new(session))
    }

    /// Applies the record at a position. Records before it that were left out are damaged.
    pub(crate) fn apply(&mut self, position: u64, entry: &LogEntry<'_>) {
        self.0.end = position.saturating_sub(1);
        self.0.apply(entry);
    }

    /// Returns the owner of a log that ends at a position.
    pub(crate) fn finish(mut self, session: SessionId, settings: OwnerSettings, end: u64) -> SessionOwner {
        self.0.end = end;
        SessionOwner::with_state(session, settings, self.0, AgentProcess::Ended)
    }
}

/// Returns a time in whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

/// Returns a line that this program wrote as JSON.
fn raw_line(line: serde_json::Result<Vec<u8>>) -> Option<Box<RawValue>> {
    let line = line.inspect_err(|error| tracing::error!(%error, "a message could not be written")).ok()?;
    raw(std::str::from_utf8(&line).ok()?)
}

fn client_lost() -> RpcError {
    let error = RpcError::internal("no client is connected that could do this; retry when one is back");
    error.coded("client_lost", true)
}
