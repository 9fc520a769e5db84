//! A dialogue of two agents of the server: passes its messages between their sessions (RFD 0005).
//!
//! The dialogue is a task of the agent that is spoken to, so permissions, places, chains of calls and restarts are those of tasks.
//! The text of a message is not changed, so its signature is checked by the agent that receives it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_client::exchange::limits::{DIALOGUE_META_BYTES, MESSAGE_BYTES};
use duologue_client::{Client, Connection, Error as ClientError, Extensions, Session};
use duologue_rpc::{Error as PeerError, Lock as _};
use duologue_schema::dialogue::{DialogueMessage, DialogueRequest, DialogueResponse, MessageType};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, TaskState};
use duologue_schema::{
    DuologueCapabilities, Error as RpcError, ErrorCode, Json, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, serialized_len,
};
use duologue_store::{StoredTask, StoredTaskKey, TaskFailure};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::exchange_state::AGENT_SCHEME;
use crate::gateway::agent_calls::MessageTurn;
use crate::gateway::agent_turn::{WorkSession, connect};
use crate::gateway::work_turn::WorkEnd;
use crate::gateway::{GatewayShared, failure};
use crate::hub::Hub;
use crate::place_counts::PlaceCounts;
use crate::session_task::ClientRole;

/// The type of a task that is a dialogue. Its id is that of the dialogue.
pub(crate) const DIALOGUE: &str = "dialogue";
/// The time in which an agent confirms a message. Its sender sends it again after that.
const RECEIPT: Duration = Duration::from_secs(30);
/// The time between a termination, or the end of the server, and that of the dialogue. An `error` message can follow.
const ENDING: Duration = Duration::from_secs(1);

/// The time in which the first message of a dialogue comes behind its begin. The agent that has begun it sends it again until then.
const FIRST_MESSAGE: Duration = Duration::from_secs(120);

/// The time between two looks if the session of the agent that has begun a dialogue is open.
const LOOK: Duration = Duration::from_secs(60);

/// Limit on the messages of one agent that wait. Each has at most [`MESSAGE_BYTES`].
const WAITING_MESSAGES: usize = 16;

/// A message of an agent, and the place for the response to it.
pub(crate) struct RelayedMessage {
    pub(crate) request: DialogueRequest,
    pub(crate) response: oneshot::Sender<Result<DialogueResponse, RpcError>>,
}

pub(crate) type RelaySender = mpsc::Sender<RelayedMessage>;
/// The messages of one agent, in the order of their arrival.
pub(crate) type RelayReceiver = mpsc::Receiver<RelayedMessage>;
pub(crate) type RelayChannel = (RelaySender, RelayReceiver);

pub(crate) fn relay_channel() -> RelayChannel {
    mpsc::channel(WAITING_MESSAGES)
}

/// The members of a message that the server reads.
#[derive(Debug, Deserialize)]
pub(crate) struct RelayedHead {
    pub(crate) session_id: String,
    pub(crate) sender_id: String,
    pub(crate) recipient_id: String,
    message_type: MessageType,
}

/// Lets a client take the messages of an agent in the order of their arrival.
pub(crate) fn relaying(client: Client, sender: RelaySender) -> Client {
    let extensions = Extensions::new().on_request(move |_, request: DialogueRequest| {
        // On the reader, in the order of the messages.
        let responded = enqueue(&sender, request);
        async move { responded?.await.unwrap_or_else(|_| Err(has_ended())) }
    });
    let advertise = |mut capabilities: duologue_schema::ClientCapabilities| {
        DuologueCapabilities::new().dialogue(true).write_to(&mut capabilities.meta);
        capabilities
    };
    client.extensions(extensions).advertise(advertise)
}

/// Gives a message to a relay in its turn, and returns the response.
pub(crate) async fn pass_on(
    relay: &RelaySender,
    request: DialogueRequest,
    turn: MessageTurn,
) -> Result<DialogueResponse, RpcError> {
    let responded = enqueue(relay, request);
    drop(turn);
    responded?.await.unwrap_or_else(|_| Err(has_ended()))
}

