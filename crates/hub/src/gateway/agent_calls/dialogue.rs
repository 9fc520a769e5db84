//! The messages of dialogues that an agent sends to another agent of the server.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::dialogue::{DialogueRequest, DialogueResponse};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, Priority};
use duologue_schema::{Error as RpcError, Meta, Request as _, RequestId, SessionId, params_fault};
use duologue_store::{StoreTopic, StoredTask, StoredTaskKey};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until};

use super::reply::fault;
use super::waiting::WaitingTask;
use super::{Caller, MessageTurn, NewCall, OpenCalls, address};
use crate::gateway::GatewayShared;
use crate::gateway::dialogue_relay::{
    DIALOGUE, DialogueRelay, DialogueWork, has_ended, head_of, pass_on, rpc_error,
};
use crate::gateway::rest::tasks::cancel;
use crate::gateway::routing::AgentPattern;
use crate::place_counts::CountedPlace;

/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);
/// The time in which the worker of a dialogue begins. The sender sends its message again after that.
const BEGINNING: Duration = Duration::from_secs(20);

impl Caller {
    /// Passes a message on to the other agent, and returns its response. The first message begins the dialogue.
    ///
    /// The call that begins it goes on until the dialogue has ended. If the process of the agent ends before, the dialogue
    /// is cancelled.
    pub(super) async fn dialogue(
        &self,
        id: &RequestId,
        params: Option<&RawValue>,
        counts: &OpenCalls,
        turn: MessageTurn,
    ) {
        match self.pass_message(params, counts, turn).await {
            Ok((response, followed)) => {
                self.replies.answer(id, response);
                if let Some(followed) = followed {
                    self.follow_dialogue(&followed.key).await;
                }
            }
            Err(error) => self.replies.answer::<DialogueResponse>(id, Err(error)),
        }
    }

    /// Returns the response to a message, and the dialogue if this call has to follow it.
    async fn pass_message(
        &self,
        params: Option<&RawValue>,
        counts: &OpenCalls,
        mut turn: MessageTurn,
    ) -> Result<(Result<DialogueResponse, RpcError>, Option<FollowedDialogue>), RpcError> {
        let request: DialogueRequest = serde_json::from_str(params.map_or("{}", RawValue::get))
            .map_err(|error| RpcError::invalid_params(params_fault(DialogueRequest::METHOD, &error)))?;
        let head = head_of(&request)?;
        // From its arrival on: a message does not wait longer because others are before it.
        let until = Instant::now() + BEGINNING;
        turn.begin().await;
        let own = address(&self.agent);
        if head.sender_id != own {
            let why =
                format!("`sender_id` is {:?}, and the address of this agent is {own:?}", head.sender_id);
            return Err(rpc_error(&EnvelopeErrorCode::NotAuthorized, why));
        }
        let target = AgentPattern::read(&head.recipient_id).map_err(|refusal| refused(refusal.into()))?;
        let target = target.exact().map(str::to_owned).ok_or_else(|| {
            let why = "a dialogue is with one agent, for which its messages are signed; find its address with `discover`";
            RpcError::invalid_params(why)
        })?;
        if head.recipient_id != address(&target) {
            let why = format!("`recipient_id` is {:?}; write {:?}", head.recipient_id, address(&target));
            return Err(RpcError::invalid_params(why));
        }
        let key = StoredTaskKey::new(&*self.principal.id, target, &head.session_id);
        let known = self.gateway.relays.find(&key);
        let known = known.filter(|relay| relay.is_of(&self.agent, self.session.as_str()));
        if known.is_none() && self.is_spoken_to(&key, &head.session_id).await? {
            // Behind a restart of the server, until the worker has sent a message of the other agent.
            let key = StoredTaskKey::new(&*self.principal.id, &*self.agent, &head.session_id);
            let relay = self.relay(&key, until).await?;
            return Ok((pass_on(&relay.to_caller, request, turn).await, None));
        }
        // One call follows a dialogue from before its worker begins: one that waits for a place ends with its agent too.
        let follows = self.gateway.relays.followed.take(&(key.clone(), self.session.clone()), 1);
        let (mut place, mut waiting) = (None, None);
        let relay = match known {
            Some(relay) => Ok(relay),
            None => {
                if follows.is_some() {
                    let limit = self.gateway.config.limits.open_calls;
                    place = counts.take(&self.session, limit);
                    if place.is_none() {
                        return Err(refused(EnvelopeError::overloaded(format!(
                            "call limit reached (the session has {limit} tasks of other agents); retry when one has ended, or raise `limits.open_calls`"
                        ))));
                    }
                }
                let call = NewCall {
                    to: head.recipient_id,
                    id: head.session_id,
                    kind: DIALOGUE,
                    parameters: json!({}),
                    priority: Priority::Normal.level(),
                    timeout_ms: None,
                    trace: request.meta.as_ref().and_then(Meta::trace_context),
                    wants_report: true,
                };
                waiting = self.create(call).await.map_err(refused)?._waiting;
                self.relay(&key, until).await
            }
        };
        let response = match relay {
            Ok(relay) => pass_on(&relay.to_target, request, turn).await,
            Err(error) => Err(error),
        };
        let followed = follows.map(|follows| FollowedDialogue {
            key,
            _follows: follows,
            _place: place,
            _waiting: waiting,
        });
        Ok((response, followed))
    }

