//! The settings of a hub.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use duologue_client::Command;
use duologue_store::LogSettings;

use crate::error::Error;
use crate::owner::OwnerSettings;
#[cfg(feature = "gateway")]
use crate::remote_agent::RemoteAgent;
use crate::session_policy::SessionPolicy;
use crate::session_task::CallSender;

/// The settings of a hub.
#[derive(Debug)]
#[non_exhaustive]
pub struct HubSettings {
    /// Creates the command of an agent.
    pub agent: AgentCommand,
    /// The name of the agent in the list of sessions. `agent` by default.
    pub agent_name: String,
    /// The folder of the sessions' logs.
    pub data: PathBuf,
    /// Lets agents request files and terminals from clients. False by default: an agent uses those of its machine.
    pub client_files: bool,
    /// Lets all sessions use one process. False by default: each session has a process of its own. If a shared process
    /// ends, the turns of all sessions end as interrupted.
    pub shared_process: bool,
    /// Limit on the sessions whose process or client is there. 1,024 by default.
    pub sessions: usize,
    /// The same, of one principal. 1,024 by default.
    pub principal_sessions: usize,
    /// Limit on the requests that belong to no session, such as logins and queries. Each has a process, unless all sessions
    /// share one. 16 by default.
    pub requests_without_session: usize,
    /// Limit on the conversations in memory that clients load. Other loads wait. 4 by default.
    pub loads: usize,
    /// The time after which a client that does not read a conversation makes room for another load that waits. The rest of
    /// the conversation is read again when the client has read more. 5 seconds by default.
    pub load_turn: Duration,
    /// The time in which an agent answers `initialize`, and creates or restores a session. 120 seconds by default. The
    /// process of one that does not is ended.
    pub agent_timeout: Duration,
    /// The time for which a process without a session is kept for the next one: it was started to introduce the agent to a
    /// client, or for a login. 60 seconds by default. Later clients get the same introduction without a process.
    pub spare_process: Duration,
    /// The folders and programs that sessions may use. Everything by default.
    pub policy: SessionPolicy,
    /// Receives an event for each start and end of a process, for example to end them if this process is killed.
    pub processes: Option<ProcessObserver>,
    /// The settings of each session.
    pub owner: OwnerSettings,
    /// The bytes of all logs at which new sessions are refused. 100 GiB by default. Sessions that exist go on, each to the
    /// limit of its log. It is compared with a sum that is at most 10 seconds old.
    pub disk_bytes: u64,
    /// The same for the logs of one principal. 100 GiB by default.
    pub principal_disk_bytes: u64,
    /// Receives the requests of agents to other agents, if [`OwnerSettings::routes_calls`] is set.
    pub(crate) calls: Option<CallSender>,
    /// The limits of the logs.
    pub logs: LogSettings,
}

/// The default of [`HubSettings::disk_bytes`].
pub(crate) const DISK_BYTES: u64 = 100 * 1024 * 1024 * 1024;

/// Creates the command of an agent.
pub struct AgentCommand(pub(super) AgentLaunch);

/// The origin of an agent's transport.
pub(super) enum AgentLaunch {
    Command(Box<dyn Fn() -> Command + Send + Sync>),
    #[cfg(feature = "gateway")]
    Remote(Arc<RemoteAgent>),
}

impl AgentCommand {
    /// Creates it from a closure.
    pub fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        AgentCommand(AgentLaunch::Command(Box::new(command)))
    }

    /// Creates the place of an agent on another machine. All sessions share its connection.
    #[cfg(feature = "gateway")]
    pub(crate) fn remote(agent: Arc<RemoteAgent>) -> Self {
        AgentCommand(AgentLaunch::Remote(agent))
    }

    pub(super) fn is_shared(&self) -> bool {
        !matches!(self.0, AgentLaunch::Command(_))
    }

    /// Refuses requests for an agent on another machine that is away.
    pub(super) fn require_reachable(&self) -> Result<(), Error> {
        match &self.0 {
            AgentLaunch::Command(_) => Ok(()),
            #[cfg(feature = "gateway")]
            AgentLaunch::Remote(agent) => agent.require_reachable(),
        }
    }
}

impl std::fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentCommand").finish_non_exhaustive()
    }
}

/// A change of the processes of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessEvent {
    /// An agent was started. On Unix the id of the process is that of its group too.
    Started(u32),
    /// The agent and the rest of its group have ended.
    Ended(u32),
}

/// A receiver of [`ProcessEvent`]s. It is called on a thread of the runtime and must not block.
#[derive(Clone)]
pub struct ProcessObserver(Arc<dyn Fn(ProcessEvent) + Send + Sync>);

impl ProcessObserver {
    /// Creates it from a closure.
    pub fn new(observe: impl Fn(ProcessEvent) + Send + Sync + 'static) -> Self {
        ProcessObserver(Arc::new(observe))
    }

    pub(crate) fn report(&self, event: ProcessEvent) {
        (self.0)(event);
    }
}

impl std::fmt::Debug for ProcessObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessObserver").finish_non_exhaustive()
    }
}

impl HubSettings {
    /// Creates settings for the command of an agent and the folder of the logs.
    pub fn new(agent: impl Fn() -> Command + Send + Sync + 'static, data: impl Into<PathBuf>) -> Self {
        HubSettings {
            agent: AgentCommand::new(agent),
            agent_name: "agent".to_owned(),
            data: data.into(),
            client_files: false,
            shared_process: false,
            sessions: 1024,
            principal_sessions: 1024,
            requests_without_session: 16,
            loads: 4,
            load_turn: Duration::from_secs(5),
            agent_timeout: Duration::from_secs(120),
            spare_process: Duration::from_secs(60),
            policy: SessionPolicy::default(),
            processes: None,
            owner: OwnerSettings::default(),
            disk_bytes: DISK_BYTES,
            principal_disk_bytes: DISK_BYTES,
            calls: None,
            logs: LogSettings::default(),
        }
    }
}
