//! The configuration file of a gateway, `hub.toml`.

mod limits;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use duologue_client::exchange::dialogue::PublishedKey;
use duologue_http::RemoteTransport;
use duologue_rpc::SecretText;
use duologue_schema::{PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, printable};
use serde::Deserialize;

pub use self::limits::GatewayLimits;
use crate::error::Error;
use crate::gateway::access::{ADMIN, ALL_AGENTS, AccessRule, Action};
use crate::gateway::agent_environment::{AgentEnvironment, SecretSetting};
use crate::gateway::hosted::check_keys;
use crate::gateway::keys::key_expiry;
use crate::gateway::rest::request::known_path;
use crate::gateway::rest_agent::outbound_settings;
use crate::gateway::result_size::check_result_bytes;
use crate::gateway::routing::OPERATOR;
use crate::hub::DISK_BYTES;
use crate::outbound::OutboundClient;
use crate::secret_source::{SecretSource, resolve_program};
use crate::webhook::WebhookSecret;

/// The configuration of a gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// The address of the TCP listener. Without one there is only the socket in the data folder.
    #[serde(default)]
    pub listen: Option<SocketAddr>,
    /// The folder of the logs, the store and the token. Relative to the file.
    #[serde(default)]
    pub data: Option<PathBuf>,
    /// The agents that the gateway starts.
    #[serde(default)]
    pub agents: Vec<AgentConfig>,
    /// The principals beside the local user, who has the token of the data folder.
    #[serde(default)]
    pub principals: Vec<PrincipalConfig>,
    /// The providers whose JSON Web Tokens are accepted. Needs the feature `tokens`.
    #[serde(default)]
    pub token_providers: Vec<TokenProvider>,
    /// The permissions of the roles. Without a rule for a role it has none. The role `admin` has all permissions.
    #[serde(default)]
    pub rules: Vec<AccessRule>,
    /// Allows callbacks to loopback addresses, and agents with `rest` on them. False by default.
    #[serde(default)]
    pub loopback_callbacks: bool,
    /// The limits of the gateway.
    #[serde(default)]
    pub limits: GatewayLimits,
}

