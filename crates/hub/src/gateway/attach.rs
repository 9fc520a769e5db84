//! The path of programs that dial the gateway and serve as its agents.
//!
//! The program is the client of the transport, so that a lost socket resumes. Its first message is an `initialize` with
//! its card. From then on the sides are exchanged: the gateway is the ACP client.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use duologue_http::{
    AgentConnection, AgentEndpoint, AgentEndpointOptions, ClientPresence, ConnectRequest, ConnectionKind,
    Endpoint, HttpRequestHead, Rejection, RemoteConnectionId, ResumeRefused, ResumeRequest, Resumed,
};
use duologue_rpc::raw_message::response_line;
use duologue_rpc::{Limits, Lock as _, RpcMessage, Transport};
use duologue_schema::Error as RpcError;
use duologue_store::{RegistrySource, RegistryStatus, StoreBatch, StoreChange};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::gateway::access::{Action, Principal};
use crate::gateway::acp::PrincipalEndpoints;
use crate::gateway::attach_client::AttachmentCard;
use crate::gateway::config::{AgentConfig, check_agent_id};
use crate::gateway::hosted::{HostedEntry, check_keys};
use crate::gateway::{GatewayShared, Refusal, RefusalCode};
use crate::remote_agent::{AgentPresence, RemoteAgent};

/// The path of a program whose principal is one agent. A segment behind it names the agent.
pub(crate) const ATTACH: &str = "/attach";
/// The longest first message.
const FIRST_LINE: usize = 256 * 1024;

/// The path of attached agents.
pub(crate) struct AttachPath {
    pub(crate) gateway: Arc<GatewayShared>,
    /// The connections of each agent and principal: one is open at a time.
    pub(crate) endpoints: PrincipalEndpoints,
}

/// Returns the agent that a path names, or the one that the principal is.
fn agent_of(path: &str, principal: &Principal) -> Option<String> {
    let named = path.strip_prefix(ATTACH)?.trim_start_matches('/');
    if named.is_empty() { principal.agent.clone() } else { Some(named.to_owned()) }
}