    /// Returns true if this session is that of a dialogue which the agent of `key` has begun.
    async fn is_spoken_to(&self, key: &StoredTaskKey, dialogue: &str) -> Result<bool, RpcError> {
        let own = StoredTaskKey::new(&*self.principal.id, &*self.agent, dialogue);
        let found = self.gateway.in_store(move |store| store.task(&own)).await;
        let task = found.map_err(|refusal| refused(refusal.into()))?;
        Ok(task.is_some_and(|task| {
            let is_open = task.kind == DIALOGUE && !task.state.is_final();
            is_open && task.from.name == key.agent && task.session.as_deref() == Some(self.session.as_str())
        }))
    }

    /// Waits for the worker of a dialogue.
    async fn relay(&self, key: &StoredTaskKey, until: Instant) -> Result<Arc<DialogueRelay>, RpcError> {
        tokio::select! {
            biased;
            relay = self.gateway.relays.relay(key) => Ok(relay),
            error = self.end_of_dialogue(key) => Err(error),
            () = sleep_until(until) => {
                let why = format!("the dialogue has not begun within {BEGINNING:?}: the agent has no free place; retry later, or raise `agents.max_tasks`");
                Err(refused(EnvelopeError::overloaded(why)))
            }
        }
    }

    /// Waits for the end of a dialogue. If the process of the agent ends before, it is cancelled.
    async fn follow_dialogue(&self, key: &StoredTaskKey) {
        tokio::select! {
            _ = self.end_of_dialogue(key) => {}
            () = self.replies.closed() => {
                if !self.gateway.is_closing() {
                    let (time, key) = (self.gateway.time(), key.clone());
                    let _ = self.gateway.in_store(move |store| cancel(store, time, &key)).await;
                }
            }
        }
    }

