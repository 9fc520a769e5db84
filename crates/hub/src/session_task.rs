//! The task of a session: executes the actions of its owner.

mod agent_calls;
mod agent_lines;
mod agent_process;
mod live_session;

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use duologue_rpc::raw_message::is_doubled;
use duologue_schema::SessionId;
use duologue_store::{Log as _, LogLine};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

#[cfg(feature = "gateway")]
pub(crate) use self::agent_calls::AgentCall;
pub(crate) use self::agent_calls::CallSender;
use self::agent_calls::ProcessCalls;
use self::agent_lines::{EarlyLines, new_title, with_session};
use self::agent_process::{EndedAgent, Started, StartingAgent, wait_for_former};
use self::live_session::ended_response;
pub(crate) use self::live_session::{
    AttachReply, AttachingClient, ClientRole, GivenAnswer, LiveSession, Replies, SessionCommand,
};
use crate::audit::{self, AuditedQuestion};
use crate::error::Error;
use crate::hosted_agent::{CLOSED_OUTPUT, HostedAgent, READS_NO_MORE};
use crate::hub::HubShared;
use crate::input::{OwnerAction, OwnerInput, QuestionDecision};
use crate::log_reader::session_id;
use crate::open_log::OpenLog;
use crate::owner::SessionOwner;
use crate::projection::{error_response, interruption};
use crate::record::ClientKey;
use crate::session_questions::AnswerFault;

/// The agent is not read above this number of bytes that wait for the log.
const UNWRITTEN_BYTES: usize = 4 << 20;
/// The bytes of records that are written without a thread of their own.
const SMALL_BATCH: usize = 16 * 1024;
/// Limit on the messages of clients that wait for the session.
const COMMANDS: usize = 64;
/// The time in which the agent ends the turn of a session that its client closes.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// The reason for the end of what was open in a session that is closed.
const CLOSED: &str = "the session was closed";
/// The time after which a session without a client and a turn ends its process.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The outcome of a write or a sync: the position of the last record that it covers.
type Written = Result<u64, duologue_store::Error>;
/// An event of a session that no client causes.
enum SessionEvent {
    /// A line of the agent, or `None` at its end.
    FromAgent(Option<Vec<u8>>),
    Written(Written),
    Synced(Written),
    Indexed,
    Started(Box<Started>),
    /// The reason for which the process has ended is known.
    AgentEnded(String),
    /// A message about a call of the agent to another agent.
    Routed(Vec<u8>),
}

pub(crate) struct SessionTask {
    id: SessionId,
    principal: Arc<str>,
    owner: SessionOwner,
    hub: Weak<HubShared>,
    log: Arc<OpenLog>,
    failure: Arc<OnceLock<Arc<Error>>>,
    agent: Option<HostedAgent>,
    calls: ProcessCalls,
    /// The id of the session at the agent.
    agent_session: String,
    /// The params of `session/new`, with which the session is restored. As text they take the least memory.
    params: Arc<RawValue>,
    /// The params with which clients have created or opened the session. They count when a prompt of the client needs a new
    /// process.
    given: HashMap<ClientKey, Arc<RawValue>>,
    /// The messages of an agent that begins the session anew, until its id is known.
    early: EarlyLines,
    /// A message of a client that waits for the end of an agent that has exited. The next one receives it.
    held: Option<SessionCommand>,
    /// The clients, with the number of their last attachment.
    replies: HashMap<ClientKey, (u64, Replies)>,
    visible: watch::Sender<u64>,
    /// True while a prompt runs.
    turns: watch::Sender<bool>,
    /// True while the agent is there.
    agents: watch::Sender<bool>,
    /// The workers of the server that have opened the session for a task or message, and answer its questions. The next message
    /// of a conversation may open it before the former one has left.
    workers: BTreeSet<ClientKey>,
    /// The workers that pass dialogues on.
    relays: BTreeSet<ClientKey>,
    /// The questions that wait for an answer of a user.
    questions: watch::Sender<Vec<u64>>,
    batch: Vec<LogLine>,
    wants_sync: bool,
    /// The next records end what was open, and may use the reserve of a full log.
    is_ending: bool,
    /// A record could not be made.
    invalid: Option<duologue_store::Error>,
    writing: Option<JoinHandle<Written>>,
    /// The sync that runs. Records are written meanwhile.
    syncing: Option<JoinHandle<Written>>,
    starting: Option<StartingAgent>,
    /// The update of the index that runs, and the one that follows it: with the title if that has changed.
    indexing: Option<JoinHandle<()>>,
    to_index: Option<Option<Option<String>>>,
    /// The agent reads no more.
    agent_failed: bool,
    /// The owner has ended the agent.
    ends_agent: bool,
    /// The agent has ended, and requests that it has not answered wait for the reason.
    ended: Option<EndedAgent>,
    /// Closed when the former processes have ended. The next one is started behind it.
    ending: Option<watch::Receiver<()>>,
}