/// Refuses a program that may not be the agent, before its socket is opened.
pub(crate) async fn check(
    State(gateway): State<Arc<GatewayShared>>,
    request: Request,
    next: Next,
) -> Response {
    let principal = request.extensions().get::<Principal>().cloned();
    let checked = match &principal {
        Some(principal) => gateway.may_attach(request.uri().path(), principal).await,
        None => Err(Refusal::not_found("agent")),
    };
    match checked {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

impl GatewayShared {
    /// Returns the id of the agent that a principal may be.
    async fn may_attach(&self, path: &str, principal: &Principal) -> Result<String, Refusal> {
        let agent = agent_of(path, principal).ok_or_else(|| {
            Refusal::invalid("name the agent, such as `/attach/planner`: this key belongs to no agent")
        })?;
        self.permit(principal, Action::Act, &agent)?;
        check_agent_id(&agent).map_err(|why| Refusal::invalid(format!("agentId: {why}")))?;
        if self.agents.contains_key(&agent) {
            let why = "the agent is in the configuration of the server; attach with another id";
            return Err(Refusal::new(RefusalCode::Conflict, why));
        }
        let id = agent.clone();
        let entry = self.in_store(move |store| store.agent(&id)).await?;
        if entry.is_some_and(|entry| *entry.owner != *principal.id) {
            let why = "the agent belongs to another principal; attach with another id";
            return Err(Refusal::new(RefusalCode::Conflict, why));
        }
        Ok(agent)
    }

    /// Registers an attached agent, which is offline until the hub has introduced itself.
    async fn admit(
        self: &Arc<Self>,
        agent: &str,
        principal: &Principal,
        card: AttachmentCard,
    ) -> Result<Arc<HostedEntry>, Refusal> {
        check_keys(&card.keys).map_err(Refusal::invalid)?;
        let config = card.into_config(agent);
        let (gateway, owner, time) = (self.clone(), principal.id.clone(), self.time());
        let admit = move || -> Result<Arc<HostedEntry>, Refusal> {
            let mut attached = gateway.attached.lock_unpoisoned();
            let known = attached.get(&config.id).cloned();
            let is_new = known.is_none();
            let left = || gateway.take_left(&config.id);
            let entry = match known.or_else(left) {
                Some(known) => known.with_config(config),
                None => HostedEntry::attached(
                    config,
                    &gateway.data,
                    gateway.calls.clone(),
                    &gateway.config.limits,
                )
                .map_err(|error| {
                    tracing::error!(%error, "the folder of an attached agent cannot be used");
                    Refusal::new(RefusalCode::Internal, "the folder of the agent cannot be used")
                })?,
            };
            let mut card = entry.card(&owner, RegistrySource::Attached)?;
            (card.status, card.last_seen) = (RegistryStatus::Offline, Some(time.wall));
            let id = card.id.clone();
            gateway.store.apply(StoreBatch::new(time).with(StoreChange::PutAgent(card)))?;
            let entry = Arc::new(entry);
            attached.insert(id.clone(), entry.clone());
            if is_new {
                _ = gateway.arrivals.send(id);
            }
            Ok(entry)
        };
        let panicked = |_| Refusal::new(RefusalCode::Internal, "the agent could not be attached");
        tokio::task::spawn_blocking(admit).await.map_err(panicked)?
    }
}

impl AttachPath {
    /// Returns the endpoint of an agent and a principal.
    fn endpoint(&self, head: &HttpRequestHead) -> Option<(String, AgentEndpoint)> {
        let principal = head.extensions.get::<Principal>()?;
        let agent = agent_of(head.uri.path(), principal)?;
        self.gateway.permit(principal, Action::Act, &agent).ok()?;
        let create = || {
            let (gateway, agent, principal) = (self.gateway.clone(), agent.clone(), principal.clone());
            let mut options = AgentEndpointOptions::default();
            // A program that was started again replaces its connection, but only while that is lost.
            options.connections = 1;
            options.grace = Duration::from_secs(self.gateway.config.limits.attachment_seconds);
            let serve = move |transport, presence| {
                serve(gateway.clone(), agent.clone(), principal.clone(), transport, presence)
            };
            AgentEndpoint::with_presence(serve, options)
        };
        Some((agent.clone(), self.endpoints.get_or_insert(&agent, &principal.id, create)))
    }
}

impl Endpoint for AttachPath {
    type Connection = AgentConnection;

    async fn connect(&self, request: ConnectRequest) -> Result<AgentConnection, Rejection> {
        let absent = || Rejection::new(Refusal::not_found("agent").message);
        let (agent, endpoint) = self.endpoint(&request.head).ok_or_else(absent)?;
        if request.kind != ConnectionKind::WebSocket {
            return Err(Rejection::new("attach over a WebSocket"));
        }
        let remote = self.gateway.hosted(&agent).and_then(|entry| entry.remote.clone());
        if remote.is_some_and(|remote| remote.presence().borrow().1 == AgentPresence::Present) {
            let why = format!(
                "conflict: the agent {agent:?} is attached already; end the other program or use another id"
            );
            return Err(Rejection::new(why));
        }
        endpoint.connect(request).await
    }

    async fn resume(&self, request: ResumeRequest) -> Result<Resumed<AgentConnection>, ResumeRefused> {
        match self.endpoint(&request.head) {
            Some((_, endpoint)) => endpoint.resume(request).await,
            None => Err(ResumeRefused::Unknown),
        }
    }

    async fn find(&self, _: &RemoteConnectionId, _: &HttpRequestHead) -> Option<AgentConnection> {
        None
    }
}

/// Serves one connection of an attached agent until it has ended.
async fn serve(
    gateway: Arc<GatewayShared>,
    agent: String,
    principal: Principal,
    transport: Transport,
    mut presence: ClientPresence,
) {
    let (mut reader, mut writer) = transport.into_split();
    let Some(line) = first_line(&mut reader).await else { return };
    let Some(Ok(RpcMessage::Request { id, params, .. })) = RpcMessage::read(&line, &Limits::default()) else {
        return;
    };
    let params =
        params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok()).unwrap_or_default();
    let card = serde_json::from_value(params["_meta"]["duologue"]["attach"].clone());
    // From before its entry until the end of the connection.
    let turn = gateway.erasures.attach(&principal.id, &agent);
    let admitted = match card {
        Ok(card) => match &turn {
            Ok(_) => gateway.admit(&agent, &principal, card).await,
            Err(refusal) => Err(refusal.clone()),
        },
        Err(error) => Err(Refusal::invalid(format!("_meta.duologue.attach: {error}"))),
    };
    let remote = admitted.as_ref().ok().and_then(|entry| entry.remote.clone());
    // An earlier connection of the agent is about to end.
    let _turn = match &remote {
        Some(remote) => Some(remote.turn.lock().await),
        None => None,
    };
    let outcome = match &admitted {
        Ok(_) => Ok(json!({
            "protocolVersion": 1,
            "agentCapabilities": {},
            "agentInfo": {"name": "duologue-hub", "version": env!("CARGO_PKG_VERSION")},
            "_meta": {"duologue": {"agentId": agent}},
        })),
        Err(refusal) => {
            let error = RpcError::internal(refusal.message.clone());
            Err(error.coded(refusal.code.as_str(), refusal.code.is_retryable()))
        }
    };
    let outcome =
        outcome.and_then(|result| to_raw_value(&result).map_err(|_| RpcError::internal("no result")));
    let Ok(response) = response_line(id.token(), outcome.as_ref().map(|result| &**result)) else { return };
    if writer.write_all(&response).await.is_err() {
        return;
    }
    let Some(remote) = &remote else { return };
    tracing::info!(%agent, principal = %principal.id, "an agent is attached");
    let attached = AttachedConnection(remote);
    let mut ended = remote.arrive(Transport::new(reader, writer));
    loop {
        tokio::select! {
            _ = &mut ended => break,
            is_present = presence.changed() => {
                remote.note(if is_present { AgentPresence::Present } else { AgentPresence::Paused });
            }
        }
    }
    drop(attached);
    tracing::info!(%agent, "the connection of an attached agent has ended");
}

/// Marks the agent absent at the end of its connection.
struct AttachedConnection<'a>(&'a RemoteAgent);

impl Drop for AttachedConnection<'_> {
    fn drop(&mut self) {
        self.0.note(AgentPresence::Absent);
    }
}

/// Reads one line and nothing behind it.
pub(crate) async fn first_line(reader: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < FIRST_LINE {
        match reader.read_u8().await.ok()? {
            b'\n' => return Some(line),
            byte => line.push(byte),
        }
    }
    None
}

impl AgentConfig {
    /// Creates the configuration of an attached agent.
    pub(crate) fn named(id: &str) -> Self {
        // All other members have defaults.
        serde_json::from_value(json!({ "id": id }))
            .unwrap_or_else(|_| unreachable!("`id` is the only member"))
    }
}