    /// Waits until a dialogue has ended, and returns the refusal of its messages.
    async fn end_of_dialogue(&self, key: &StoredTaskKey) -> RpcError {
        let mut changes = self.gateway.store.watch(&StoreTopic::Task(key.clone()));
        loop {
            let read = key.clone();
            match self.gateway.in_store(move |store| store.task(&read)).await {
                Ok(Some(task)) if !task.state.is_final() => changes.changed().await,
                Ok(task) => {
                    let error = task.and_then(|task| task.error);
                    return error.map_or_else(has_ended, |error| refused(fault(&error)));
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }
}

/// A dialogue that a call follows, with what it occupies.
struct FollowedDialogue {
    key: StoredTaskKey,
    _follows: CountedPlace<(StoredTaskKey, SessionId)>,
    _place: Option<CountedPlace<SessionId>>,
    _waiting: Option<WaitingTask>,
}

/// Checks that a task is a dialogue of an agent in this session, which has not ended.
pub(super) fn check_open(task: &StoredTask, agent: &str, session: &SessionId) -> Result<(), EnvelopeError> {
    let known = DialogueWork::session_of_caller(task);
    let is_own = task.from.name == agent && known.as_deref() == Some(session.as_str());
    if !is_own {
        let why =
            format!("the id {:?} is that of another dialogue or task; choose another one", task.key.task);
        return Err(EnvelopeError::of(EnvelopeErrorCode::Conflict, why));
    }
    if task.state.is_final() {
        return Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, has_ended().message));
    }
    Ok(())
}

/// Checks that an agent can be spoken to now. Its messages do not wait for it: their sender sends them again.
pub(super) fn check_target(gateway: &GatewayShared, agent: &str) -> Result<(), EnvelopeError> {
    let fault = match gateway.hosted(agent) {
        Some(entry) if entry.rest.is_none() => {
            if *entry.online.borrow() {
                return Ok(());
            }
            EnvelopeError::of(EnvelopeErrorCode::Unreachable, "the agent is offline; retry later")
        }
        _ => {
            let why = "the agent takes its work over REST, and no dialogues; send it messages of their types";
            EnvelopeError::of(EnvelopeErrorCode::UnknownKind, why)
        }
    };
    Err(fault)
}

/// Returns the error of a request for that of an envelope.
pub(super) fn refused(fault: EnvelopeError) -> RpcError {
    rpc_error(&fault.code, fault.message)
}

#[cfg(test)]
mod tests {
    use duologue_schema::envelope::TaskState;
    use serde_json::value::to_raw_value;
    use tokio::sync::mpsc;

    use super::super::message_order::MessageOrder;
    use super::super::reply::CallReplies;
    use super::super::waiting::WaitingTasks;
    use super::*;
    use crate::gateway::access::Principal;
    use crate::gateway::task_run::tests::gateway;

    /// Sends the first message of the dialogue `d1`, and returns its response.
    async fn first_message(
        caller: Caller,
        to: &str,
        answers: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    ) -> String {
        let message = json!({
            "session_id": "d1", "sender_id": "agent://caller", "recipient_id": to, "message_type": "request",
        });
        let params = to_raw_value(&json!({"sessionId": "s", "message": message})).expect("params");
        tokio::spawn(async move {
            let turn = MessageOrder::default().turn(&caller.session, "d1".to_owned());
            caller.dialogue(&RequestId::from(1), Some(&params), &OpenCalls::default(), turn).await
        });
        String::from_utf8(answers.recv().await.expect("a response")).expect("a text")
    }

    #[tokio::test(start_paused = true)]
    async fn a_dialogue_that_waits_for_a_place_ends_with_its_agent() {
        // Nobody works for the agent `writer`.
        let (gateway, _folder) = gateway("command = [\"false\"]\ncwd = \"/\"", |_| {});
        let (lines, mut answers) = mpsc::unbounded_channel();
        let caller = || Caller {
            gateway: gateway.clone(),
            agent: "caller".to_owned(),
            principal: Principal::local(),
            session: SessionId::from("s"),
            replies: CallReplies::new(SessionId::from("s"), lines.clone()),
            waiting: WaitingTasks::default(),
        };
        let key = StoredTaskKey::new("local", "writer", "d1");
        let found = || gateway.store.task(&key).expect("the store");
        let refused = first_message(caller(), "agent://writer?", &mut answers).await;
        assert!(refused.contains("write \\\"agent://writer\\\"") && found().is_none(), "{refused}");
        let refused = first_message(caller(), "agent://writer", &mut answers).await;
        assert!(refused.contains("the agent has no free place"), "{refused}");
        // The agent sends the message again, and its process ends.
        let refused = first_message(caller(), "agent://writer", &mut answers).await;
        assert!(refused.contains("the agent has no free place"), "{refused}");
        assert_eq!(found().map(|task| task.state), Some(TaskState::Submitted));
        let mut changes = gateway.store.watch(&StoreTopic::Task(key.clone()));
        drop(answers);
        while found().is_some_and(|task| !task.state.is_final()) {
            changes.changed().await;
        }
        assert_eq!(found().map(|task| task.state), Some(TaskState::Cancelled));
    }
}