/// A session that was created or restored, for its task.
pub(crate) struct SessionStart {
    pub(crate) id: SessionId,
    pub(crate) principal: Arc<str>,
    pub(crate) owner: SessionOwner,
    pub(crate) log: Arc<OpenLog>,
    /// The process, if it runs already.
    pub(crate) agent: Option<HostedAgent>,
    /// The id of the session at the agent.
    pub(crate) agent_session: String,
    /// The params of `session/new`.
    pub(crate) params: Box<RawValue>,
    /// Handled before anything else.
    pub(crate) first: Option<SessionCommand>,
}

impl SessionTask {
    /// Starts the task.
    pub(crate) fn spawn(hub: &Arc<HubShared>, start: SessionStart) -> LiveSession {
        let SessionStart { id, principal, owner, log, agent, agent_session, params, first } = start;
        if let Some(agent) = &agent {
            agent.set_session(&id);
        }
        let (sender, commands) = mpsc::channel(COMMANDS);
        let (visible, readers) = watch::channel(owner.visible());
        let log_of_readers = Arc::downgrade(&log);
        let turns = watch::Sender::new(owner.has_turn());
        let agents = watch::Sender::new(agent.is_some());
        let questions = watch::Sender::new(Vec::new());
        let failure = Arc::<OnceLock<_>>::default();
        let live = LiveSession {
            id: id.clone(),
            principal: principal.clone(),
            commands: sender,
            visible: readers,
            has_turn: turns.subscribe(),
            has_agent: agents.subscribe(),
            questions: questions.subscribe(),
            log: log_of_readers,
            failure: failure.clone(),
        };
        let task = SessionTask {
            id,
            principal,
            owner,
            hub: Arc::downgrade(hub),
            log,
            failure,
            agent,
            calls: ProcessCalls::new(hub.calls()),
            agent_session,
            params: params.into(),
            given: HashMap::new(),
            early: EarlyLines::default(),
            held: None,
            replies: HashMap::new(),
            visible,
            turns,
            agents,
            workers: BTreeSet::new(),
            relays: BTreeSet::new(),
            questions,
            batch: Vec::new(),
            wants_sync: false,
            is_ending: false,
            invalid: None,
            writing: None,
            syncing: None,
            starting: None,
            indexing: None,
            to_index: None,
            agent_failed: false,
            ends_agent: false,
            ended: None,
            ending: None,
        };
        tokio::spawn(task.run(first, commands));
        live
    }

