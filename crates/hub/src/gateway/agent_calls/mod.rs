//! Agents that call agents: answers the envelopes that the agent of a session addresses to other agents (RFD 0004), and passes
//! their dialogues on (RFD 0005).
//!
//! A delegation becomes a task of the owner of the session, so a call needs the permissions of that principal, and its
//! end survives a restart. The counterpart of the agent has no other state: each request is answered from the store.

mod chain;
mod dialogue;
mod directory;
mod followed_task;
mod message_order;
mod orphans;
mod reply;
mod waiting;
mod withdrawal;

use std::sync::Arc;

use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::dialogue::DialogueRequest;
use duologue_schema::envelope::{
    Ack, Cancel, Delegate, Discover, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeKind,
    EnvelopeParams, Payload, Query, QueryResponse, RequestPayload, TaskStatus, VERSION,
};
use duologue_schema::{
    CancelRequestNotification, Json, Meta, Request as _, RequestId, SessionId, TraceContext, params_fault,
};
use duologue_store::{
    JsonText, NewTask, RegisteredAgent, Store, StoreBatch, StoreChange, StorePage, StoredTask, StoredTaskKey,
    TaskQuery,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::chain::CallChain;
pub(crate) use self::chain::forwarded;
use self::followed_task::FollowedTask;
use self::message_order::MessageOrder;
pub(crate) use self::message_order::MessageTurn;
use self::reply::CallReplies;
use self::waiting::{WaitingTask, WaitingTasks};
use self::withdrawal::{RoutedCallTask, RunningCalls};
use crate::exchange_state::{AGENT_SCHEME, dialogue_of};
use crate::gateway::access::{Action, Principal};
use crate::gateway::dialogue_relay::DIALOGUE;
use crate::gateway::rest::tasks::{SAMPLES, cancel};
use crate::gateway::rest::{ID_RULE, is_id};
use crate::gateway::routing::{self, AgentPattern, RoutedWork};
use crate::gateway::task_output::OutputListener;
use crate::gateway::{GatewayShared, Refusal, RefusalCode, events};
use crate::place_counts::PlaceCounts;
use crate::session_task::AgentCall;

pub(crate) use self::orphans::cancel_orphans;

/// The type of a task that an agent has delegated.
pub(crate) const DELEGATED: &str = "delegate";

/// Answers the calls of all agents until the gateway closes. Tasks that agents wait for go on after the next start.
pub(crate) async fn serve(gateway: Arc<GatewayShared>, mut calls: mpsc::UnboundedReceiver<AgentCall>) {
    let mut closing = gateway.closing.subscribe();
    let (counts, waiting) = (OpenCalls::default(), WaitingTasks::default());
    let calls_running = RunningCalls::default();
    let mut order = MessageOrder::default();
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            Some(_) = running.join_next(), if !running.is_empty() => {}
            // A withdrawal comes behind its call.
            Some(call) = calls.recv() => match RpcMessage::read(&call.line, &Limits::default()) {
                Some(Ok(RpcMessage::Request { id, method, params })) => {
                    let running_call = calls_running.begin(&call.session, &id);
                    let params = params.map_or("{}", RawValue::get).as_bytes();
                    let is_dialogue = method == DialogueRequest::METHOD;
                    let turn = is_dialogue.then(|| order.turn(&call.session, dialogue_of(params)));
                    let (gateway, counts, waiting) = (gateway.clone(), counts.clone(), waiting.clone());
                    running.spawn(answer(gateway, call, counts, waiting, running_call, turn));
                }
                Some(Ok(RpcMessage::Notification { params: Some(params), .. })) => {
                    if let Ok(cancel) = serde_json::from_str::<CancelRequestNotification>(params.get()) {
                        calls_running.withdraw(&call.session, &cancel.request_id);
                    }
                }
                _ => {}
            },
        }
    }
}

/// The delegations that have not ended, by the session of their sender.
type OpenCalls = PlaceCounts<SessionId>;

/// A task of a delegation.
struct Created {
    key: StoredTaskKey,
    /// The estimated duration in milliseconds.
    estimated_ms: Option<u64>,
    /// Present if the sender receives a report.
    output: Option<OutputListener>,
    _waiting: Option<WaitingTask>,
}