/// An agent that the gateway starts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentConfig {
    /// The id in addresses: 1 to 64 of `a` to `z`, `A` to `Z`, `0` to `9`, `.`, `_` and `-`.
    pub id: String,
    /// The program and its arguments. A relative path with a `/` is relative to the file.
    #[serde(default)]
    pub command: Vec<String>,
    /// The ACP address of an agent that runs elsewhere, in the place of a command: `ws`, `wss`, `http` or `https`.
    #[serde(default)]
    pub url: Option<String>,
    /// The address of an agent that serves the REST interface itself, in the place of a command: `http` or `https`. Its
    /// routes are below `/agents/` with the id.
    #[serde(default)]
    pub rest: Option<String>,
    /// The source of the token for `url` or `rest`.
    #[serde(default)]
    pub auth: Option<SecretSource>,
    /// The transport to `url`. A WebSocket if the server has one, by default.
    #[serde(default)]
    pub transport: AgentTransport,
    /// Variables of its environment. It inherits `PATH`, `LANG` and `TZ` only. A secret has a source in the place of its text.
    #[serde(default)]
    pub env: AgentEnvironment,
    /// The folder of tasks and messages. They are refused without one.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// The folders that sessions may use, with what is in them. `cwd` is one too.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// Allows clients to name programs as MCP servers, which the agent starts. False by default.
    #[serde(default)]
    pub mcp_programs: bool,
    /// The keys of `_meta` that reach the agent when a client opens a session. None but those of a trace by default, because
    /// some agents read settings from them, such as programs to run.
    #[serde(default)]
    pub meta: Vec<String>,
    /// Lets the agent request files and terminals from clients. False by default.
    #[serde(default)]
    pub client_files: bool,
    /// One process for all sessions, in the place of one for each. False by default.
    #[serde(default)]
    pub shared_process: bool,
    /// Gives it tasks as delegations, and messages of the types `query` and `notify` as envelopes. False by default: all of
    /// them are prompts.
    #[serde(default)]
    pub envelopes: bool,
    /// The answers to the questions of its tasks and messages. `ask` by default.
    #[serde(default)]
    pub questions: WorkQuestions,
    /// The sessions of its messages. `one-per-task` by default.
    #[serde(default)]
    pub sessions: WorkSessions,
    /// The seconds for which a session that messages share stays open without one. Its process then ends, and its next
    /// message restores it. 600 by default.
    #[serde(default = "default_idle")]
    pub idle_seconds: u64,
    /// The sessions that messages share and that are open without one. Beyond it one is closed: of the principal with the
    /// most, the one that is idle for the longest time. 16 by default.
    #[serde(default = "default_idle_sessions")]
    pub max_idle_sessions: usize,
    /// `shared`: all principals trust each other with the files and the account of this agent.
    #[serde(default)]
    pub trust: Option<Trust>,
    /// The names of its capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The domains of its knowledge.
    #[serde(default)]
    pub domains: Vec<String>,
    /// Other words by which it is found.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The keys of its signatures in dialogues, without secrets and private keys.
    #[serde(default)]
    pub keys: Vec<PublishedKey>,
    /// The provider.
    #[serde(default)]
    pub provider: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The MIME types that it accepts. `text/plain` by default.
    #[serde(default = "text_only")]
    pub mime_types: Vec<String>,
    /// The tasks that run at a time. 4 by default. With principals, one has at most as many of these places as it
    /// leaves to others.
    #[serde(default = "default_tasks")]
    pub max_tasks: usize,
    /// The further tasks that wait for answers of their owners, or did, 4 by default. A task that asks leaves its
    /// place among `max_tasks` for one of these until its end, if one is free for its owner by the same rule. With 0
    /// it keeps its place.
    #[serde(default = "default_tasks")]
    pub max_asking_tasks: usize,
    /// The messages that are answered at a time. 4 by default. Principals share them as those of tasks.
    #[serde(default = "default_tasks")]
    pub max_messages: usize,
    /// The bytes of the logs of its sessions at which new sessions are refused. 100 GiB by default.
    #[serde(default = "default_disk")]
    pub disk_bytes: u64,
}

/// The answers to the questions that an agent has about tasks and messages. Questions in the sessions of clients are theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkQuestions {
    /// The owner of a task answers, over REST. A message has nobody who answers, so its questions are cancelled.
    #[default]
    Ask,
    /// Each is answered with its option of the kind `reject_once`. One without it, or with several, is cancelled.
    Reject,
    /// Each is answered with its option of the kind `allow_once`. One without it, or with several, is cancelled.
    Allow,
}

impl WorkQuestions {
    /// Returns the answer to a question, unless it is a user's.
    pub(crate) fn answer(self, question: &RequestPermissionRequest) -> Option<RequestPermissionOutcome> {
        let kind = match self {
            WorkQuestions::Ask => return None,
            WorkQuestions::Reject => PermissionOptionKind::RejectOnce,
            WorkQuestions::Allow => PermissionOptionKind::AllowOnce,
        };
        let mut of_kind = question.options.iter().filter(|option| option.kind == kind);
        let only = of_kind.next().filter(|_| of_kind.next().is_none());
        let only = only.and_then(|option| question.option(&option.option_id));
        Some(only.map_or(RequestPermissionOutcome::Cancelled, |option| {
            RequestPermissionOutcome::selected(option.option_id.clone())
        }))
    }
}

/// The sessions of the messages to an agent. Each task has a session of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkSessions {
    /// Each message has a session of its own.
    #[default]
    OnePerTask,
    /// Messages of a principal with the same `correlationId` share one, so that the agent remembers the earlier ones. The others
    /// have a session each.
    PerCorrelation,
}

/// The transport to an agent that runs elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentTransport {
    /// A WebSocket, and HTTP with SSE if the server has none.
    #[default]
    Auto,
    /// A WebSocket.
    Ws,
    /// HTTP with SSE.
    Sse,
}