/// Adds a message to those that wait, and returns the receiver of the response.
fn enqueue(
    relay: &RelaySender,
    request: DialogueRequest,
) -> Result<oneshot::Receiver<Result<DialogueResponse, RpcError>>, RpcError> {
    head_of(&request)?;
    let (response, responded) = oneshot::channel();
    match relay.try_send(RelayedMessage { request, response }) {
        Err(TrySendError::Full(_)) => {
            let why = format!(
                "{WAITING_MESSAGES} messages of the dialogue wait for the other agent, which is the limit; send this one again when one has its receipt"
            );
            Err(rpc_error(&EnvelopeErrorCode::Overloaded, why))
        }
        // Without a relay nobody responds.
        Ok(()) | Err(TrySendError::Closed(_)) => Ok(responded),
    }
}

/// Returns the error of a request with the code of an envelope's error.
pub(crate) fn rpc_error(code: &EnvelopeErrorCode, why: impl Into<Cow<'static, str>>) -> RpcError {
    RpcError::new(code.rpc_code(), why)
}

/// The ways to the two agents of a dialogue, while a worker relays.
pub(crate) struct DialogueRelay {
    /// To the agent that is spoken to.
    pub(crate) to_target: RelaySender,
    /// To the agent that has begun the dialogue.
    pub(crate) to_caller: RelaySender,
    /// The agent that has begun the dialogue, and its session.
    caller: (String, String),
}

impl DialogueRelay {
    /// Returns true for the dialogue of an agent in a session.
    pub(crate) fn is_of(&self, agent: &str, session: &str) -> bool {
        (&*self.caller.0, &*self.caller.1) == (agent, session)
    }
}

/// The dialogues that have a worker.
#[derive(Default)]
pub(crate) struct DialogueRelays {
    open: Mutex<HashMap<StoredTaskKey, Arc<DialogueRelay>>>,
    changed: Notify,
    /// The dialogues that a call of a session follows, with those that wait for a worker.
    pub(crate) followed: PlaceCounts<(StoredTaskKey, SessionId)>,
}

impl DialogueRelays {
    /// Waits for the worker of a dialogue.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub(crate) async fn relay(&self, key: &StoredTaskKey) -> Arc<DialogueRelay> {
        loop {
            let changed = self.changed.notified();
            if let Some(relay) = self.find(key) {
                return relay;
            }
            changed.await;
        }
    }

    /// Returns the relay of a dialogue.
    pub(crate) fn find(&self, key: &StoredTaskKey) -> Option<Arc<DialogueRelay>> {
        self.open.lock_unpoisoned().get(key).cloned()
    }

    fn set(&self, key: &StoredTaskKey, relay: Option<Arc<DialogueRelay>>) {
        match relay {
            Some(relay) => self.open.lock_unpoisoned().insert(key.clone(), relay),
            None => self.open.lock_unpoisoned().remove(key),
        };
        self.changed.notify_waiters();
    }
}

/// The work of a worker on a dialogue.
pub(crate) struct DialogueWork {
    relay: BoxFuture<'static, WorkEnd>,
    end: Option<WorkEnd>,
    cancelled: Arc<Notify>,
    is_terminated: watch::Receiver<bool>,
    _place: RelayPlace,
}

/// The entry of a dialogue in the list of relays, until it is dropped.
struct RelayPlace(Arc<GatewayShared>, StoredTaskKey);

impl Drop for RelayPlace {
    fn drop(&mut self) {
        self.0.relays.set(&self.1, None);
    }
}

impl DialogueWork {
    /// Returns the session of the agent that has begun a dialogue, or `None` for another task.
    pub(crate) fn session_of_caller(task: &StoredTask) -> Option<String> {
        let metadata: Value = task.metadata.parse().ok().filter(|_| task.kind == DIALOGUE)?;
        metadata["duologue"]["session"].as_str().map(str::to_owned)
    }

