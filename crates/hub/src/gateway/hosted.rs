//! The agents whose sessions the gateway owns: programs that it starts, servers that it dials, and programs that have dialled it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duologue_client::Command;
use duologue_client::exchange::dialogue::PublishedKey;
use duologue_rpc::Lock as _;
use duologue_store::{
    AgentQuery, JsonText, RegisteredAgent, RegistrySource, RegistryStatus, StoreBatch, StoreChange,
};
use serde_json::json;
use tokio::sync::watch;

use crate::error::Error;
use crate::gateway::GatewayShared;
use crate::gateway::access::{Action, Principal};
use crate::gateway::config::{AgentConfig, GatewayConfig, GatewayLimits, LOCAL_PRINCIPAL, check_agent_id};
use crate::gateway::conversations::Conversations;
use crate::gateway::rest_agent::{RestPeer, credential};
use crate::gateway::result_size::ResultSize;
use crate::hub::{AgentCommand, Hub, HubSettings, ProcessObserver};
use crate::remote_agent::{AgentAddress, RemoteAgent};
use crate::session_policy::SessionPolicy;
use crate::session_task::CallSender;

/// The variables that agents inherit. Others can have secrets of the server.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TZ"];

/// The member of a card with the keys of an agent.
pub(crate) const KEYS: &str = "keys";

/// Checks the keys of a card, which everybody who finds the agent may read.
pub(crate) fn check_keys(keys: &[PublishedKey]) -> Result<(), String> {
    let checked = |key: &PublishedKey| key.check().map_err(|error| format!("the key {:?}: {error}", key.id));
    keys.iter().try_for_each(checked)
}

/// The folders of agents, by the way that they come to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AgentFolders {
    Configured,
    Attached,
}

impl AgentFolders {
    fn name(self) -> &'static str {
        match self {
            AgentFolders::Configured => "agents",
            AgentFolders::Attached => "attached",
        }
    }
}

/// An agent whose sessions the gateway owns.
pub(crate) struct HostedEntry {
    pub(crate) config: AgentConfig,
    pub(crate) hub: Hub,
    /// The folder of tasks and messages. Without one the agent takes none.
    pub(crate) cwd: Option<PathBuf>,
    /// The connection to an agent on another machine.
    pub(crate) remote: Option<Arc<RemoteAgent>>,
    /// The requests to an agent that serves the REST interface itself. It has no sessions here.
    pub(crate) rest: Option<Arc<RestPeer>>,
    /// True while the agent can take work. A program that the gateway starts always can.
    pub(crate) online: Arc<watch::Sender<bool>>,
    /// The sessions that messages share.
    pub(crate) conversations: Arc<Conversations>,
}

impl HostedEntry {
    /// Opens the folder of an agent of the configuration. It blocks.
    pub(crate) fn configured(
        config: &AgentConfig,
        data: &Path,
        processes: Option<ProcessObserver>,
        calls: CallSender,
        gateway: &GatewayConfig,
        result_size: ResultSize,
    ) -> Result<Self, Error> {
        let home = data.join(AgentFolders::Configured.name()).join(&config.id);
        let limits = &gateway.limits;
        if let Some(url) = &config.url {
            let (url, credential) = (url.clone(), credential(config, limits));
            let address = AgentAddress { url, credential, transport: config.transport.into() };
            return HostedEntry::remote(config.clone(), home, Some(address), calls, limits);
        }
        if let Some(url) = &config.rest {
            let rest = Some(RestPeer::new(config, url, gateway, result_size));
            let entry = HostedEntry::remote(config.clone(), home, None, calls, limits)?;
            return Ok(HostedEntry { rest, ..entry });
        }
        let cwd = config.cwd.as_deref().map(work_folder).transpose()?;
        let own = folder(&home.join("home"))?;
        let mut settings = HubSettings::new(command(config, own)?, home);
        let mut roots = config.roots.clone();
        roots.extend(cwd.clone());
        settings.shared_process = config.shared_process;
        settings.policy = policy(Some(roots), config);
        settings.processes = processes;
        let hub = open(settings, config, calls, limits)?;
        let (online, conversations) = (Arc::new(watch::Sender::new(true)), Arc::default());
        Ok(HostedEntry { config: config.clone(), hub, cwd, remote: None, rest: None, online, conversations })
    }