/// A task that is to be created for another agent.
struct NewCall {
    to: String,
    id: String,
    kind: &'static str,
    parameters: Value,
    priority: u8,
    timeout_ms: Option<u64>,
    trace: Option<TraceContext>,
    wants_report: bool,
}

/// A request of an agent.
struct Caller {
    gateway: Arc<GatewayShared>,
    agent: String,
    principal: Principal,
    session: SessionId,
    replies: CallReplies,
    waiting: WaitingTasks,
}

async fn answer(
    gateway: Arc<GatewayShared>,
    call: AgentCall,
    counts: OpenCalls,
    waiting: WaitingTasks,
    running: RoutedCallTask,
    turn: Option<MessageTurn>,
) {
    let AgentCall { agent, principal, session, line, replies } = call;
    let Some(Ok(RpcMessage::Request { id, method, params })) = RpcMessage::read(&line, &Limits::default())
    else {
        return;
    };
    let replies = CallReplies::new(session.clone(), replies);
    let principal = gateway.principal(&principal).ok_or_else(|| {
        let why = "the owner of this session has no valid key in the configuration of the server, so its agents call no others";
        EnvelopeError::from(Refusal::new(RefusalCode::NotAuthorized, why))
    });
    if let Some(turn) = turn {
        let principal = match principal {
            Ok(principal) => principal,
            Err(fault) => return replies.answer::<()>(&id, Err(dialogue::refused(fault))),
        };
        let caller = Caller { gateway, agent, principal, session, replies, waiting };
        return caller.dialogue(&id, params, &counts, turn).await;
    }
    let envelope = match read(&method, params) {
        Ok(params) => params,
        Err(fault) => return replies.refuse(&id, None, fault),
    };
    let principal = match principal {
        Ok(principal) => principal,
        Err(fault) => return replies.refuse(&id, Some(&envelope.envelope), fault),
    };
    let caller = Caller { gateway, agent, principal, session, replies, waiting };
    let EnvelopeParams { envelope, meta, .. } = envelope;
    match EnvelopeKind::of_method(&method) {
        Some(EnvelopeKind::Discover) => {
            caller.respond::<Discover>(&id, &envelope, caller.discover(&envelope).await)
        }
        Some(EnvelopeKind::Query) => caller.respond::<Query>(&id, &envelope, caller.query(&envelope).await),
        Some(EnvelopeKind::Cancel) => {
            caller.respond::<Cancel>(&id, &envelope, caller.cancel(&envelope).await)
        }
        Some(EnvelopeKind::Delegate) => caller.delegate(&id, envelope, meta, &counts, &running).await,
        _ => {
            let why = format!("a server passes no `{method}` on to its agents; delegate a task to the agent");
            let fault = EnvelopeError::of(EnvelopeErrorCode::UnknownKind, why);
            caller.replies.refuse(&id, Some(&envelope), fault);
        }
    }
}

/// Reads the params of a request.
fn read(method: &str, params: Option<&RawValue>) -> Result<EnvelopeParams, EnvelopeError> {
    let params: EnvelopeParams =
        serde_json::from_str(params.map_or("{}", RawValue::get)).map_err(|error| {
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, params_fault(method, &error))
        })?;
    if params.envelope.v != VERSION {
        let why = format!("version {} of envelopes is not supported, only {VERSION}", params.envelope.v);
        return Err(EnvelopeError::of(EnvelopeErrorCode::UnsupportedVersion, why));
    }
    Ok(params)
}

impl From<Refusal> for EnvelopeError {
    fn from(refusal: Refusal) -> Self {
        let code = EnvelopeErrorCode::from(refusal.code.as_str());
        EnvelopeError::of(code, refusal.message).retryable(refusal.code.is_retryable())
    }
}

impl Caller {
    fn respond<P: RequestPayload>(
        &self,
        id: &RequestId,
        request: &Envelope,
        outcome: Result<P::Response, EnvelopeError>,
    ) {
        match outcome {
            Ok(payload) => self.replies.respond(id, request, payload),
            Err(fault) => self.replies.refuse(id, Some(request), fault),
        }
    }