impl From<AgentTransport> for RemoteTransport {
    fn from(transport: AgentTransport) -> Self {
        match transport {
            AgentTransport::Auto => RemoteTransport::Auto,
            AgentTransport::Ws => RemoteTransport::WebSocket,
            AgentTransport::Sse => RemoteTransport::Events,
        }
    }
}

/// The relation of the principals that use an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trust {
    /// They trust each other with the files and the account of the agent.
    Shared,
}

/// A user or a program with an API key or a client certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PrincipalConfig {
    /// The id, which is the owner of sessions, tasks and messages.
    pub id: String,
    /// The SHA-256 of its key in hexadecimal digits. Without one it needs a certificate.
    #[serde(default)]
    pub key_sha256: Option<SecretText>,
    /// The name in its client certificate: a DNS name or a URI.
    #[serde(default)]
    pub certificate: Option<String>,
    /// The time at which the key expires, such as `2027-01-31T00:00:00Z`. Without one it does not.
    #[serde(default)]
    pub key_expires: Option<String>,
    /// Its roles.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The agent that this principal is. It takes the messages of that agent and sends in its name.
    #[serde(default)]
    pub agent: Option<String>,
    /// The secret that signs callbacks to this principal, at least 32 characters. A source is read when the gateway is opened.
    #[serde(default)]
    pub webhook_secret: Option<SecretSetting>,
}

/// A provider of JSON Web Tokens, such as the login server of a company.
///
/// A token is a bearer credential with the claims `iss`, `sub`, `aud` and `exp`, signed with `RS256`, `ES256` or `EdDSA`. It counts
/// until `exp`. Its principal is `NAME/SUBJECT`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TokenProvider {
    /// The name of the provider in the ids of its principals: 1 to 64 of `a` to `z`, `A` to `Z`, `0` to `9`, `.`, `_` and `-`.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// The value that the claim `aud` has, or one of its values.
    pub audience: String,
    /// The address of its keys, a JSON Web Key Set: `https`, or `http` on a loopback address.
    pub keys_url: String,
    /// The roles of all its principals.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The claim with more roles: an array of names, or names with spaces between them. The role `admin` in it does not count.
    #[serde(default)]
    pub roles_claim: Option<String>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The file is not TOML of this form.
    #[error("{path}, line {line}: {reason}")]
    Form {
        /// The file.
        path: PathBuf,
        /// The number of the line. Its text may have a secret.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A value does not fit.
    #[error("{path}: {reason}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The place, the value and the remedy.
        reason: String,
    },
}