    /// Opens the folder of a program that dials the gateway. It blocks.
    pub(crate) fn attached(
        config: AgentConfig,
        data: &Path,
        calls: CallSender,
        limits: &GatewayLimits,
    ) -> Result<Self, Error> {
        let home = data.join(AgentFolders::Attached.name()).join(&config.id);
        HostedEntry::remote(config, home, None, calls, limits)
    }

    fn remote(
        config: AgentConfig,
        home: PathBuf,
        address: Option<AgentAddress>,
        calls: CallSender,
        limits: &GatewayLimits,
    ) -> Result<Self, Error> {
        let remote = RemoteAgent::new(address);
        let mut settings = HubSettings::new(|| Command::new("false"), home);
        settings.agent = AgentCommand::remote(remote.clone());
        // The folders are those of another machine, which checks them.
        settings.policy = policy(None, &config);
        let hub = open(settings, &config, calls, limits)?;
        let cwd = Some(config.cwd.clone().unwrap_or_else(|| PathBuf::from("/")));
        let (online, conversations) = (Arc::new(watch::Sender::new(false)), Arc::default());
        Ok(HostedEntry { config, hub, cwd, remote: Some(remote), rest: None, online, conversations })
    }

    /// Returns the entry with a new card, for a program that has dialled again.
    pub(crate) fn with_config(&self, config: AgentConfig) -> Self {
        let cwd = config.cwd.clone().or_else(|| self.cwd.clone());
        let (hub, remote, online) = (self.hub.clone(), self.remote.clone(), self.online.clone());
        let (rest, conversations) = (self.rest.clone(), self.conversations.clone());
        HostedEntry { config, hub, cwd, remote, rest, online, conversations }
    }

    /// Returns the entry of the registry.
    pub(crate) fn card(
        &self,
        owner: &str,
        source: RegistrySource,
    ) -> duologue_store::Result<RegisteredAgent> {
        let agent = &self.config;
        let interface = if self.rest.is_some() { "agents" } else { "acp" };
        let mut entry = RegisteredAgent::new(&agent.id, owner, source, format!("/{interface}/{}", agent.id));
        entry.capabilities.clone_from(&agent.capabilities);
        entry.domains.clone_from(&agent.domains);
        entry.tags.clone_from(&agent.tags);
        entry.provider = Some(agent.provider.clone()).filter(|provider| !provider.is_empty());
        let mut card = json!({
            "version": agent.version,
            "provider": agent.provider,
            "supportedMimeTypes": agent.mime_types,
            "maxConcurrentTasks": agent.max_tasks,
        });
        if !agent.keys.is_empty() {
            card[KEYS] = json!(agent.keys);
        }
        entry.card = JsonText::of(&card)?;
        Ok(entry)
    }
}

/// Creates the folder of work. Its path can be misspelt, so the log says that it was not there.
fn work_folder(path: &Path) -> Result<PathBuf, Error> {
    if !path.exists() {
        tracing::warn!(folder = %path.display(), "the folder of an agent's work was not there and is created");
    }
    folder(path)
}

/// Creates a folder, and returns its absolute path without links and `..`, which sessions refuse.
pub(crate) fn folder(path: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(path)
        .and_then(|()| path.canonicalize())
        .map_err(|error| Error::Folder { path: path.to_owned(), error: error.into() })
}

fn policy(roots: Option<Vec<PathBuf>>, agent: &AgentConfig) -> SessionPolicy {
    SessionPolicy { roots, refuses_mcp_programs: !agent.mcp_programs, meta: Some(agent.meta.clone()) }
}