    async fn run(mut self, first: Option<SessionCommand>, mut commands: mpsc::Receiver<SessionCommand>) {
        let mut waits_for_end = None;
        self.input(OwnerInput::Time);
        self.is_ending = !self.batch.is_empty();
        if let Some(command) = first {
            self.command(command);
        }
        let mut idle_since = Instant::now();
        loop {
            if !self.has_exited_agent()
                && let Some(command) = self.held.take()
            {
                self.command(command);
            }
            if let Err(error) = self.write() {
                self.fail(error);
                break;
            }
            let now = self.now();
            let is_used =
                self.replies.len() > self.relays.len() || self.owner.is_working() || self.calls.are_open();
            if is_used {
                idle_since = Instant::now();
            }
            let until_idle = IDLE.saturating_sub(idle_since.elapsed());
            let deadline = self.owner.deadline().map(|at| at.saturating_sub(now));
            let sleep = deadline.map_or(until_idle, |deadline| deadline.min(until_idle));
            // Above the limit nobody is read until the log has caught up.
            let reads = self.owner.unwritten_bytes() < UNWRITTEN_BYTES;
            tokio::select! {
                command = commands.recv(), if reads && self.held.is_none() => match command {
                    None => {
                        self.close(OwnerInput::AgentEnded(CLOSED)).await;
                        break;
                    }
                    Some(SessionCommand::Release { client, attachment, done }) => {
                        self.refuse_requests_of(&client, attachment);
                        self.command(SessionCommand::Left { client, attachment });
                        if self.replies.len() == self.relays.len() {
                            match self.end_turn().await {
                                Ok(()) => self.close(OwnerInput::Closed(CLOSED)).await,
                                Err(error) => self.fail(error),
                            }
                            waits_for_end = Some(done);
                            break;
                        }
                        let _ = done.send(self.owner.end());
                    }
                    Some(SessionCommand::Close(done)) => {
                        self.close(OwnerInput::AgentEnded(CLOSED)).await;
                        waits_for_end = Some(done);
                        break;
                    }
                    Some(command @ (SessionCommand::FromClient { .. } | SessionCommand::Answer { .. }))
                        if self.has_exited_agent() =>
                    {
                        self.held = Some(command);
                    }
                    Some(command) => self.command(command),
                },
                event = self.next_event() => if let Err(error) = self.handle_event(event).await {
                    self.fail(error);
                    break;
                },
                () = tokio::time::sleep(sleep) => {
                    if idle_since.elapsed() >= IDLE {
                        self.close(OwnerInput::AgentEnded(CLOSED)).await;
                        break;
                    }
                    self.input(OwnerInput::Time);
                }
            }
        }
        let position = self.owner.end();
        self.end(commands).await;
        if let Some(done) = waits_for_end {
            let _ = done.send(position);
        }
    }

    /// Waits for the agent, the log, or another part of the session.
    ///
    /// # Cancel safety
    ///
    /// No event is lost if the future is dropped.
    async fn next_event(&mut self) -> SessionEvent {
        // Above the limit nobody is read until the log has caught up.
        let reads = self.owner.unwritten_bytes() < UNWRITTEN_BYTES;
        tokio::select! {
            line = next_line(&mut self.agent), if reads => SessionEvent::FromAgent(line),
            written = join(self.writing.as_mut()) => SessionEvent::Written(written),
            synced = join(self.syncing.as_mut()) => SessionEvent::Synced(synced),
            () = join(self.indexing.as_mut()) => SessionEvent::Indexed,
            started = join(self.starting.as_mut().map(|it| &mut it.task)) => SessionEvent::Started(Box::new(started)),
            reason = EndedAgent::reason(&mut self.ended) => SessionEvent::AgentEnded(reason),
            line = self.calls.next(), if reads => SessionEvent::Routed(line),
        }
    }

    /// # Errors
    ///
    /// [`Error::Log`] if nothing can be written any more.
    async fn handle_event(&mut self, event: SessionEvent) -> Result<(), Error> {
        match event {
            SessionEvent::FromAgent(Some(line)) => {
                let Some(line) = self.early.keep(line, self.owner.begins_anew()) else { return Ok(()) };
                self.receive_from_agent(line);
                if !self.owner.begins_anew() {
                    for line in self.early.take() {
                        self.publish();
                        self.receive_from_agent(line);
                    }
                    self.receive_ready_lines();
                }
                self.publish();
            }
            SessionEvent::FromAgent(None) => self.end_agent(CLOSED_OUTPUT),
            SessionEvent::AgentEnded(reason) => {
                self.ended = None;
                self.input(OwnerInput::AgentEnded(&reason));
            }
            SessionEvent::Written(written) => {
                self.writing = None;
                self.input(OwnerInput::Written(written?));
            }
            SessionEvent::Synced(synced) => {
                self.syncing = None;
                self.input(OwnerInput::Synced(synced?));
            }
            SessionEvent::Indexed => {
                self.indexing = None;
                self.index();
            }
            SessionEvent::Started(started) => {
                self.starting = None;
                self.started(*started);
            }
            SessionEvent::Routed(line) => self.input(OwnerInput::Routed(&line)),
        }
        Ok(())
    }

