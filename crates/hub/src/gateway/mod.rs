//! The gateway: several agents behind one address, with a registry, messages, tasks and principals.
//!
//! A [`Gateway`] has a [`Hub`] for each agent that it starts, and a store for everything else. Requests change the
//! store. Workers that run beside them take messages and tasks from the store and give them to the agents, so nothing
//! that was accepted depends on a connection or on the life of the process.

mod access;
mod acp;
mod agent_calls;
mod agent_environment;
mod agent_turn;
mod asked_questions;
mod attach;
mod attach_client;
mod config;
mod conversations;
mod dialogue_relay;
mod erasure;
mod events;
mod failure;
mod hosted;
mod keys;
mod messages;
mod metrics;
#[cfg(feature = "page")]
mod page;
mod pauses;
mod refusal;
mod remote;
pub(crate) mod rest;
mod rest_agent;
mod result_size;
mod routing;
mod runner;
mod states;
mod task_output;
mod task_run;
#[cfg(feature = "tokens")]
mod tokens;
mod work;
mod work_seats;
mod work_turn;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
#[cfg(feature = "tls")]
use duologue_http::ClientCertificate;
use duologue_http::{Listeners, ServerOptions, bearer_token};
use duologue_rpc::{Lock as _, SecretText};
use duologue_store::{
    ChangeOutcome, RegisteredAgent, RegistrySource, SqliteStore, Store, StoreBatch, StoreChange,
    StoreSettings, StoreTime, StoredPrincipal,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use access::{AccessPolicy, AccessRule, AccessTable, Action, Principal};
pub use agent_environment::{AgentEnvironment, SecretSetting};
pub use attach_client::{AgentAttachment, AttachError, AttachmentCard, AttachmentEvent};
pub use config::{
    AgentConfig, AgentTransport, ConfigError, GatewayConfig, GatewayLimits, LOCAL_PRINCIPAL, PrincipalConfig,
    TokenProvider, Trust, WorkQuestions, WorkSessions,
};
pub use refusal::{Refusal, RefusalCode};
pub use rest::{openapi_json, types};

pub use crate::secret_source::SecretSource;

use crate::clock::HubClock;
use crate::deliveries::{Deliveries, DeliverySettings};
use crate::error::Error;
use crate::gateway::access::Authenticated;
use crate::gateway::asked_questions::AskedQuestions;
use crate::gateway::dialogue_relay::DialogueRelays;
use crate::gateway::erasure::{ErasureTurns, LeftErasures};
use crate::gateway::hosted::{AgentFolders, HostedEntry};
use crate::gateway::keys::{PrincipalKeys, key_digest};
use crate::gateway::metrics::GatewayMetrics;
use crate::gateway::rest_agent::outbound_settings;
use crate::gateway::result_size::ResultSize;
use crate::gateway::routing::{OPERATOR, RoutingTurns};
use crate::gateway::task_output::TaskOutputs;
use crate::gateway::work::WorkCounts;
use crate::http::{FLUSH, require_token};
use crate::hub::{Hub, ProcessObserver};
use crate::outbound::OutboundClient;
use crate::session_task::{AgentCall, CallSender};

/// The header with the API key of a principal.
pub(crate) const API_KEY: &str = "x-api-key";

/// The parts of a gateway that are not in its configuration file.
#[non_exhaustive]
pub struct GatewaySettings {
    /// The folder of the logs and the store.
    pub data: PathBuf,
    /// Learns which processes run.
    pub processes: Option<ProcessObserver>,
    /// Decides about the actions of principals. By default the rules of the configuration.
    pub policy: Option<Box<dyn AccessPolicy>>,
    /// The limits of the store. Its bytes are those of the limits in the configuration.
    pub store: StoreSettings,
    /// The store. By default it is a file in the folder.
    pub backend: Option<Arc<dyn Store>>,
    /// The clock. By default that of the system.
    pub clock: HubClock,
    /// True if the program works on tasks itself, with [`Gateway::store`]. By default a task for an agent that the gateway
    /// does not run is refused, because it would wait for ever.
    pub has_task_workers: bool,
}

impl GatewaySettings {
    /// Creates settings.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        GatewaySettings {
            data: data.into(),
            processes: None,
            policy: None,
            store: StoreSettings::default(),
            backend: None,
            clock: HubClock::system(),
            has_task_workers: false,
        }
    }
}