fn open(
    mut settings: HubSettings,
    agent: &AgentConfig,
    calls: CallSender,
    limits: &GatewayLimits,
) -> Result<Hub, Error> {
    (settings.calls, settings.owner.routes_calls) = (Some(calls), true);
    settings.agent_name.clone_from(&agent.id);
    settings.client_files = agent.client_files;
    settings.disk_bytes = agent.disk_bytes;
    settings.principal_sessions = limits.principal_sessions;
    settings.principal_disk_bytes = limits.principal_disk_bytes;
    settings.logs.reserved_bytes = limits.reserved_disk_bytes;
    Hub::open(settings)
}

/// Returns the command of an agent with a clean environment.
fn command(
    agent: &AgentConfig,
    home: PathBuf,
) -> Result<impl Fn() -> Command + Send + Sync + 'static, Error> {
    let (words, env) = (agent.command.clone(), agent.env.read(&agent.id)?);
    Ok(move || {
        let mut words = words.iter();
        let program = words.next().map_or("false", String::as_str);
        let mut command = Command::new(program).args(words).clean_env().env("HOME", &home);
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command = command.env(name, value);
            }
        }
        env.iter().fold(command, |command, (name, value)| command.env(name, value.as_str()))
    })
}

impl GatewayShared {
    /// Returns an agent of the configuration, or one that was attached.
    pub(crate) fn hosted(&self, id: &str) -> Option<Arc<HostedEntry>> {
        self.agents.get(id).cloned().or_else(|| self.attached.lock_unpoisoned().get(id).cloned())
    }

    /// Returns the requests to an agent that serves the REST interface itself.
    pub(crate) fn rest_agent(&self, id: &str) -> Option<Arc<RestPeer>> {
        self.agents.get(id)?.rest.clone()
    }

    /// Returns true for an agent with sessions here whose processes run on another machine.
    pub(crate) fn is_remote(&self, id: &str) -> bool {
        self.hosted(id).is_some_and(|entry| entry.remote.is_some() && entry.rest.is_none())
    }

    /// Returns all agents whose sessions the gateway owns, with those that are gone.
    pub(crate) fn all_hosted(&self) -> Vec<(String, Arc<HostedEntry>)> {
        let of = |(id, entry): (&String, &Arc<HostedEntry>)| (id.clone(), entry.clone());
        let mut all: Vec<_> = self.agents.iter().map(of).collect();
        all.extend(self.attached.lock_unpoisoned().iter().map(of));
        all.extend(self.left.lock_unpoisoned().iter().map(|((_, id), entry)| (id.clone(), entry.clone())));
        all
    }

    /// Opens the folders of agents that are neither in the configuration nor in the registry any more.
    pub(crate) fn open_left(&self) -> Result<(), Error> {
        for kind in [AgentFolders::Configured, AgentFolders::Attached] {
            let Ok(folders) = std::fs::read_dir(self.data.join(kind.name())) else { continue };
            for folder in folders.flatten() {
                let Ok(id) = folder.file_name().into_string() else { continue };
                let is_known = match kind {
                    AgentFolders::Configured => self.agents.contains_key(&id),
                    AgentFolders::Attached => self.attached.lock_unpoisoned().contains_key(&id),
                };
                if is_known || !folder.path().join("sessions").is_dir() {
                    continue;
                }
                let (config, limits) = (AgentConfig::named(&id), &self.config.limits);
                let entry = HostedEntry::remote(config, folder.path(), None, self.calls.clone(), limits)?;
                self.left.lock_unpoisoned().insert((kind, id), Arc::new(entry));
            }
        }
        Ok(())
    }

    /// Returns the folder of an agent that was attached before, for the agent that is attached now.
    pub(crate) fn take_left(&self, id: &str) -> Option<Arc<HostedEntry>> {
        self.left.lock_unpoisoned().remove(&(AgentFolders::Attached, id.to_owned()))
    }

