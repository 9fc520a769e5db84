//! The sessions of the caller.

use axum::http::StatusCode;
use duologue_store::IndexedSession;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::gateway::Refusal;
use crate::gateway::access::Action;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::session_log::log_refusal;
use crate::gateway::rest::values::{PageLimit, PageOffset, Pagination};
use crate::hub::Hub;

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
#[non_exhaustive]
pub struct RestSession {
    /// The id.
    pub session_id: String,
    /// The agent.
    pub agent_id: String,
    /// The working directory.
    pub cwd: String,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created_at: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated_at: u64,
    /// True if the session runs.
    #[serde(default)]
    pub live: bool,
    /// True if a question waits for an answer: see `/sessions/{sessionId}/input`.
    #[serde(default)]
    pub awaiting: bool,
}

impl RestSession {
    /// Creates it from an entry of the index of a hub.
    pub(crate) fn of(hub: &Hub, session: IndexedSession) -> Self {
        let live = hub.is_live(&session.owner, &session.id);
        let awaiting = hub.has_open_question(&session.owner, &session.id);
        RestSession {
            session_id: session.id,
            agent_id: session.agent,
            cwd: session.cwd,
            title: session.title,
            created_at: session.created,
            updated_at: session.updated,
            live,
            awaiting,
        }
    }
}

/// A page of sessions, the one that was changed last first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionList)]
#[non_exhaustive]
pub struct RestSessionList {
    /// The sessions.
    pub sessions: Vec<RestSession>,
    /// The place of the page.
    pub pagination: Pagination,
}

/// Filters of sessions, and the place of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct SessionFilter {
    /// The id of an agent.
    pub agent: Option<String>,
    /// True for the sessions with a question that waits for an answer, false for the others.
    pub awaiting: Option<bool>,
    /// The number of entries in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most entries of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Lists the caller's own sessions with the agents whose sessions it may use.
#[utoipa::path(
    get, path = "/sessions", tag = "sessions", params(SessionFilter),
    responses((status = 200, body = RestSessionList, description = "A page of sessions.")),
)]
pub(crate) async fn list_sessions(
    caller: RestCaller,
    QueryOf(filter): QueryOf<SessionFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let turn = admission.list_turn().await;
    let gateway = caller.gateway();
    let mut sessions = Vec::new();
    for (agent, entry) in &gateway.all_hosted() {
        let is_wanted = filter.agent.as_ref().is_none_or(|wanted| wanted == agent);
        if !is_wanted || !caller.may(Action::Session, agent) {
            continue;
        }
        let listed = entry.hub.sessions_of(&caller.principal.id).await.map_err(log_refusal)?;
        let listed = listed.into_iter().map(|session| RestSession::of(&entry.hub, session));
        sessions.extend(listed.filter(|session| filter.awaiting.is_none_or(|it| it == session.awaiting)));
    }
    drop(turn);
    sessions.sort_by_key(|session| std::cmp::Reverse(session.updated_at));
    let (offset, limit) = (filter.offset.0, filter.limit.0);
    let total = sessions.len() as u64;
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let taken = usize::try_from(limit).unwrap_or(usize::MAX);
    let sessions = sessions.into_iter().skip(skipped).take(taken).collect();
    let list = RestSessionList { sessions, pagination: Pagination { offset, limit, total } };
    Ok(admission.until_sent(RestReply::ok(&list)?))
}

/// The session of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(crate) struct SessionTarget {
    /// The id of the session.
    pub(crate) session_id: String,
}

/// Returns a session of the caller with its hub. That of another principal is as absent.
pub(crate) async fn own_session(caller: &RestCaller, id: &str) -> Result<(Hub, IndexedSession), Refusal> {
    for (agent, entry) in &caller.gateway().all_hosted() {
        if !caller.may(Action::Session, agent) {
            continue;
        }
        if let Some(found) = entry.hub.find_session(caller.id(), id).await.map_err(log_refusal)? {
            return Ok((entry.hub.clone(), found));
        }
    }
    Err(Refusal::not_found("session"))
}

/// Returns a session of the caller.
#[utoipa::path(
    get, path = "/sessions/{sessionId}", tag = "sessions", params(SessionTarget),
    responses((status = 200, body = RestSession, description = "The session.")),
)]
pub(crate) async fn get_session(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
) -> Result<RestReply, Refusal> {
    let (hub, session) = own_session(&caller, &session_id).await?;
    RestReply::ok(&RestSession::of(&hub, session))
}

/// Erases a session of the caller: it ends if it runs, and its log is removed.
#[utoipa::path(
    delete, path = "/sessions/{sessionId}", tag = "sessions", params(SessionTarget),
    responses((status = 204, description = "The session was erased.")),
)]
pub(crate) async fn erase_session(
    caller: RestCaller,
    PathOf(SessionTarget { session_id }): PathOf<SessionTarget>,
) -> Result<StatusCode, Refusal> {
    let (hub, session) = own_session(&caller, &session_id).await?;
    hub.erase_session(&session.owner, &session.id).await.map_err(log_refusal)?;
    caller.rest.views.forget(&session.owner, Some(&session.id));
    tracing::info!(event = "acp_session_erased", principal = caller.id(), agent = %session.agent, session = %session.id);
    Ok(StatusCode::NO_CONTENT)
}