impl fmt::Debug for GatewaySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewaySettings").field("data", &self.data).finish_non_exhaustive()
    }
}

/// A server of several agents.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub(crate) shared: Arc<GatewayShared>,
}

pub(crate) struct GatewayShared {
    pub(crate) config: GatewayConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: GatewayMetrics,
    policy: Box<dyn AccessPolicy>,
    keys: PrincipalKeys,
    #[cfg(feature = "tokens")]
    tokens: tokens::TokenProviders,
    /// The agents of the configuration.
    pub(crate) agents: BTreeMap<String, Arc<HostedEntry>>,
    /// The agents that have dialled this server or an earlier one.
    pub(crate) attached: Mutex<BTreeMap<String, Arc<HostedEntry>>>,
    /// The folders of agents that are gone, by their kind and id. Their sessions still belong to principals.
    pub(crate) left: Mutex<BTreeMap<(AgentFolders, String), Arc<HostedEntry>>>,
    /// The ids of new ones, whose workers are to be started.
    pub(crate) arrivals: mpsc::UnboundedSender<String>,
    new_arrivals: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    /// Receives the calls of agents to other agents.
    pub(crate) calls: CallSender,
    new_calls: Mutex<Option<mpsc::UnboundedReceiver<AgentCall>>>,
    /// The work that was taken from the store.
    pub(crate) work: watch::Sender<WorkCounts>,
    /// The work whose agents are being chosen.
    pub(crate) routing: RoutingTurns,
    /// The output of tasks, for the agents that have delegated them.
    pub(crate) outputs: TaskOutputs,
    /// The questions of running tasks.
    pub(crate) asked: AskedQuestions,
    /// The dialogues of agents with each other.
    pub(crate) relays: DialogueRelays,
    pub(crate) data: PathBuf,
    clock: HubClock,
    draining: AtomicBool,
    has_task_workers: bool,
    /// True ends the workers.
    pub(crate) closing: watch::Sender<bool>,
    /// The cancellations of tasks at agents elsewhere that have ended here.
    pub(crate) stops: Mutex<JoinSet<()>>,
    /// The erasures that run, and those that the last server has left.
    pub(crate) erasures: ErasureTurns,
    left_erasures: Mutex<Option<LeftErasures>>,
    /// The limits on the results of work.
    pub(crate) result_size: ResultSize,
}