    /// Removes the entries that nobody keeps any more: those of a principal that may not act for the agent, and those of
    /// another principal than the local user whose agent the configuration has. Their ids are free from then on.
    pub(crate) fn remove_unkept(&self) -> duologue_store::Result<()> {
        for source in [RegistrySource::Attached, RegistrySource::Rest] {
            for RegisteredAgent { id, owner, .. } in self.registered(source)? {
                let is_configured = self.agents.contains_key(&id) && owner != LOCAL_PRINCIPAL;
                if !is_configured && self.may_keep(&owner, &id) {
                    continue;
                }
                tracing::warn!(
                    agent = id,
                    principal = owner,
                    "an agent is removed from the registry: its principal may not act for it any more, or the configuration has its id"
                );
                let change = StoreChange::RemoveAgent { agent: id };
                self.store.apply(StoreBatch::new(self.time()).with(change))?;
            }
        }
        Ok(())
    }

    /// Returns true if a principal may act for an agent, also if its key has expired. The roles of the subjects of providers are known
    /// while their requests run.
    fn may_keep(&self, owner: &str, agent: &str) -> bool {
        match self.config.principals.iter().find(|principal| principal.id == *owner) {
            Some(config) => self.policy.allows(&Principal::of(config), Action::Act, agent),
            None => owner == LOCAL_PRINCIPAL || self.config.is_subject(owner),
        }
    }

    /// Puts the agents of the configuration into the registry, and removes those that it has no more. Agents on other
    /// machines are offline until they are reached.
    pub(crate) fn register_agents(&self, batch: &mut StoreBatch) -> duologue_store::Result<()> {
        let now = self.time().wall;
        for (id, agent) in &self.agents {
            let mut entry = agent.card(LOCAL_PRINCIPAL, RegistrySource::Config)?;
            if agent.remote.is_some() {
                entry.last_seen = self.store.agent(id)?.and_then(|known| known.last_seen);
            } else {
                (entry.status, entry.last_seen) = (RegistryStatus::Online, Some(now));
            }
            batch.push(StoreChange::PutAgent(entry));
        }
        for agent in self.registered(RegistrySource::Config)? {
            if !self.agents.contains_key(&agent.id) {
                batch.push(StoreChange::RemoveAgent { agent: agent.id });
            }
        }
        Ok(())
    }

    /// Opens the agents that were attached to an earlier server. They are offline until they dial again.
    pub(crate) fn restore_attached(&self, batch: &mut StoreBatch) -> Result<(), Error> {
        for mut agent in self.registered(RegistrySource::Attached)? {
            if self.agents.contains_key(&agent.id) {
                continue;
            }
            // An earlier version has let a program attach with such an id.
            if check_agent_id(&agent.id).is_err() {
                batch.push(StoreChange::RemoveAgent { agent: agent.id });
                continue;
            }
            let Some(config) = AgentConfig::of_card(&agent) else { continue };
            let entry = HostedEntry::attached(config, &self.data, self.calls.clone(), &self.config.limits)?;
            self.attached.lock_unpoisoned().insert(agent.id.clone(), Arc::new(entry));
            _ = self.arrivals.send(agent.id.clone());
            agent.status = RegistryStatus::Offline;
            batch.push(StoreChange::PutAgent(agent));
        }
        Ok(())
    }

    /// Returns the entries of an origin.
    fn registered(&self, source: RegistrySource) -> duologue_store::Result<Vec<RegisteredAgent>> {
        let mut query = AgentQuery::default();
        query.source = Some(source);
        let mut all = Vec::new();
        loop {
            let page = self.store.agents(&query)?;
            let count = page.items.len() as u64;
            all.extend(page.items);
            query.offset += count;
            if count == 0 || query.offset >= page.total {
                return Ok(all);
            }
        }
    }
}

impl AgentConfig {
    /// Creates the configuration of an attached agent from its entry in the registry.
    fn of_card(agent: &RegisteredAgent) -> Option<Self> {
        let card: serde_json::Value = agent.card.parse().ok()?;
        let mut config = AgentConfig::named(&agent.id);
        config.max_tasks = usize::try_from(card["maxConcurrentTasks"].as_u64()?).ok()?;
        Some(config)
    }
}