    /// Answers a query about the state of a task. Other queries are refused: the sessions in which messages are answered
    /// have no place in a chain of calls.
    async fn query(&self, request: &Envelope) -> Result<QueryResponse, EnvelopeError> {
        let query: Query = open(request)?;
        if query.domain.as_deref() != Some(TaskStatus::DOMAIN) {
            let why = format!(
                "a server passes queries of the domain `{}` on to its agents, and no others; delegate the question as a task",
                TaskStatus::DOMAIN
            );
            return Err(EnvelopeError::of(EnvelopeErrorCode::UnknownDomain, why));
        }
        let task = self.own_task(request).await?;
        let id = request.reference.clone().unwrap_or_else(|| task.key.task.as_str().into());
        let mut status = TaskStatus::new(id, task.state.clone()).updated_ms(task.updated);
        status.error = task.error.as_ref().map(reply::fault);
        let data = Json::new(&status).map_err(|error| EnvelopeError::internal(error.to_string()))?;
        Ok(QueryResponse::new(task.state.as_str()).data(data))
    }

    /// Cancels a task that this agent has delegated.
    async fn cancel(&self, request: &Envelope) -> Result<Ack, EnvelopeError> {
        let _: Cancel = open(request)?;
        let cancelled = match self.own_task(request).await {
            Ok(task) => {
                let (time, key) = (self.gateway.time(), task.key.clone());
                let cancelled = self.gateway.in_store(move |store| cancel(store, time, &key)).await;
                cancelled.and_then(|cancelled| cancelled).map_err(EnvelopeError::from)
            }
            Err(fault) => Err(fault),
        };
        match cancelled {
            Ok((task, false)) if task.state.is_final() => {
                let why = format!("the task has ended already: {}", task.state.as_str());
                let code = RefusalCode::AlreadyFinished;
                Ok(Ack::new(false).reason(code.as_str()).error(Refusal::new(code, why)))
            }
            Ok((task, is_new)) => {
                if is_new {
                    report_cancelled(&self.principal.id, &task);
                }
                Ok(Ack::new(true))
            }
            Err(fault) => Ok(Ack::new(false).reason(fault.code.as_str()).error(fault)),
        }
    }

    /// Returns the task that a message refers to, if this agent has delegated it.
    async fn own_task(&self, request: &Envelope) -> Result<StoredTask, EnvelopeError> {
        let not_found = || {
            let why = "there is no delegation of yours with this id";
            EnvelopeError::of(EnvelopeErrorCode::NotFound, why)
        };
        let reference = request.reference.as_ref().ok_or_else(not_found)?;
        let mut query = TaskQuery::default();
        (query.owner, query.id) = (Some(self.principal.id.to_string()), Some(reference.as_str().to_owned()));
        query.newest_first = true;
        let agent = AgentPattern::read(request.to.as_str()).map_err(EnvelopeError::from)?;
        query.agent = agent.exact().map(str::to_owned);
        let read = move |store: &dyn Store| {
            StorePage::all(|offset| {
                query.offset = offset;
                store.tasks(&query)
            })
        };
        let found = self.gateway.in_store(read).await?;
        let is_own = |task: &StoredTask| task.from.name == self.agent && task.kind == DELEGATED;
        found.into_iter().find(is_own).ok_or_else(not_found)
    }