impl fmt::Debug for GatewayShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayShared").field("agents", &self.agents.keys()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens the folder, registers the agents of the configuration, and marks the tasks that ran when the last process ended.
    /// It blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the folder cannot be used, or another server uses it.
    pub fn open(config: GatewayConfig, settings: GatewaySettings) -> Result<Self, Error> {
        let GatewaySettings { data, processes, policy, mut store, backend, clock, has_task_workers } =
            settings;
        let data = hosted::folder(&data)?;
        let metrics = GatewayMetrics::new();
        store.batch_times.get_or_insert_with(|| metrics.batch_observer());
        store.bytes_per_principal = config.limits.principal_stored_bytes;
        store.reserved_bytes = config.limits.reserved_disk_bytes;
        let store: Arc<dyn Store> = match backend {
            Some(backend) => backend,
            None => Arc::new(SqliteStore::open(data.join("store.sqlite"), store, clock.now().wall)?),
        };
        let mut agents = BTreeMap::new();
        let (calls, new_calls) = mpsc::unbounded_channel();
        let result_size = ResultSize::new(config.limits.result_bytes, store.settings());
        for agent in &config.agents {
            let processes = metrics.process_observer(&agent.id, processes.clone());
            let (processes, calls) = (Some(processes), calls.clone());
            let entry = HostedEntry::configured(agent, &data, processes, calls, &config, result_size)?;
            agents.insert(agent.id.clone(), Arc::new(entry));
        }
        let (arrivals, new_arrivals) = mpsc::unbounded_channel();
        let erasures = ErasureTurns::default();
        let left = LeftErasures::find(&erasures, &*store, clock.now())?;
        let shared = GatewayShared {
            keys: PrincipalKeys::new(&config.principals),
            #[cfg(feature = "tokens")]
            tokens: tokens::TokenProviders::new(&config.token_providers),
            policy: policy.unwrap_or_else(|| Box::new(AccessTable::new(config.rules.clone()))),
            store,
            metrics,
            agents,
            attached: Mutex::default(),
            left: Mutex::default(),
            arrivals,
            new_arrivals: Mutex::new(Some(new_arrivals)),
            calls,
            new_calls: Mutex::new(Some(new_calls)),
            work: watch::Sender::default(),
            routing: RoutingTurns::default(),
            asked: AskedQuestions::default(),
            outputs: TaskOutputs::default(),
            relays: DialogueRelays::default(),
            data,
            config,
            clock,
            draining: AtomicBool::new(false),
            has_task_workers,
            closing: watch::Sender::new(false),
            stops: Mutex::default(),
            left_erasures: Mutex::new(Some(left)),
            erasures,
            result_size,
        };
        shared.register_configured()?;
        Ok(Gateway { shared: Arc::new(shared) })
    }

    /// Returns the store, for a program that embeds the gateway. Its functions block.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns the time for changes of the store.
    #[must_use]
    pub fn store_time(&self) -> StoreTime {
        self.shared.time()
    }

    /// Serves clients until `stop` resolves, then ends all sessions. [`ServerOptions::token`] is that of the local user, who
    /// has all permissions.
    ///
    /// # Errors
    ///
    /// If the listener fails. [`io::ErrorKind::InvalidInput`] without a token.
    pub async fn serve_http(
        &self,
        listeners: impl Into<Listeners>,
        options: ServerOptions,
        stop: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        require_token(&options)?;
        let (router, endpoints) = acp::router(&self.shared, &options);
        let mut workers = self.start_workers().await;
        let served = tokio::select! {
            served = duologue_http::serve_router(listeners, router, &options) => served,
            () = stop => Ok(()),
        };
        self.shared.closing.send_replace(true);
        let ended: JoinSet<()> = self
            .shared
            .all_hosted()
            .into_iter()
            .map(|(_, agent)| agent.hub.clone())
            .map(|hub| async move { hub.shut_down().await })
            .collect();
        ended.join_all().await;
        while workers.join_next().await.is_some() {}
        endpoints.flush(FLUSH).await;
        served
    }

    /// Waits until no turn runs and all work that was taken from the store has ended, at most for `limit`. From now on
    /// prompts, new sessions and new work are refused. Returns the number of turns that run on, with those that have not
    /// begun.
    ///
    /// # Cancel safety
    ///
    /// Prompts are refused from the first poll on.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.shared.draining.store(true, Relaxed);
        let hubs: Vec<Hub> = self.shared.all_hosted().iter().map(|(_, agent)| agent.hub.clone()).collect();
        for hub in &hubs {
            hub.begin_drain();
        }
        let drained: JoinSet<usize> =
            hubs.iter().cloned().map(|hub| async move { hub.drain(limit).await }).collect();
        // A worker counts its work before it looks if the gateway is draining.
        let mut work = self.shared.work.subscribe();
        let idle = tokio::time::timeout(limit, work.wait_for(WorkCounts::is_idle));
        let (_, idle) = tokio::join!(drained.join_all(), async { idle.await.is_ok() });
        let starting = if idle { 0 } else { self.shared.work.borrow().starting };
        hubs.iter().map(Hub::turns).sum::<usize>() + starting
    }

    /// Removes the sessions of all agents that were not changed for `age`, as [`Hub::remove_old`](crate::Hub::remove_old).
    /// Returns their number.
    ///
    /// # Errors
    ///
    /// As [`Hub::remove_old`](crate::Hub::remove_old), of the first agent for which it fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the remaining sessions.
    pub async fn remove_old(&self, age: Duration) -> Result<usize, Error> {
        let (mut removed, mut failed) = (0, None);
        for (_, agent) in self.shared.all_hosted() {
            match agent.hub.remove_old(age).await {
                Ok(count) => removed += count,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Starts the workers of the agents. They end when the gateway closes.
    async fn start_workers(&self) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        let left = self.shared.left_erasures.lock_unpoisoned().take();
        if let Some(left) = left {
            let begun = left.begin(&self.shared).await;
            workers.spawn(erasure::go_on(self.shared.clone(), begun));
        }
        for id in self.shared.agents.keys() {
            runner::spawn(&mut workers, &self.shared, id);
        }
        if let Some(arrivals) = self.shared.new_arrivals.lock_unpoisoned().take() {
            workers.spawn(remote::serve_arrivals(self.shared.clone(), arrivals));
        }
        if let Some(calls) = self.shared.new_calls.lock_unpoisoned().take() {
            workers.spawn(agent_calls::serve(self.shared.clone(), calls));
        }
        workers.spawn(runner::sweep(self.shared.clone()));
        #[cfg(feature = "tokens")]
        for reader in self.shared.tokens.readers() {
            let mut closing = self.shared.closing.subscribe();
            workers.spawn(async move {
                tokio::select! {
                    () = reader.run() => {}
                    _ = closing.wait_for(|closing| *closing) => {}
                }
            });
        }
        let outbound = outbound_settings(&self.shared.config);
        let store = self.shared.store.clone();
        let client = self.shared.metrics.counted_posts(OutboundClient::new(outbound));
        let deliveries = Deliveries::new(store, client, self.shared.clock, DeliverySettings::default());
        let mut closing = self.shared.closing.subscribe();
        workers.spawn(deliveries.run(async move {
            let _ = closing.wait_for(|closing| *closing).await;
        }));
        workers
    }
}

impl GatewayShared {
    /// Returns the time for the store.
    pub(crate) fn time(&self) -> StoreTime {
        self.clock.now()
    }

    /// Returns true from the beginning of a drain on.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Returns the refusal of work for an agent that could not begin it. `entry` is the one of the registry.
    pub(crate) fn unable(
        &self,
        agent: &str,
        entry: Option<&RegisteredAgent>,
        action: Action,
    ) -> Option<Refusal> {
        // A program that was attached does no work for an entry that was made over REST since.
        let is_of_rest = entry.is_some_and(|entry| entry.source == RegistrySource::Rest);
        match self.hosted(agent).filter(|_| !is_of_rest) {
            Some(entry) if entry.cwd.is_none() => Some(Refusal::no_folder(agent)),
            None if action == Action::Task && agent == OPERATOR => Some(Refusal::no_tasks_of_operator()),
            None if action == Action::Task && !self.has_task_workers => Some(Refusal::no_tasks(agent)),
            _ => None,
        }
    }

    /// Returns true for an agent of the hub that gets work as envelopes.
    pub(crate) fn takes_envelopes(&self, agent: &str) -> bool {
        self.hosted(agent).is_some_and(|entry| entry.config.envelopes)
    }

    /// Returns true if the sessions of the agents are being ended.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Runs a query or change of the store on a thread of its own.
    pub(crate) async fn in_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> duologue_store::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&*store)).await;
        let panicked = |_| Refusal::new(RefusalCode::Internal, "the request could not be finished");
        Ok(done.map_err(panicked)??)
    }

    /// Returns the sender of a request. `token` is that of the local user.
    ///
    /// A request has one key. A program in front of the server could have checked another one of several.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        token: Option<&SecretText>,
    ) -> Result<Authenticated, Refusal> {
        let refused = |why| Refusal::new(RefusalCode::Unauthenticated, why);
        let bearers = headers.get_all(AUTHORIZATION).iter();
        let bearers = bearers.filter_map(|value| bearer_token(value.as_bytes()));
        let mut keys = headers.get_all(API_KEY).iter().map(|value| value.as_bytes()).chain(bearers);
        let Some(given) = keys.next() else {
            return Err(refused("send a key: `X-API-Key: KEY` or `Authorization: Bearer KEY`"));
        };
        if keys.next().is_some() {
            return Err(refused("the request has several keys; send one"));
        }
        if token.is_some_and(|token| token.is(given)) {
            return Ok(Authenticated { principal: Principal::local(), expires: None });
        }
        if let Some(found) = self.keys.find(given, self.time().wall) {
            return Ok(found);
        }
        #[cfg(feature = "tokens")]
        if self.tokens.is_token(given) {
            let verified = self.tokens.verify(given, self.time().wall);
            return verified.map_err(|fault| Refusal::new(fault.code, fault.reason));
        }
        Err(refused("the key is not valid"))
    }

    /// Returns the principal of the certificate that the client of a request has shown. A key in the request counts alone.
    #[cfg(feature = "tls")]
    pub(crate) fn certified(&self, request: &axum::extract::Request) -> Option<Result<Principal, Refusal>> {
        let headers = request.headers();
        // A browser shows its certificate to each page.
        let is_of_page = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
        if headers.contains_key(API_KEY) || headers.contains_key(AUTHORIZATION) || is_of_page {
            return None;
        }
        let certificate = request.extensions().get::<ClientCertificate>()?;
        let unknown = || {
            let names: Vec<_> = certificate.names().collect();
            let why = format!(
                "no principal has a name of this certificate ({names:?}) in `principals.certificate`"
            );
            Refusal::new(RefusalCode::Unauthenticated, why)
        };
        Some(self.keys.certified(certificate).cloned().ok_or_else(unknown))
    }

    /// Returns the principal with an id, if it is one of the configuration or the local user.
    pub(crate) fn principal(&self, id: &str) -> Option<Principal> {
        if id == LOCAL_PRINCIPAL {
            return Some(Principal::local());
        }
        self.keys.of(id, self.time().wall).cloned()
    }

    /// Returns true if a principal can find an agent. The principal of an agent can find it.
    pub(crate) fn finds(&self, principal: &Principal, agent: &str) -> bool {
        self.policy.allows(principal, Action::Discover, agent)
            || self.policy.allows(principal, Action::Act, agent)
    }

    /// Returns true if a principal may do something with an agent, which it has to find.
    pub(crate) fn may(&self, principal: &Principal, action: Action, agent: &str) -> bool {
        self.policy.allows(principal, action, agent) && self.finds(principal, agent)
    }

    /// Checks a permission. The refusal does not tell if the agent exists.
    pub(crate) fn permit(&self, principal: &Principal, action: Action, agent: &str) -> Result<(), Refusal> {
        match self.policy.allows(principal, action, agent) {
            true => Ok(()),
            false => Err(Refusal::not_found("agent")),
        }
    }

    /// Puts the agents and principals of the configuration into the store. Agents that it has no more are removed, and
    /// principals are disabled.
    fn register_configured(&self) -> Result<(), Error> {
        // Before the others, because another principal can have the key of one that was removed.
        let kept = self.store.apply(StoreBatch::new(self.time()).with(self.kept_principals()))?;
        if let Some(ChangeOutcome::Count(count @ 1..)) = kept.of(0) {
            tracing::warn!(
                count,
                "principals that the configuration does not name are disabled, and their open work has ended"
            );
        }
        self.remove_unkept()?;
        let mut batch = StoreBatch::new(self.time());
        self.register_agents(&mut batch)?;
        self.restore_attached(&mut batch)?;
        self.open_left()?;
        for principal in &self.config.principals {
            let mut stored = StoredPrincipal::new(&principal.id);
            stored.roles.clone_from(&principal.roles);
            stored.key_hash = principal.key_sha256.as_ref().and_then(|digits| key_digest(digits.as_str()));
            stored.webhook_secret = principal.webhook_secret()?;
            batch.push(StoreChange::PutPrincipal(stored));
        }
        self.store.apply(batch)?;
        agent_calls::cancel_orphans(&*self.store, self.time())?;
        Ok(())
    }

    /// Returns the change that disables all principals but those of the configuration and of its providers.
    fn kept_principals(&self) -> StoreChange {
        let mut principals: Vec<_> = self.config.principals.iter().map(|it| it.id.clone()).collect();
        principals.push(LOCAL_PRINCIPAL.to_owned());
        StoreChange::KeepPrincipals { principals, prefixes: self.config.subject_prefixes().collect() }
    }
}
