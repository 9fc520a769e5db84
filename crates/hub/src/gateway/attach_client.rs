//! The side of a program that dials a gateway and serves as one of its agents.

use std::path::PathBuf;
use std::time::Duration;

use duologue_client::exchange::dialogue::PublishedKey;
use duologue_http::{ConnectOptions, Error as HttpError, RemoteTransport, connect};
use duologue_rpc::raw_message::call_line;
use duologue_rpc::{Limits, ResponseOutcome, RpcMessage, Transport};
use duologue_schema::{Error as RpcError, InitializeRequest, Request as _};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::error::Error;
use crate::gateway::attach::{ATTACH, first_line};
use crate::gateway::config::AgentConfig;
use crate::gateway::pauses::DoublingPause;
use crate::hub::Hub;

/// The pause before another attempt.
const PAUSE: DoublingPause =
    DoublingPause { first: Duration::from_millis(250), longest: Duration::from_secs(15) };

/// The description of an attached agent, for the registry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct AttachmentCard {
    /// The names of its capabilities.
    pub capabilities: Vec<String>,
    /// The domains of its knowledge.
    pub domains: Vec<String>,
    /// Other words by which it is found.
    pub tags: Vec<String>,
    /// The keys of its signatures in dialogues, without secrets and private keys.
    pub keys: Vec<PublishedKey>,
    /// The provider.
    pub provider: String,
    /// The version.
    pub version: String,
    /// The folder of tasks and messages, on the machine of the program.
    pub cwd: Option<PathBuf>,
    /// The tasks that run at a time. 4 by default.
    pub max_tasks: Option<usize>,
    /// The further tasks that wait for answers of their owners, or did, as [`AgentConfig::max_asking_tasks`]. 4 by default.
    pub max_asking_tasks: Option<usize>,
    /// The messages that are answered at a time. 4 by default.
    pub max_messages: Option<usize>,
}

impl AttachmentCard {
    /// Returns the configuration of the agent at the gateway.
    pub(crate) fn into_config(self, id: &str) -> AgentConfig {
        let mut config = AgentConfig::named(id);
        let AttachmentCard {
            capabilities,
            domains,
            tags,
            keys,
            provider,
            version,
            cwd,
            max_tasks,
            max_asking_tasks,
            max_messages,
        } = self;
        (config.capabilities, config.domains, config.tags) = (capabilities, domains, tags);
        (config.provider, config.version, config.keys) = (provider, version, keys);
        config.cwd = cwd.filter(|cwd| cwd.is_absolute());
        config.max_tasks = max_tasks.unwrap_or(config.max_tasks).max(1);
        config.max_asking_tasks = max_asking_tasks.unwrap_or(config.max_asking_tasks);
        config.max_messages = max_messages.unwrap_or(config.max_messages).max(1);
        config
    }
}

/// The gateway that a program dials, and the agent that it is there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentAttachment {
    /// The address of the gateway, such as `wss://hub.example`.
    pub url: String,
    /// The id of the agent. Without one it is the agent of the key's principal.
    pub agent: Option<String>,
    /// The settings of the connection.
    pub options: ConnectOptions,
    /// The description.
    pub card: AttachmentCard,
}

impl AgentAttachment {
    /// Creates an attachment to a gateway.
    pub fn new(url: impl Into<String>, options: ConnectOptions) -> Self {
        AgentAttachment { url: url.into(), agent: None, options, card: AttachmentCard::default() }
    }

    fn address(&self) -> String {
        let base = self.url.trim_end_matches('/').trim_end_matches("/acp");
        let agent = self.agent.as_ref().map(|agent| format!("/{agent}")).unwrap_or_default();
        format!("{base}{ATTACH}{agent}")
    }
}

/// A change of an attachment.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachmentEvent {
    /// The gateway has accepted the agent with this id.
    Attached(String),
    /// The connection has ended or could not be opened. Another attempt follows.
    Lost {
        /// The reason.
        reason: String,
        /// The time until the next attempt.
        pause: Duration,
    },
}

/// The reason for which an agent is not attached. Another attempt would fail too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The agent does not start, or does not answer.
    #[error("{0}")]
    Agent(Error),
    /// The connection failed.
    #[error("{0}")]
    Connect(HttpError),
    /// The gateway answered with an error.
    #[error("the hub refused the agent: {0}")]
    Refused(RpcError),
}