    /// Creates the task of a delegation, answers with its `ack`, and sends its end when it has ended, if the agent wants it.
    async fn delegate(
        &self,
        id: &RequestId,
        request: Envelope,
        meta: Option<Meta>,
        counts: &OpenCalls,
        running: &RoutedCallTask,
    ) {
        let limit = self.gateway.config.limits.open_calls;
        let opened = open::<Delegate>(&request).and_then(|delegate| {
            // One without a report takes a place too: it is work of this session.
            let place = counts.take(&self.session, limit).ok_or_else(|| {
                EnvelopeError::overloaded(format!(
                    "call limit reached (the session has {limit} tasks of other agents); retry when one has ended, or raise `limits.open_calls`"
                ))
            });
            place.map(|place| (delegate, place))
        });
        let (wants_report, created, _place) = match opened {
            Ok((delegate, place)) => {
                let wants_report = delegate.wants_report();
                let created = match NewCall::delegation(&request, &delegate, meta.as_ref()) {
                    Ok(call) => self.create(call).await,
                    Err(error) => Err(EnvelopeError::internal(error.to_string())),
                };
                (wants_report, created, Some(place))
            }
            Err(fault) => (false, Err(fault), None),
        };
        let Created { key, estimated_ms, output, _waiting } = match created {
            Ok(created) => created,
            Err(fault) => return self.replies.refuse(id, Some(&request), fault),
        };
        let (gateway, replies) = (&self.gateway, &self.replies);
        let task = FollowedTask { gateway, key, request: &request, replies, wants_report, output, running };
        if running.is_withdrawn() {
            task.cancel().await;
            let fault = EnvelopeError::of(EnvelopeErrorCode::Cancelled, "the call was withdrawn");
            return replies.refuse(id, Some(&request), fault);
        }
        let mut ack = Ack::new(true);
        ack.estimated_ms = estimated_ms;
        replies.respond(id, &request, ack);
        task.follow().await;
    }

    /// Creates a task.
    async fn create(&self, call: NewCall) -> Result<Created, EnvelopeError> {
        if self.gateway.is_draining() {
            let why = "the server is being stopped; retry later";
            return Err(EnvelopeError::of(EnvelopeErrorCode::Unreachable, why));
        }
        if !is_id(&call.id) {
            let why = format!("the id {:?} cannot be that of a task: {ID_RULE}", call.id);
            return Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, why));
        }
        let pattern = AgentPattern::read(&call.to)?;
        let (chain, parent) = self.chain().await?;
        // Nobody reads the end of a task without a report, and it outlives the one that calls.
        let parent = parent.filter(|_| call.wants_report);
        let waits = parent.is_some();
        let (waiting, session) = (self.waiting.clone(), self.session.clone());
        let (gateway, principal, agent) = (self.gateway.clone(), self.principal.clone(), self.agent.clone());
        let (time, limit) = (gateway.time(), gateway.config.limits.call_depth);
        let owner = principal.id.to_string();
        let work = RoutedWork { action: Action::Task, principal: owner, id: Some(call.id.clone()) };
        let turn = match pattern.exact() {
            Some(_) => None,
            None => gateway.routing.begin(&work).await,
        };
        let create = move |store: &dyn Store| -> duologue_store::Result<Result<_, EnvelopeError>> {
            let _turn = turn;
            let is_allowed = |agent: &str| gateway.may(&principal, Action::Task, agent);
            let chosen = match pattern.exact() {
                Some(agent) if is_allowed(agent) && store.agent(agent)?.is_some() => Ok(agent.to_owned()),
                Some(_) => Err(Refusal::not_found("agent")),
                None => {
                    let fits = |agent: &RegisteredAgent| {
                        is_allowed(&agent.id)
                            && gateway.unable(&agent.id, Some(agent), Action::Task).is_none()
                            && !chain.contains(&agent.id)
                    };
                    routing::choose(store, &pattern, None, &work, fits)?
                }
            };
            let target = match chosen {
                Ok(target) => target,
                Err(refusal) => return Ok(Err(refusal.into())),
            };
            let entry = store.agent(&target)?;
            if let Some(refusal) = gateway.unable(&target, entry.as_ref(), Action::Task) {
                return Ok(Err(refusal.into()));
            }
            let key = StoredTaskKey::new(&*principal.id, &target, &*call.id);
            let is_dialogue = call.kind == DIALOGUE;
            if is_dialogue {
                if let Some(task) = store.task(&key)? {
                    let open = dialogue::check_open(&task, &agent, &session);
                    return Ok(open.map(|()| Created {
                        key,
                        estimated_ms: None,
                        output: None,
                        _waiting: None,
                    }));
                }
                if let Err(fault) = dialogue::check_target(&gateway, &target) {
                    return Ok(Err(fault));
                }
            }
            if let Err(fault) = chain.check(&target, limit) {
                return Ok(Err(fault));
            }
            // The places of an agent that takes its work over REST are not known.
            let places = gateway.hosted(&target).filter(|_| waits).map(|entry| entry.config.max_tasks);
            let sharer = gateway.config.has_principals().then_some(&principal.id);
            let waiting =
                places.map(|places| waiting.begin(&agent, &session, sharer, &target, places)).transpose();
            let waiting = match waiting {
                Ok(waiting) => waiting,
                Err(fault) => return Ok(Err(fault)),
            };
            // From before its begin on.
            let limit = gateway.config.limits.result_bytes;
            let has_output = call.wants_report && !is_dialogue;
            let output = has_output.then(|| gateway.outputs.listen(&key, limit));
            let mut metadata = chain.metadata(parent.as_ref());
            if is_dialogue {
                metadata["duologue"]["session"] = json!(session);
            }
            // The processes of agents elsewhere survive a restart of this server, and a repeated message is taken once.
            let survives = is_dialogue && [&agent, &target].iter().all(|agent| gateway.is_remote(agent));
            let mut task = NewTask::new(key.clone(), agent, call.kind, JsonText::of(&call.parameters)?);
            task.priority = call.priority;
            task.retry_safe = survives || gateway.rest_agent(&target).is_some();
            task.timeout_ms = call.timeout_ms;
            task.metadata = JsonText::of(&metadata)?;
            task.trace = call.trace.map(|trace| trace.traceparent().to_owned());
            let duration = store.median_duration(&target, call.kind, SAMPLES)?;
            store.apply(StoreBatch::new(time).with(StoreChange::CreateTask(task)))?;
            let estimated_ms = duration.and_then(|duration| u64::try_from(duration.as_millis()).ok());
            Ok(Ok(Created { key, estimated_ms, output, _waiting: waiting }))
        };
        let created = self.gateway.in_store(create).await??;
        events::task_created(&self.principal.id, &created.key.agent, &created.key.task);
        Ok(created)
    }

    /// Returns the chain of calls that this agent stands in, and the task whose session this is.
    async fn chain(&self) -> Result<(CallChain, Option<StoredTaskKey>), EnvelopeError> {
        let mut query = TaskQuery::default();
        query.owner = Some(self.principal.id.to_string());
        (query.session, query.ended) = (Some(self.session.as_str().to_owned()), Some(false));
        let found = self.gateway.in_store(move |store| store.tasks(&query)).await?;
        let task = found.items.into_iter().next();
        let chain = CallChain::of(task.as_ref().map(|task| &task.metadata), &self.agent);
        Ok((chain, task.map(|task| task.key)))
    }
}