    /// Takes the lines that follow without a wait, until they have the bytes of a small batch.
    fn receive_ready_lines(&mut self) {
        /// The cost of a line beside its text.
        const LINE: usize = 64;
        let mut bytes = 0;
        while bytes < SMALL_BATCH
            && self.owner.unwritten_bytes() < UNWRITTEN_BYTES
            && !self.owner.begins_anew()
            && !(self.agent_failed || self.ends_agent)
            && let Some(line) = self.agent.as_mut().and_then(HostedAgent::ready_line)
        {
            bytes += line.len() + LINE;
            self.receive_from_agent(line);
        }
    }

    /// Handles a line of the agent. [`publish`](Self::publish) follows, once for the lines that are ready.
    fn receive_from_agent(&mut self, line: Vec<u8>) {
        let line = self.with_own_session(line);
        let had_turn = self.owner.has_turn();
        self.handle(OwnerInput::FromAgent(&line));
        let title = new_title(&line, &self.id);
        if title.is_some() || (had_turn && !self.owner.has_turn()) {
            self.to_index = Some(title.or_else(|| self.to_index.take().flatten()));
            self.index();
        }
    }

    /// Cancels the turn of a session that is being closed, and gives the agent some time to end it.
    ///
    /// # Errors
    ///
    /// As [`handle_event`](Self::handle_event).
    async fn end_turn(&mut self) -> Result<(), Error> {
        self.input(OwnerInput::Closing);
        let mut grace = pin!(tokio::time::sleep(CANCEL_GRACE));
        while self.owner.has_turn() {
            self.write()?;
            // An event that is taken is handled, since it may be a line of the agent.
            let event = tokio::select! {
                biased;
                () = &mut grace => break,
                event = self.next_event() => event,
            };
            self.handle_event(event).await?;
        }
        Ok(())
    }

    /// Removes the session from the hub, and answers the requests that wait for it. A task that opens it again waits
    /// until its commands are closed.
    async fn end(mut self, mut commands: mpsc::Receiver<SessionCommand>) {
        commands.close();
        let mut held = self.held.take();
        // A sender that has its place already is waited for.
        while let Some(command) = match held.take() {
            Some(held) => Some(held),
            None => commands.recv().await,
        } {
            let SessionCommand::FromClient { client, line } = command else { continue };
            if let (Some((_, replies)), Some(answer)) =
                (self.replies.get(&client), ended_response(&line, &self.failure))
            {
                let _ = replies.send(answer);
            }
        }
        // A process that is started for this session later must not find this one in its folders.
        if let Some(starting) = self.starting {
            starting.end().await;
        }
        if let Some(agent) = self.agent {
            agent.end().await;
        }
        wait_for_former(self.ending).await;
        if let Some(hub) = self.hub.upgrade() {
            hub.forget(&self.id);
        }
    }

    fn has_exited_agent(&self) -> bool {
        self.agent.as_ref().is_some_and(HostedAgent::has_exited)
    }

    /// Returns the time since the log began.
    fn now(&self) -> Duration {
        self.log.time()
    }