    /// Opens the way to the agent that has begun the dialogue, unless the server ends. `work` is the session of its recipient.
    pub(crate) async fn begin(
        gateway: &Arc<GatewayShared>,
        task: &StoredTask,
        work: &mut WorkSession,
        channel: RelayChannel,
    ) -> Result<Self, WorkEnd> {
        tokio::select! {
            begun = DialogueWork::open(gateway, task, work, channel) => begun,
            end = server_ends(gateway) => Err(failed(failure::UNREACHABLE, end.why, false)),
        }
    }

    async fn open(
        gateway: &Arc<GatewayShared>,
        task: &StoredTask,
        work: &mut WorkSession,
        (to_caller, relayed): RelayChannel,
    ) -> Result<Self, WorkEnd> {
        let session = DialogueWork::session_of_caller(task).unwrap_or_default();
        let (to_target, of_caller) = relay_channel();
        let target = gateway.hosted(&task.key.agent);
        let target = target.and_then(|it| it.hub.agent_presence(&task.key.owner, work.session.id().as_str()));
        let caller = CallerSide::open(gateway, task, &session, to_target.clone()).await;
        let caller = caller.map_err(|why| failed(failure::UNREACHABLE, why, false))?;
        let is_repeated = task.attempts > 1;
        for session in [&caller.session, &work.session] {
            // A request brings the agent's session back behind a restart. Without envelopes it cannot be sent.
            if is_repeated && let Err(error) = session.peer_agent().ping().await {
                // One whose context is lost cannot go on.
                if !error.is_retryable() {
                    return Err(failed(failure::UNREACHABLE, error.fault().message, false));
                }
                tracing::debug!(dialogue = task.key.task, %error, "a session of a dialogue has not answered");
            }
        }
        let address = |agent: &str| format!("{AGENT_SCHEME}{agent}");
        let (one, other) = (address(&task.from.name), address(&task.key.agent));
        let terminated = Arc::new(watch::Sender::new(false));
        let way = |session: &Session, connection: &Connection, from: &str, to: &str, has_begun| RelayWay {
            expected: ExpectedMembers {
                dialogue: task.key.task.clone(),
                from: from.to_owned(),
                to: to.to_owned(),
            },
            session: session.clone(),
            connection: connection.clone(),
            terminated: terminated.clone(),
            has_begun,
        };
        let forth = way(&work.session, work.connection(), &one, &other, is_repeated);
        let back = way(&caller.session, &caller.connection, &other, &one, true);
        let is_remote = work.is_remote;
        let is_terminated = terminated.subscribe();
        let mut ending = is_terminated.clone();
        let server = gateway.clone();
        let (owner, id) = (task.key.owner.clone(), session.clone());
        let relay = async move {
            // The sessions of a server that is stopped end too, and the dialogue can go on behind its start.
            let is_open = || server.is_closing() || caller.hub.is_live(&owner, &id);
            let ended = tokio::select! {
                () = until_closed(is_open) => {
                    caller.connection.close().await;
                    return ended_as(TaskState::Cancelled);
                }
                end = forth.pass(of_caller) => Some(end),
                end = back.pass(relayed) => Some(end),
                end = server_ends(&server) => Some(end),
                // Another process knows nothing of the dialogue.
                () = agent_ends(target, is_repeated), if !is_remote => {
                    Some(RelayEnd { why: "the process of the agent has ended".to_owned(), is_lost: false })
                }
                () = async { let _ = ending.wait_for(|is_over| *is_over).await; sleep(ENDING).await } => None,
            };
            caller.connection.close().await;
            match ended.filter(|_| !*ending.borrow()) {
                None => ended_as(TaskState::Completed),
                Some(end) => failed(failure::AGENT_FAILED, end.why, is_remote && end.is_lost),
            }
        };
        let place = RelayPlace(gateway.clone(), task.key.clone());
        let caller = (task.from.name.clone(), session);
        let relay_of_caller = DialogueRelay { to_target, to_caller, caller };
        gateway.relays.set(&task.key, Some(Arc::new(relay_of_caller)));
        Ok(DialogueWork {
            relay: relay.boxed(),
            end: None,
            cancelled: Arc::default(),
            is_terminated,
            _place: place,
        })
    }