/// The end of one connection.
enum ConnectionEnd {
    Ended,
    Failed(String),
    Refused(AttachError),
}

impl Hub {
    /// Serves a gateway as one of its agents. It dials again whenever the connection ends.
    ///
    /// # Errors
    ///
    /// If the agent does not start before the first attempt, or the gateway refuses it for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection. The sessions go on.
    pub async fn attach(
        &self,
        attachment: &AgentAttachment,
        mut report: impl FnMut(AttachmentEvent),
    ) -> Result<(), AttachError> {
        // The gateway would see that its connection ends, and not the reason.
        self.reach_agent().await.map_err(AttachError::Agent)?;
        let mut failures = 0u32;
        loop {
            let mut is_attached = false;
            let end = self.attach_once(attachment, |agent| {
                is_attached = true;
                report(AttachmentEvent::Attached(agent));
            });
            let reason = match end.await {
                ConnectionEnd::Ended => "the connection has ended".to_owned(),
                ConnectionEnd::Failed(reason) => reason,
                ConnectionEnd::Refused(error) => return Err(error),
            };
            failures = if is_attached { 0 } else { failures.saturating_add(1) };
            let pause = PAUSE.after(failures);
            report(AttachmentEvent::Lost { reason, pause });
            tokio::time::sleep(pause).await;
        }
    }

    async fn attach_once(
        &self,
        attachment: &AgentAttachment,
        attached: impl FnOnce(String),
    ) -> ConnectionEnd {
        let mut options = attachment.options.clone();
        options.transport = RemoteTransport::WebSocket;
        // The caller repeats attempts, and reports them.
        options.open_time = Duration::ZERO;
        let (transport, _link) = match connect(&attachment.address(), options).await {
            Ok(connected) => connected,
            Err(error) if is_final(&error) => return ConnectionEnd::Refused(AttachError::Connect(error)),
            Err(error) => return ConnectionEnd::Failed(error.to_string()),
        };
        let (mut reader, mut writer) = transport.into_split();
        let Ok(line) = introduction(&attachment.card) else {
            return ConnectionEnd::Failed("the card cannot be written".to_owned());
        };
        if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
            return ConnectionEnd::Failed("the connection has ended".to_owned());
        }
        let Some(line) = first_line(&mut reader).await else {
            return ConnectionEnd::Failed("the hub ended the connection".to_owned());
        };
        match RpcMessage::read(&line, &Limits::default()) {
            Some(Ok(RpcMessage::Response { outcome: ResponseOutcome::Result(result), .. })) => {
                let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                attached(result["_meta"]["duologue"]["agentId"].as_str().unwrap_or_default().to_owned());
            }
            Some(Ok(RpcMessage::Response { outcome: ResponseOutcome::Error(error), .. })) => {
                let data = serde_json::to_value(&error).unwrap_or_default();
                return match data["data"]["retryable"].as_bool() {
                    Some(false) => ConnectionEnd::Refused(AttachError::Refused(error)),
                    _ => ConnectionEnd::Failed(error.to_string()),
                };
            }
            _ => return ConnectionEnd::Failed("the hub broke the protocol".to_owned()),
        }
        self.serve(Transport::new(reader, writer)).await;
        ConnectionEnd::Ended
    }
}

/// Returns true if another attempt would fail too.
fn is_final(error: &HttpError) -> bool {
    match error {
        HttpError::Address { .. } | HttpError::Header { .. } | HttpError::Tls(_) => true,
        HttpError::Refused { status, .. } => matches!(status, 400..=404 | 409 | 426),
        _ => false,
    }
}

/// Writes the first message.
fn introduction(card: &AttachmentCard) -> serde_json::Result<Vec<u8>> {
    let id = to_raw_value("attach")?;
    let params = json!({
        "protocolVersion": 1,
        "clientCapabilities": {},
        "clientInfo": {"name": "duologue-attach", "version": env!("CARGO_PKG_VERSION")},
        "_meta": {"duologue": {"attach": card}},
    });
    call_line(Some(&id), InitializeRequest::METHOD, &params)
}