impl GatewayConfig {
    /// Reads a file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    ///
    /// All of [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |error| ConfigError::File { path: path.into(), error };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let folder = std::path::absolute(path).map_err(failed)?;
        let form = |error: &toml::de::Error, reason: String| {
            let before = text.bytes().take(error.span().map_or(0, |span| span.start));
            let line = before.filter(|byte| *byte == b'\n').count() + 1;
            ConfigError::Form { path: path.into(), line, reason }
        };
        let parsed =
            toml::Deserializer::parse(&text).map_err(|error| form(&error, error.message().to_owned()))?;
        let mut config: GatewayConfig = serde_path_to_error::deserialize(parsed).map_err(|error| {
            let (key, error) = (known_path(error.path()).unwrap_or_default(), error.inner());
            form(error, value_fault(&key, error.message()))
        })?;
        config.resolve(folder.parent().unwrap_or(Path::new("/")));
        config.check().map_err(|reason| ConfigError::Value { path: path.into(), reason })?;
        Ok(config)
    }

    fn resolve(&mut self, folder: &Path) {
        self.data = self.data.take().map(|data| folder.join(data));
        for secret in self.principals.iter_mut().filter_map(|principal| principal.webhook_secret.as_mut()) {
            secret.resolve(folder);
        }
        for agent in &mut self.agents {
            if let Some(source) = &mut agent.auth {
                source.resolve(folder);
            }
            agent.env.resolve(folder);
            if agent.url.is_some() {
                // Its folders are those of another machine.
                continue;
            }
            agent.cwd = agent.cwd.take().map(|cwd| folder.join(cwd));
            for root in &mut agent.roots {
                *root = folder.join(&*root);
            }
            resolve_program(&mut agent.command, folder);
        }
    }

    /// Returns the reason for which the values do not fit together.
    fn check(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        for agent in &self.agents {
            let id = &agent.id;
            check_agent_id(id).map_err(|why| format!("agents.id is {id:?}; {why}"))?;
            if !ids.insert(id) {
                return Err(format!("two agents have the id {id:?}; use another `agents.id`"));
            }
            agent.check_address(self)?;
            agent.check_auth()?;
            for (name, limit) in [("max_tasks", agent.max_tasks), ("max_messages", agent.max_messages)] {
                if limit == 0 {
                    return Err(format!("agents.{name} of {id:?} is 0; use 1 or more"));
                }
            }
            check_keys(&agent.keys).map_err(|why| format!("agents.keys of {id:?}: {why}"))?;
            // The token's owner is one principal more.
            if self.has_principals() && agent.trust.is_none() {
                return Err(format!(
                    "the agent {id:?} would run for several principals with the same files and account; set trust = \"shared\" if they trust each other, or serve it elsewhere"
                ));
            }
        }
        let mut providers = HashSet::new();
        for provider in &self.token_providers {
            provider.check()?;
            if !providers.insert(&provider.name) {
                return Err(format!(
                    "two token_providers have the name {:?}; use another one",
                    provider.name
                ));
            }
        }
        let mut issuers = HashSet::new();
        if let Some(twice) = self.token_providers.iter().find(|provider| !issuers.insert(&provider.issuer)) {
            return Err(format!(
                "two token_providers have the issuer {:?}; remove one of them",
                twice.issuer
            ));
        }
        let mut names = HashSet::from([LOCAL_PRINCIPAL]);
        let (mut keys, mut certificates) = (HashSet::new(), HashSet::new());
        for principal in &self.principals {
            let id = &principal.id;
            if !is_principal_id(id) {
                return Err(format!(
                    "principals.id is {id:?}; use 1 to 128 bytes of visible characters, and not `.` or `..`"
                ));
            }
            if id.split_once('/').is_some_and(|(name, _)| providers.iter().any(|provider| *provider == name))
            {
                return Err(format!(
                    "principals.id is {id:?}, which is a principal of a token provider; use another id"
                ));
            }
            if providers.contains(id) {
                return Err(format!(
                    "principals.id is {id:?}, which is the name of a token provider; use another id"
                ));
            }
            if let Some(agent) = &principal.agent {
                check_agent_id(agent)
                    .map_err(|why| format!("principals.agent of {id:?} is {agent:?}: {why}"))?;
            }
            if !names.insert(id) {
                return Err(format!(
                    "two principals have the id {id:?} (`{LOCAL_PRINCIPAL}` is the local user); use another id"
                ));
            }
            if let Some(key) = principal.key_sha256.as_ref().map(SecretText::as_str) {
                if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(format!("key_sha256 of {id:?} is not a SHA-256; use 64 hexadecimal digits"));
                }
                if !keys.insert(key.to_ascii_lowercase()) {
                    return Err(format!(
                        "key_sha256 of {id:?} is that of another principal; make another key"
                    ));
                }
            } else if principal.certificate.is_none() {
                return Err(format!("{id:?} has neither key_sha256 nor certificate; set one of them"));
            }
            if let Some(name) = &principal.certificate {
                if name.is_empty() || name.contains('*') {
                    return Err(format!(
                        "certificate of {id:?} is {name:?}; use one name, without a wildcard"
                    ));
                }
                if !certificates.insert(name.to_ascii_lowercase()) {
                    return Err(format!(
                        "certificate of {id:?} is {name:?}, which another principal has; use another name"
                    ));
                }
            }
            if principal.key_expires.is_some() && principal.key_sha256.is_none() {
                return Err(format!(
                    "key_expires of {id:?} limits no key; remove it, a certificate has a time of its own"
                ));
            }
            if let Some(expires) = principal.key_expires.as_ref().filter(|text| key_expiry(text).is_none()) {
                return Err(format!(
                    "key_expires of {id:?} is {expires:?}; use a time with its offset, such as \"2027-01-31T00:00:00Z\""
                ));
            }
            if let Some(SecretSetting::Text(_)) = principal.webhook_secret {
                principal.webhook_secret().map_err(|error| error.to_string())?;
            }
        }
        // A principal sends in its own name, in that of its agent, and in those that begin with one of them and a slash.
        for principal in &self.principals {
            let id = principal.id.as_str();
            if let Some(name) = id.match_indices('/').find_map(|(end, _)| names.get(id.get(..end)?)) {
                return Err(format!(
                    "principals.id is {id:?}, and another one is {name:?}; use ids that do not continue others"
                ));
            }
            if let Some(agent) = principal.agent.as_ref().filter(|agent| providers.contains(agent)) {
                return Err(format!(
                    "principals.agent of {id:?} is {agent:?}, which is the name of a token provider; use another id"
                ));
            }
            if let Some(agent) =
                principal.agent.as_ref().filter(|agent| *agent != id && names.contains(agent.as_str()))
            {
                return Err(format!(
                    "principals.agent of {id:?} is {agent:?}, which is the id of another principal; use another id"
                ));
            }
        }
        check_result_bytes(self.limits.result_bytes)?;
        self.check_rules()
    }

    /// Returns the reason for which a rule has no effect, or a role has no rule: a word that is misspelt.
    fn check_rules(&self) -> Result<(), String> {
        let roles_of_principals = self.principals.iter().map(|principal| (&principal.id, &principal.roles));
        let roles_of_providers =
            self.token_providers.iter().map(|provider| (&provider.name, &provider.roles));
        for (id, roles) in roles_of_principals.chain(roles_of_providers) {
            let is_known =
                |role: &&String| *role == ADMIN || self.rules.iter().any(|rule| rule.role == **role);
            if let Some(role) = roles.iter().find(|role| !is_known(role)) {
                return Err(format!(
                    "{id:?} has the role {role:?}, for which there is no rule; add one to `rules`"
                ));
            }
        }
        for principal in &self.principals {
            if let Some((role, agent)) = self.undiscovered(principal) {
                let id = &principal.id;
                return Err(format!(
                    "{id:?} may send messages or tasks to the agent {agent:?} by its role {role:?}, and may not discover it; add `discover` to a rule of its roles"
                ));
            }
        }
        let is_agent = |id: &String| {
            let mut of_principals = self.principals.iter().filter_map(|principal| principal.agent.as_ref());
            id == ALL_AGENTS
                || self.agents.iter().any(|agent| agent.id == *id)
                || of_principals.any(|agent| agent == id)
        };
        for rule in &self.rules {
            let role = &rule.role;
            if rule.actions.contains(&Action::Operate) && !rule.agents.iter().any(|agent| agent == ALL_AGENTS)
            {
                return Err(format!(
                    "a rule gives the role {role:?} `operate` for single agents, which has no effect; use agents = [\"*\"]"
                ));
            }
            if let Some(agent) = rule.agents.iter().find(|agent| !is_agent(agent)) {
                return Err(format!(
                    "a rule of the role {role:?} names the agent {agent:?}, which is neither in `agents` nor the `agent` of a principal; name one of them, or \"*\""
                ));
            }
        }
        Ok(())
    }
}