    /// Relays until the dialogue has ended.
    ///
    /// # Cancel safety
    ///
    /// No message is lost if the future is dropped and the method is called again.
    pub(crate) async fn run(&mut self) {
        if self.end.is_none() {
            self.end = Some(tokio::select! {
                end = &mut self.relay => end,
                () = self.cancelled.notified() => {
                    let is_over = *self.is_terminated.borrow();
                    ended_as(if is_over { TaskState::Completed } else { TaskState::Cancelled })
                }
            });
            self.relay = pending().boxed();
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.notify_one();
    }

    /// Returns the end.
    pub(crate) async fn end(mut self) -> WorkEnd {
        self.run().await;
        self.end
            .take()
            .unwrap_or_else(|| failed(failure::INTERNAL, "the dialogue has no end".to_owned(), false))
    }
}

/// The session of the agent that has begun a dialogue. It is not closed with the dialogue.
struct CallerSide {
    hub: Hub,
    connection: Connection,
    session: Session,
}

impl CallerSide {
    /// Joins the session of the agent. Behind a restart of the server it waits until the agent has attached again.
    async fn open(
        gateway: &GatewayShared,
        task: &StoredTask,
        session: &str,
        sender: RelaySender,
    ) -> Result<Self, String> {
        let agent = &task.from.name;
        let entry =
            gateway.hosted(agent).ok_or_else(|| format!("the agent {agent:?} is no agent of the server"))?;
        let limit = Duration::from_secs(gateway.config.limits.attachment_seconds);
        let mut online = entry.online.subscribe();
        let is_online = timeout(limit, online.wait_for(|online| *online)).await;
        is_online
            .map_err(|_| {
                format!("the agent {agent:?} was not online within {limit:?} (`limits.attachment_seconds`)")
            })?
            .map_err(|error| error.to_string())?;
        let known = entry.hub.sessions_of(&task.key.owner.as_str().into()).await;
        let known = known.map_err(|error| error.to_string())?.into_iter().find(|known| known.id == session);
        let folder = known.ok_or_else(|| format!("the session of {agent:?} is erased"))?.cwd;
        // The questions of the session are for its user.
        let client = Client::new(()).on(async |_, _: RequestPermissionRequest| {
            pending::<Result<RequestPermissionResponse, _>>().await
        });
        let join = async {
            let connection =
                relaying(client, sender).connect(connect(&entry, &task.key.owner, ClientRole::Relay)).await?;
            let session = connection.session_in(folder).resume(session).await?;
            Ok::<_, ClientError>(CallerSide { hub: entry.hub.clone(), connection, session })
        };
        join.await.map_err(|error| error.to_string())
    }
}

/// The way of the messages of one agent to the other.
struct RelayWay {
    expected: ExpectedMembers,
    session: Session,
    connection: Connection,
    terminated: Arc<watch::Sender<bool>>,
    /// True if the receiver has taken a message of the dialogue already.
    has_begun: bool,
}

/// The reason for which no more messages can be passed on.
#[derive(Debug)]
struct RelayEnd {
    why: String,
    /// True if the receiver may come back.
    is_lost: bool,
}

impl RelayWay {
    /// Passes messages on, each after the response to the one before. Returns if the receiver is lost, or refuses the first one.
    async fn pass(&self, mut messages: RelayReceiver) -> RelayEnd {
        let mut has_begun = self.has_begun;
        let mut has_message = has_begun;
        loop {
            let message = tokio::select! {
                message = next_message(&mut messages, has_message) => message,
                error = self.connection.closed() => {
                    return RelayEnd { why: error.to_string(), is_lost: true };
                }
            };
            has_message = true;
            let RelayedMessage { mut request, response } = match message {
                Ok(message) => message,
                Err(end) => return end,
            };
            let head = match self.expected.check(&request) {
                Ok(head) => head,
                Err(error) => {
                    let _ = response.send(Err(error));
                    continue;
                }
            };
            request.session_id = self.session.id().clone();
            let responded = self.connection.peer().request(&request).detach().timeout(RECEIPT).await;
            let (result, end) = match responded {
                Ok(result) => {
                    has_begun |= result.receipt.is_some();
                    let refusal = result.error.as_ref().filter(|_| !has_begun).and_then(final_refusal);
                    (Ok(result), refusal.map(|why| RelayEnd { why, is_lost: false }))
                }
                Err(PeerError::Response(error)) => {
                    let data: Value = serde_json::to_value(&error).unwrap_or_default();
                    let is_lost =
                        matches!(data["data"]["code"].as_str(), Some("interrupted" | "session_ended"))
                            || error.code == ErrorCode::RESOURCE_NOT_FOUND;
                    let ends = is_lost || error.code == ErrorCode::METHOD_NOT_FOUND;
                    let end = ends.then(|| RelayEnd { why: error.message.to_string(), is_lost });
                    (Err(error), end)
                }
                Err(error @ PeerError::Timeout { .. }) => {
                    (Err(rpc_error(&EnvelopeErrorCode::Timeout, error.to_string())), None)
                }
                Err(error) => {
                    let why = error.to_string();
                    let end = RelayEnd { why: why.clone(), is_lost: true };
                    (Err(rpc_error(&EnvelopeErrorCode::Unreachable, why)), Some(end))
                }
            };
            let is_end = head.message_type == MessageType::Termination
                && result.as_ref().is_ok_and(|result| result.receipt.is_some());
            // An agent that is gone needs no response.
            let _ = response.send(limited(result));
            if let Some(end) = end {
                return end;
            }
            if is_end {
                self.terminated.send_replace(true);
            }
        }
    }
}

/// Waits until the agent of a session has ended. Behind a restart it comes back first.
async fn agent_ends(presence: Option<watch::Receiver<bool>>, is_repeated: bool) {
    let Some(mut presence) = presence else { return pending().await };
    if is_repeated {
        let _ = presence.wait_for(|is_there| *is_there).await;
    }
    // A session that has ended has no agent.
    let _ = presence.wait_for(|is_there| !*is_there).await;
}

/// Waits until a session is closed. A session that has no other client is closed after some time, and no message shows that to a relay.
async fn until_closed(is_open: impl Fn() -> bool) {
    loop {
        sleep(LOOK).await;
        if !is_open() {
            return;
        }
    }
}

/// Waits for the next message. The first one comes in time, or the agent that has begun the dialogue is gone.
async fn next_message(messages: &mut RelayReceiver, has_message: bool) -> Result<RelayedMessage, RelayEnd> {
    tokio::select! {
        message = messages.recv() => match message {
            Some(message) => Ok(message),
            None => pending().await,
        },
        () = sleep(FIRST_MESSAGE), if !has_message => {
            let why = format!("the agent that has begun the dialogue sent no message within {FIRST_MESSAGE:?}; begin it again");
            Err(RelayEnd { why, is_lost: false })
        }
    }
}

/// The members that every message on a way has.
struct ExpectedMembers {
    dialogue: String,
    /// The addresses of the agents.
    from: String,
    to: String,
}

impl ExpectedMembers {
    /// Checks that a message is of this dialogue and of its sender. Nobody else than the agent itself has its session.
    fn check(&self, request: &DialogueRequest) -> Result<RelayedHead, RpcError> {
        let head: RelayedHead = head_of(request)?;
        let is_own =
            head.session_id == self.dialogue && head.sender_id == self.from && head.recipient_id == self.to;
        if is_own {
            return Ok(head);
        }
        let why = format!(
            "`session_id`, `sender_id` and `recipient_id` have to be {:?}, {:?} and {:?} in this dialogue",
            self.dialogue, self.from, self.to
        );
        Err(rpc_error(&EnvelopeErrorCode::NotAuthorized, why))
    }
}

/// Waits until the server ends. The sessions end with it, and no message shows that to a relay which waits for one.
async fn server_ends(gateway: &GatewayShared) -> RelayEnd {
    let _ = gateway.closing.subscribe().wait_for(|closing| *closing).await;
    sleep(ENDING).await;
    RelayEnd { why: "the server ends".to_owned(), is_lost: true }
}

/// Returns a response, or the error in the place of one that is larger than a message: it would be in the logs of both sessions.
fn limited(result: Result<DialogueResponse, RpcError>) -> Result<DialogueResponse, RpcError> {
    let length = match &result {
        Ok(response) => serialized_len(response, MESSAGE_BYTES),
        Err(error) => serialized_len(error, MESSAGE_BYTES),
    };
    if length.is_some() {
        return result;
    }
    let why = format!(
        "the message was received, and the response of the other agent has over {MESSAGE_BYTES} bytes, which is the limit; send nothing again, and let the agent answer in a message"
    );
    Err(rpc_error(&EnvelopeErrorCode::Internal, why))
}

/// Returns the text of a refusal after which the same message would be refused again.
fn final_refusal(error: &Json) -> Option<String> {
    let content = error.parse::<DialogueMessage>().ok()?.content.error()?;
    (!content.is_retryable()).then(|| content.error_message.to_string())
}

/// Reads the members of a message that the server checks. A message that its receiver would refuse for its size is not
/// passed on: it would be in the logs of both sessions.
pub(crate) fn head_of(request: &DialogueRequest) -> Result<RelayedHead, RpcError> {
    let meta = request.meta.as_ref().map_or(0, |meta| meta.as_json().get().len());
    let sizes =
        [("message", request.message.get().len(), MESSAGE_BYTES), ("_meta", meta, DIALOGUE_META_BYTES)];
    if let Some((name, bytes, limit)) = sizes.into_iter().find(|(_, bytes, limit)| bytes > limit) {
        let why = format!("`{name}` of a dialogue has {bytes} bytes, at most {limit} are allowed; send less");
        return Err(RpcError::invalid_params(why));
    }
    request.message.parse().map_err(|error| RpcError::invalid_params(format!("`message`: {error}")))
}

/// Returns the refusal of a message of a dialogue that has ended.
pub(crate) fn has_ended() -> RpcError {
    rpc_error(&EnvelopeErrorCode::NotFound, "the dialogue has ended; begin one with another id")
}

fn ended_as(state: TaskState) -> WorkEnd {
    WorkEnd { state, result: None, error: None, is_lost: false }
}

fn failed(code: &str, why: String, is_lost: bool) -> WorkEnd {
    let fault = EnvelopeError::of(EnvelopeErrorCode::from(code), why.as_str());
    let error = Some(TaskFailure::new(code, why, fault.retryable));
    WorkEnd { state: TaskState::Failed, result: None, error, is_lost }
}

#[cfg(test)]
mod tests {
    use duologue_schema::Meta;
    use serde_json::json;

