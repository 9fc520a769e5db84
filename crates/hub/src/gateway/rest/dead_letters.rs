//! Dead letters: messages that could not be delivered, and tasks whose worker was lost.

use axum::http::StatusCode;
use duologue_store::{MessageQuery, MessageState, Store, StoreBatch, StoreChange, TaskQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::gateway::Refusal;
use crate::gateway::access::Action;
use crate::gateway::rest::inbox::{RestInboxMessage, RestMessageList, message_list};
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::tasks::{RestTask, RestTaskList, require_owner, task_list};
use crate::gateway::rest::values::{AgentTarget, MessageTarget, PageLimit, PageOffset, Pagination, conflict};
use crate::gateway::rest::visibility::{find_message, find_task, list_visible};

/// The kind of a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeadLetterKind)]
pub enum RestDeadKind {
    /// A message. The default.
    #[default]
    Message,
    /// A task.
    Task,
}

/// Dead letters of an agent. One of the lists is empty, as the kind of the query says.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetterList)]
#[non_exhaustive]
pub struct RestDeadLetters {
    /// The messages, in order of arrival.
    pub messages: Vec<RestInboxMessage>,
    /// The tasks, in order of creation.
    pub tasks: Vec<RestTask>,
    /// The place of the page.
    pub pagination: Pagination,
}

/// The kind of dead letters, and the place of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct DeadFilter {
    /// The kind.
    #[param(inline)]
    pub kind: RestDeadKind,
    /// The principal that has sent or created it.
    pub sender: Option<String>,
    /// The number of entries in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most entries of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// The kind and the sender of a dead letter.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct DeadQuery {
    /// The kind.
    #[param(inline)]
    pub kind: RestDeadKind,
    /// The principal that has sent or created it, if several have used its id.
    pub sender: Option<String>,
}

impl RestDeadKind {
    fn action(self) -> Action {
        match self {
            RestDeadKind::Message => Action::Message,
            RestDeadKind::Task => Action::Task,
        }
    }
}

/// Lists the dead letters of an agent: those of the caller, or all if the caller acts for the agent.
#[utoipa::path(
    get, path = "/agents/{agentId}/dead-letters", tag = "dead letters", params(AgentTarget, DeadFilter),
    responses((status = 200, body = RestDeadLetters, description = "A page of dead letters.")),
)]
pub(crate) async fn list_dead_letters(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    QueryOf(filter): QueryOf<DeadFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let DeadFilter { kind, sender, offset, limit } = filter;
    let action = kind.action();
    let letters = match kind {
        RestDeadKind::Message => {
            let page = list_visible(&caller, action, agent_id, sender, move |store, agent, principal| {
                let mut query = MessageQuery::default();
                (query.agent, query.principal, query.state) = (agent, principal, Some(MessageState::Dead));
                (query.offset, query.limit) = (offset.0, limit.0);
                store.messages(&query)
            });
            let RestMessageList { messages, pagination } = message_list(page.await?)?;
            RestDeadLetters { messages, tasks: Vec::new(), pagination }
        }
        RestDeadKind::Task => {
            let page = list_visible(&caller, action, agent_id, sender, move |store, agent, owner| {
                let mut query = TaskQuery::default();
                (query.agent, query.owner, query.dead) = (agent, owner, Some(true));
                (query.offset, query.limit) = (offset.0, limit.0);
                store.tasks(&query)
            });
            let RestTaskList { tasks, pagination } = task_list(page.await?);
            RestDeadLetters { messages: Vec::new(), tasks, pagination }
        }
    };
    Ok(admission.until_sent(RestReply::ok(&letters)?))
}

/// Sends a dead letter again.
#[utoipa::path(
    post, path = "/agents/{agentId}/dead-letters/{messageId}/resend", tag = "dead letters",
    params(MessageTarget, DeadQuery),
    responses(
        (status = 204, description = "It waits for the agent."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "It is not a dead letter."),
    ),
)]
pub(crate) async fn resend_dead_letter(
    caller: RestCaller,
    PathOf(target): PathOf<MessageTarget>,
    QueryOf(query): QueryOf<DeadQuery>,
) -> Result<StatusCode, Refusal> {
    change(caller, target, query, Change::Resend).await
}

/// Drops a dead letter. A task stays in the list of tasks.
#[utoipa::path(
    delete, path = "/agents/{agentId}/dead-letters/{messageId}", tag = "dead letters",
    params(MessageTarget, DeadQuery),
    responses(
        (status = 204, description = "It is no dead letter any more."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "It is not a dead letter."),
    ),
)]
pub(crate) async fn drop_dead_letter(
    caller: RestCaller,
    PathOf(target): PathOf<MessageTarget>,
    QueryOf(query): QueryOf<DeadQuery>,
) -> Result<StatusCode, Refusal> {
    change(caller, target, query, Change::Drop).await
}

#[derive(Clone, Copy)]
enum Change {
    Resend,
    Drop,
}

async fn change(
    caller: RestCaller,
    target: MessageTarget,
    query: DeadQuery,
    change: Change,
) -> Result<StatusCode, Refusal> {
    let MessageTarget { agent_id, message_id } = target;
    let DeadQuery { kind, sender } = query;
    let visible = caller.sees(kind.action(), &agent_id);
    let gateway = caller.gateway().clone();
    let time = gateway.time();
    let changed = move |store: &dyn Store| {
        let own = caller.id();
        let target = (agent_id.as_str(), message_id.as_str());
        let is_dead;
        let change = match kind {
            RestDeadKind::Message => {
                let Some(found) = find_message(store, &visible, own, target, sender)? else {
                    return Ok(Err(Refusal::not_found("message")));
                };
                is_dead = found.state == MessageState::Dead;
                match change {
                    Change::Resend => StoreChange::ResendMessage { key: found.key(), expires: None },
                    Change::Drop => StoreChange::RemoveMessage { key: found.key() },
                }
            }
            RestDeadKind::Task => {
                let Some(found) = find_task(store, &visible, own, target, sender)? else {
                    return Ok(Err(Refusal::not_found("task")));
                };
                // Work that costs money is repeated by its owner alone.
                if let Err(refusal) = require_owner(&caller, &found) {
                    return Ok(Err(refusal));
                }
                is_dead = found.dead;
                match change {
                    Change::Resend => StoreChange::ResendTask { key: found.key, expires: None },
                    Change::Drop => StoreChange::DropDeadTask { key: found.key },
                }
            }
        };
        if !is_dead {
            return Ok(Err(conflict("it is not a dead letter")));
        }
        store.apply(StoreBatch::new(time).with(change))?;
        Ok(Ok(StatusCode::NO_CONTENT))
    };
    gateway.in_store(changed).await?
}