impl GatewayConfig {
    /// Returns a role by which a principal may send work to an agent that it can never find, and the agent.
    fn undiscovered<'a>(&'a self, principal: &'a PrincipalConfig) -> Option<(&'a str, &'a str)> {
        if principal.roles.iter().any(|role| role == ADMIN) {
            return None;
        }
        let own = self.rules.iter().filter(|rule| principal.roles.contains(&rule.role));
        let finds = |agent: &String| {
            principal.agent.as_ref() == Some(agent)
                || own.clone().filter(|rule| rule.actions.contains(&Action::Discover)).any(|rule| {
                    agent == ALL_AGENTS || rule.agents.iter().any(|it| it == ALL_AGENTS || it == agent)
                })
        };
        let works = |rule: &&AccessRule| {
            rule.actions.iter().any(|action| matches!(action, Action::Message | Action::Task))
        };
        own.clone().filter(works).find_map(|rule| {
            let agent = rule.agents.iter().find(|agent| !finds(agent))?;
            Some((rule.role.as_str(), agent.as_str()))
        })
    }

    /// Returns true if there are principals beside the local user.
    pub(crate) fn has_principals(&self) -> bool {
        !self.principals.is_empty() || !self.token_providers.is_empty()
    }

    /// Returns the beginnings of the ids of all subjects of the providers.
    pub(crate) fn subject_prefixes(&self) -> impl Iterator<Item = String> {
        self.token_providers.iter().map(|provider| format!("{}/", provider.name))
    }

    /// Returns true if a principal is a subject of a provider.
    pub(crate) fn is_subject(&self, principal: &str) -> bool {
        self.subject_prefixes().any(|prefix| principal.starts_with(&prefix))
    }
}