    use super::*;

    fn request(dialogue: &str, from: &str, to: &str, text: &str) -> DialogueRequest {
        let message = json!({
            "session_id": dialogue, "sender_id": from, "recipient_id": to, "message_type": "inform", "content": text,
        });
        DialogueRequest::new("s", Json::from(message))
    }

    #[test]
    fn a_way_takes_messages_of_its_own_dialogue_and_sender_alone() {
        let [ours, theirs, other] = ["agent://a", "agent://b", "agent://c"];
        let expected = ExpectedMembers { dialogue: "d1".into(), from: ours.into(), to: theirs.into() };
        for dialogue in ["d1", "d2", ""] {
            for from in [ours, theirs, other, "AGENT://a", "agent://a/x"] {
                for to in [ours, theirs, other, "agent://*?capability=x"] {
                    let checked = expected.check(&request(dialogue, from, to, ""));
                    let is_own = (dialogue, from, to) == ("d1", ours, theirs);
                    assert_eq!(checked.is_ok(), is_own, "{dialogue} {from} {to}");
                    if let Err(error) = checked {
                        assert_eq!(error.code, EnvelopeErrorCode::NotAuthorized.rpc_code());
                    }
                }
            }
        }
        // Readers that take the first and the last of two members would see different senders.
        let twice = r#"{"session_id":"d1","sender_id":"agent://c","sender_id":"agent://a","recipient_id":"agent://b","message_type":"inform"}"#;
        let twice = DialogueRequest::new("s", serde_json::from_str::<Json>(twice).unwrap());
        assert!(expected.check(&twice).is_err());
    }