/// Reads the payload of an envelope.
fn open<P: Payload>(envelope: &Envelope) -> Result<P, EnvelopeError> {
    envelope.clone().open().map(|envelope| envelope.payload)
}

impl NewCall {
    fn delegation(request: &Envelope, delegate: &Delegate, meta: Option<&Meta>) -> serde_json::Result<Self> {
        Ok(NewCall {
            to: request.to.as_str().to_owned(),
            id: request.id.as_str().to_owned(),
            kind: DELEGATED,
            parameters: parameters(delegate)?,
            priority: delegate.priority.level(),
            timeout_ms: delegate.deadline_ms,
            trace: meta.and_then(Meta::trace_context),
            wants_report: delegate.wants_report(),
        })
    }
}

/// Returns the parameters of a task for a delegation.
fn parameters(delegate: &Delegate) -> serde_json::Result<Value> {
    let mut parameters = json!({"prompt": delegate.task});
    if !delegate.context.is_empty() {
        parameters["context"] = serde_json::to_value(&delegate.context)?;
    }
    if !delegate.attachments.is_empty() {
        parameters["attachments"] = serde_json::to_value(&delegate.attachments)?;
    }
    Ok(parameters)
}

/// Reports that a task was cancelled, and its end if that is the end.
fn report_cancelled(principal: &str, task: &StoredTask) {
    events::task_cancelled(principal, &task.key);
    if task.state.is_final() {
        events::task_completed(&task.key, task.state.as_str());
    }
}

/// Returns the address of an agent.
fn address(agent: &str) -> String {
    format!("{AGENT_SCHEME}{agent}")
}