impl TokenProvider {
    /// Returns the reason for which the provider cannot be used.
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if !cfg!(feature = "tokens") {
            return Err(format!(
                "the token provider {name:?} needs a program that was built with the feature `tokens`"
            ));
        }
        if !is_agent_id(name) {
            return Err(format!(
                "token_providers.name is {name:?}; use 1 to 64 letters, digits, `.`, `_` and `-`"
            ));
        }
        if self.issuer.is_empty() || self.audience.is_empty() {
            return Err(format!("issuer or audience of the token provider {name:?} is empty; set both"));
        }
        let url = &self.keys_url;
        let is_local = url.starts_with("http://") && duologue_http::raw::is_loopback(url);
        if !url.starts_with("https://") && !is_local {
            return Err(format!(
                "keys_url of the token provider {name:?} is {url:?}; use https, or http with a loopback address"
            ));
        }
        Ok(())
    }
}

impl AgentConfig {
    /// Returns the reason for which the agent cannot be reached.
    fn check_address(&self, gateway: &GatewayConfig) -> Result<(), String> {
        let id = &self.id;
        let has_command = self.command.first().is_some_and(|program| !program.is_empty());
        match (has_command, &self.url, &self.rest) {
            (true, None, None) => return Ok(()),
            (false, None, None) => {
                return Err(format!("the agent {id:?} has no command, no url and no rest; set one of them"));
            }
            (false, Some(_), None) if !self.cwd.as_ref().is_some_and(|cwd| cwd.is_absolute()) => {
                return Err(format!(
                    "the agent {id:?} has a url and no folder; set `cwd` to an absolute one of its machine"
                ));
            }
            (false, Some(_), None) => {}
            (false, None, Some(rest)) => {
                let checked = OutboundClient::new(outbound_settings(gateway)).check(rest);
                let is_plain = checked.map_err(|error| format!("rest of the agent {id:?}: {error}"))?.path;
                if is_plain.contains('?') {
                    return Err(format!("rest of the agent {id:?} has a query; name the server and a path"));
                }
                if self.cwd.is_some()
                    || self.envelopes
                    || self.client_files
                    || self.questions != WorkQuestions::Ask
                    || self.sessions != WorkSessions::OnePerTask
                {
                    return Err(format!(
                        "cwd, envelopes, client_files, questions and sessions of the agent {id:?} are for agents of ACP; remove them"
                    ));
                }
            }
            _ => {
                return Err(format!(
                    "the agent {id:?} has several of command, url and rest; use one of them"
                ));
            }
        }
        if !self.env.0.is_empty() || !self.roots.is_empty() || self.shared_process {
            return Err(format!(
                "env, roots and shared_process of the agent {id:?} are for commands; set them on its own server"
            ));
        }
        Ok(())
    }