    fn command(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Attach { from, params, earlier, attached } => {
                let AttachingClient { client, attachment, abilities, replies, role } = from;
                if self.replies.get(&client).is_some_and(|(last, _)| *last > attachment) {
                    // The client has continued on another connection, and this one is answered with an error.
                    return;
                }
                self.replies.insert(client.clone(), (attachment, replies));
                match role {
                    ClientRole::User => {}
                    ClientRole::Worker => _ = self.workers.insert(client.clone()),
                    ClientRole::Relay => _ = self.relays.insert(client.clone()),
                }
                let known = self.given.get(&client).unwrap_or(&self.params);
                let params = match params {
                    Some(given) => with_members(known, given).map(Arc::from),
                    None => Some(known.clone()),
                };
                if let Some(params) = params {
                    self.given.insert(client.clone(), params);
                }
                let position = self.owner.end();
                if let Some((earlier, is_replayed)) = earlier {
                    earlier.set(position, is_replayed);
                }
                self.input(OwnerInput::Attached { client: &client, abilities });
                let (end, requests) = (self.owner.end(), self.owner.requests_of(&client));
                let has_other_turn = self.owner.has_turn_of_others(&client);
                let open_requests = self.owner.open_requests();
                let reply = AttachReply { position, end, requests, open_requests, has_other_turn };
                if attached.send(reply).is_err() {
                    // The client has left meanwhile.
                    self.command(SessionCommand::Left { client, attachment });
                }
            }
            SessionCommand::FromClient { client, line } => {
                self.input(OwnerInput::FromClient { client: &client, number: 0, line: &line });
            }
            SessionCommand::Answer { client, question, is_of_work, answer, done } => {
                let _ = done.send(self.answer(&client, question, is_of_work, &answer));
            }
            SessionCommand::Presence { client, attachment, is_present } => {
                if self.replies.get(&client).is_some_and(|(last, _)| *last == attachment) {
                    self.input(match is_present {
                        true => OwnerInput::Returned(&client),
                        false => OwnerInput::Absent(&client),
                    });
                }
            }
            SessionCommand::Left { client, attachment } => {
                if self.replies.get(&client).is_some_and(|(last, _)| *last == attachment) {
                    self.replies.remove(&client);
                    self.given.remove(&client);
                    self.workers.remove(&client);
                    self.relays.remove(&client);
                    self.input(OwnerInput::Left(&client));
                }
            }
            SessionCommand::Release { .. } | SessionCommand::Close(_) => {}
        }
    }

    /// Gives the agent the answer of somebody who has not opened the session.
    fn answer(
        &mut self,
        client: &ClientKey,
        question: Option<u64>,
        is_of_work: bool,
        answer: &Value,
    ) -> Result<GivenAnswer, AnswerFault> {
        let open: Vec<u64> = self.owner.open_questions().collect();
        let question = match (question, &open[..]) {
            _ if !is_of_work && !self.workers.is_empty() => return Err(AnswerFault::Work),
            (None, [only]) => *only,
            (None, [_, _, ..]) => return Err(AnswerFault::Several),
            (Some(question), open) if open.contains(&question) => question,
            _ => return Err(AnswerFault::NotOpen),
        };
        let result = self.owner.result_of(question, answer).ok_or(AnswerFault::NotOpen)?;
        let result = result.map_err(AnswerFault::Invalid)?;
        self.input(OwnerInput::Answer { client, question, result: &result });
        Ok(GivenAnswer { question, end: self.owner.end() })
    }

    /// Returns the questions that no worker answers.
    fn open_questions(&self) -> Vec<u64> {
        if self.workers.is_empty() { self.owner.open_questions().collect() } else { Vec::new() }
    }

    /// Answers the requests of a client that closes the session while others go on. Those of the last client are in the log,
    /// and those of a newer attachment go on.
    fn refuse_requests_of(&self, client: &ClientKey, attachment: u64) {
        let attached = self.replies.get(client).filter(|(last, _)| *last == attachment);
        let Some((_, replies)) = attached.filter(|_| self.replies.len() > 1) else { return };
        let error =
            interruption("session_closed", "this client closed the session, which goes on for others");
        for request in self.owner.requests_of(client) {
            let _ = replies.send(error_response(request.token(), &error));
        }
    }

    /// Gives an input to the owner and executes its actions.
    fn input(&mut self, input: OwnerInput<'_>) {
        self.handle(input);
        self.publish();
    }

    /// Publishes the state behind the actions of the owner, and ends the agent if they ask for it.
    fn publish(&mut self) {
        // First: a client that sees a question may look for it.
        self.publish_questions();
        publish(&self.visible, self.owner.visible());
        publish(&self.turns, self.owner.has_turn());
        if std::mem::take(&mut self.ends_agent) {
            self.agent_failed = false;
            self.leave_agent(CLOSED_OUTPUT);
        }
        if std::mem::take(&mut self.agent_failed) {
            self.end_agent(READS_NO_MORE);
        }
        publish(&self.agents, self.agent.is_some());
    }

    fn handle(&mut self, input: OwnerInput<'_>) {
        for action in self.owner.handle(self.now(), input) {
            match action {
                OwnerAction::Append(line) => match LogLine::new(line) {
                    Ok(line) => self.batch.push(line),
                    // The positions of later records would be wrong.
                    Err(error) => self.invalid = Some(error),
                },
                OwnerAction::Sync => self.wants_sync = true,
                OwnerAction::ToAgent(line) => {
                    let line = with_session(line, self.id.as_str(), &self.agent_session);
                    if self.agent.as_mut().is_some_and(|agent| !agent.send(line)) {
                        // The end is an input of its own, after these actions.
                        self.agent_failed = true;
                    }
                }
                OwnerAction::Reply { client, line } => {
                    if let Some((_, replies)) = self.replies.get(&client) {
                        let _ = replies.send(line);
                    }
                }
                OwnerAction::Route(line) => {
                    let hub = self.hub.upgrade();
                    let agent = hub.as_ref().map_or("", |hub| hub.agent_name());
                    self.calls.route(agent, &self.principal, &self.id, line);
                }
                OwnerAction::Acknowledge { .. } => {}
                OwnerAction::Decided { question, decision, .. } => self.audit(question, &decision),
                OwnerAction::StartAgent { client, .. } => self.start_agent(client.as_ref()),
                OwnerAction::AgentSession(id) => self.agent_session = id,
                OwnerAction::EndAgent => self.ends_agent = true,
            }
        }
    }

    /// Publishes the open questions if they have changed. Most lines change none, so no list is built to compare them.
    fn publish_questions(&self) {
        let is_same = {
            let known = self.questions.borrow();
            match self.workers.is_empty() {
                true => self.owner.open_questions().eq(known.iter().copied()),
                false => known.is_empty(),
            }
        };
        if !is_same {
            self.questions.send_replace(self.open_questions());
        }
    }

    fn audit(&self, question: u64, decision: &QuestionDecision) {
        let hub = self.hub.upgrade();
        let place = AuditedQuestion {
            agent: hub.as_ref().map_or("", |hub| hub.agent_name()),
            session: Some(self.id.as_str()),
            task: None,
            question: &question.to_string(),
        };
        audit::answered(&self.principal, &place, decision);
    }

    /// Writes the records that wait, unless a write is under way.
    ///
    /// A few bytes are written here, because a thread for them costs more than the write. More bytes are written beside the
    /// work of the session, and so is a sync, during which records are written. Records are collected as long as the agent
    /// has more lines.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if nothing can be written any more.
    fn write(&mut self) -> Result<(), Error> {
        if let Some(error) = self.invalid.take() {
            return Err(error.into());
        }
        while self.writing.is_none() {
            let log = self.log.clone();
            if self.batch.is_empty() {
                // One after the other: a sync covers the records before it.
                if self.syncing.is_none() && std::mem::take(&mut self.wants_sync) {
                    let sync = move || Ok(log.sync()?.number());
                    self.syncing = Some(tokio::task::spawn_blocking(sync));
                }
                return Ok(());
            }
            let bytes: usize = self.batch.iter().map(|line| line.bytes().len()).sum();
            let is_small = bytes <= SMALL_BATCH;
            let has_more = self.agent.as_ref().is_some_and(HostedAgent::has_lines);
            if is_small && has_more && (!self.wants_sync || self.syncing.is_some()) {
                return Ok(());
            }
            let (lines, is_ending) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.is_ending));
            let append = move || match is_ending {
                true => log.append_reserved(&lines),
                false => log.append(&lines),
            };
            if is_small {
                self.input(OwnerInput::Written(append()?.number()));
            } else {
                let append = move || Ok(append()?.number());
                self.writing = Some(tokio::task::spawn_blocking(append));
            }
        }
        Ok(())
    }

    /// Updates the index, beside the work of the session and one update at a time.
    fn index(&mut self) {
        let hub = self.hub.upgrade().filter(|_| self.indexing.is_none());
        let Some((hub, title)) = hub.and_then(|hub| Some((hub, self.to_index.take()?))) else { return };
        let id = self.id.clone();
        self.indexing = Some(tokio::spawn(async move { hub.changed(&id, title).await }));
    }

    /// Ends the process and writes the end of what was open. `end` is the input that ends it.
    async fn close(&mut self, end: OwnerInput<'_>) {
        let agent = self.agent.take();
        self.input(end);
        self.is_ending = true;
        self.close_log().await;
        self.agent = agent;
    }

    /// Writes what waits for the log, and updates the index.
    async fn close_log(&mut self) {
        while self.writing.is_some() || !self.batch.is_empty() {
            if let Err(error) = self.write() {
                return self.fail(error);
            }
            if self.writing.is_none() {
                continue;
            }
            let written = join(self.writing.as_mut()).await;
            self.writing = None;
            match written {
                Ok(end) => self.input(OwnerInput::Written(end)),
                Err(error) => return self.fail(Error::Log(error)),
            }
        }
        if let Some(indexing) = self.indexing.take() {
            let _ = indexing.await;
        }
        self.index();
        if let Some(indexing) = self.indexing.take() {
            let _ = indexing.await;
        }
        if let Some(syncing) = self.syncing.take() {
            // The next one has its error too.
            let _ = syncing.await;
        }
        let log = self.log.clone();
        let synced = tokio::task::spawn_blocking(move || log.sync()).await;
        match synced {
            Ok(Ok(end)) => self.input(OwnerInput::Synced(end.number())),
            Ok(Err(error)) => self.fail(Error::Log(error)),
            // The runtime shuts down.
            Err(_) => {}
        }
    }

    /// Ends the session because its log failed. Records that were accepted stay.
    fn fail(&mut self, error: Error) {
        tracing::error!(session = %self.id, %error, "the log of a session failed");
        let actions = self.owner.fail(&error.to_string());
        // The first one is the cause of those that follow.
        let _ = self.failure.set(Arc::new(error));
        for action in actions {
            if let OwnerAction::Reply { client, line } = action
                && let Some((_, replies)) = self.replies.get(&client)
            {
                let _ = replies.send(line);
            }
        }
    }
}

/// Returns params with the members of a request. Members that the request leaves out stay, such as the MCP servers.
fn with_members(params: &RawValue, given: Value) -> Option<Box<RawValue>> {
    let Value::Object(given) = given else { return None };
    let mut params: Value = serde_json::from_str(params.get()).ok()?;
    params.as_object_mut()?.extend(given);
    to_raw_value(&params).ok()
}

/// Sends a value if it has changed.
fn publish<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| {
        let is_new = *last != value;
        *last = value;
        is_new
    });
}

/// Returns the `sessionId` of a result. One that is there twice has no meaning: the hub reads the first, and most clients the last.
pub(crate) fn session_of(result: &RawValue) -> Option<String> {
    session_id(result).filter(|_: &String| !is_doubled(result.get().as_bytes(), "sessionId"))
}

async fn next_line(agent: &mut Option<HostedAgent>) -> Option<Vec<u8>> {
    match agent {
        Some(agent) => agent.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for a task, if there is one.
async fn join<T>(task: Option<&mut JoinHandle<T>>) -> T {
    let Some(running) = task else { return std::future::pending().await };
    match running.await {
        Ok(output) => output,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        },
    }
}