    #[test]
    fn a_message_that_is_too_large_is_not_passed_on() {
        let empty = request("d1", "agent://a", "agent://b", "").message.get().len();
        let sized = |bytes: usize| request("d1", "agent://a", "agent://b", &"x".repeat(bytes - empty));
        assert!(head_of(&sized(MESSAGE_BYTES)).is_ok());
        let error = head_of(&sized(MESSAGE_BYTES + 1)).unwrap_err();
        let expected = "`message` of a dialogue has 1048577 bytes, at most 1048576 are allowed; send less";
        assert_eq!((error.code, &*error.message), (ErrorCode::INVALID_PARAMS, expected));
        let mut large = sized(empty);
        large.meta =
            Some(serde_json::from_value::<Meta>(json!({"x": "x".repeat(DIALOGUE_META_BYTES)})).unwrap());
        assert!(head_of(&large).unwrap_err().message.contains("`_meta` of a dialogue"));
    }

    #[test]
    fn a_response_that_is_too_large_is_not_passed_on() {
        let text = |bytes: usize| "x".repeat(bytes);
        let refused = |bytes| Ok(DialogueResponse::rejected(Json::from(json!({"content": text(bytes)}))));
        let failed = |bytes| Err(RpcError::internal(text(bytes)));
        assert!(limited(refused(9)).is_ok_and(|response| response.error.is_some()));
        assert_eq!(limited(failed(9)).unwrap_err().message, text(9));
        for large in [refused(MESSAGE_BYTES), failed(MESSAGE_BYTES)] {
            let error = limited(large).unwrap_err();
            assert!(
                error.message.contains("the response of the other agent has over 1048576 bytes"),
                "{error}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dialogue_whose_agent_sends_nothing_ends() {
        let (relay, mut relayed) = relay_channel();
        let end = next_message(&mut relayed, false).await.err().expect("an end");
        assert!(end.why.contains("sent no message within 120s; begin") && !end.is_lost, "{end:?}");
        // Behind the first message an agent takes its time.
        assert!(timeout(10 * FIRST_MESSAGE, next_message(&mut relayed, true)).await.is_err());
        assert!(enqueue(&relay, request("d1", "agent://a", "agent://b", "x")).is_ok());
        assert!(next_message(&mut relayed, false).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dialogue_ends_with_the_session_that_it_began_in() {
        let looks = std::cell::Cell::new(0);
        let is_open = || looks.replace(looks.get() + 1) < 3;
        assert!(timeout(5 * LOOK, until_closed(is_open)).await.is_ok());
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn messages_that_wait_are_limited() {
        let (relay, _relayed) = relay_channel();
        let send = |text: &str| enqueue(&relay, request("d1", "agent://a", "agent://b", text));
        assert!((0..WAITING_MESSAGES).all(|_| send("x").is_ok()));
        let error = send("x").unwrap_err();
        assert_eq!(error.code, EnvelopeErrorCode::Overloaded.rpc_code());
        assert!(error.message.starts_with("16 messages of the dialogue wait"), "{error}");
        assert_eq!(send(&"x".repeat(MESSAGE_BYTES)).unwrap_err().code, ErrorCode::INVALID_PARAMS);
    }
}