    /// Returns the reason for which the credential cannot be used.
    fn check_auth(&self) -> Result<(), String> {
        let id = &self.id;
        match (&self.auth, self.url.as_ref().or(self.rest.as_ref())) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(format!("auth of the agent {id:?} is for `url` and `rest`; remove it")),
            (Some(SecretSource::Command(words)), _) if words.first().is_none_or(String::is_empty) => {
                Err(format!("the command of auth of the agent {id:?} is empty; name a program"))
            }
            (Some(_), Some(url)) => {
                let is_secure = url.starts_with("https://") || url.starts_with("wss://");
                match is_secure || duologue_http::raw::is_loopback(url) {
                    true => Ok(()),
                    false => Err(format!(
                        "the agent {id:?} has auth, which would be sent without encryption; use https or wss, or a loopback address"
                    )),
                }
            }
        }
    }
}

/// The longest id of a principal, in bytes. The store has no longer ones.
const PRINCIPAL_ID_BYTES: usize = 128;

/// Returns true for a text that can be the id of a principal: visible characters, and a part of a path.
pub(crate) fn is_principal_id(id: &str) -> bool {
    let is_shown = |id: &str| !id.contains(char::is_control) && printable(id) == id;
    (1..=PRINCIPAL_ID_BYTES).contains(&id.len()) && id != "." && id != ".." && is_shown(id)
}

/// The principal of the token in the data folder. It has all permissions.
pub const LOCAL_PRINCIPAL: &str = "local";

/// Returns the reason for which no program can be the agent with an id.
pub(crate) fn check_agent_id(id: &str) -> Result<(), String> {
    if !is_agent_id(id) {
        return Err("use 1 to 64 letters, digits, `.`, `_` and `-`".to_owned());
    }
    if id == OPERATOR {
        return Err(format!("`{OPERATOR}` is the inbox of an administrator; use another id"));
    }
    Ok(())
}

/// Returns true for a text that can be the id of an agent.
pub(crate) fn is_agent_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&id.len()) && id.bytes().all(fits) && id != "." && id != ".."
}

impl AccessRule {
    /// Returns true if the rule gives a role an action on an agent.
    pub(crate) fn allows(&self, role: &str, action: Action, agent: &str) -> bool {
        let is_agent = self.agents.iter().any(|pattern| pattern == ALL_AGENTS || pattern == agent);
        self.role == role && is_agent && self.actions.contains(&action)
    }
}

impl PrincipalConfig {
    /// Returns the secret of callbacks. It blocks.
    pub(crate) fn webhook_secret(&self) -> Result<Option<SecretText>, Error> {
        let Some(secret) = &self.webhook_secret else { return Ok(None) };
        let place = || format!("principals.webhook_secret of {:?}", self.id);
        let secret = secret.read(place)?;
        match WebhookSecret::new(secret.as_str()) {
            Ok(_) => Ok(Some(secret)),
            Err(error) => Err(Error::Secret { place: place(), reason: error.to_string() }),
        }
    }
}

/// Returns the reason for which the value of a key has a wrong form.
fn value_fault(key: &str, reason: &str) -> String {
    // The names of types are those of Rust.
    let reason = ["usize", "u64", "u32"].iter().fold(reason.to_owned(), |reason, number| {
        reason.replace(&format!("expected {number}"), "expected a whole number")
    });
    match key {
        "" => reason,
        "listen" => format!("listen: {reason}; use numbers with a port, such as \"127.0.0.1:8931\""),
        // It has a meaning elsewhere.
        key if key.starts_with("rules[") && reason.starts_with("unknown variant `act`") => {
            format!("{key}: {reason}; set `agent` of the principal that acts for an agent")
        }
        key => format!("{key}: {reason}"),
    }
}

fn default_disk() -> u64 {
    DISK_BYTES
}

fn default_tasks() -> usize {
    4
}

fn default_idle() -> u64 {
    600
}

fn default_idle_sessions() -> usize {
    16
}

fn text_only() -> Vec<String> {
    vec!["text/plain".to_owned()]
}

#[cfg(test)]
mod tests;
