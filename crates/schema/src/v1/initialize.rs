//! The first request of a connection: negotiates versions and capabilities.
//!
//! See [Initialization](https://agentclientprotocol.com/protocol/v1/initialization).

use duologue_schema_derive::wire;
use serde::{Deserialize, Serialize};

use crate::wire::schema_of;
use crate::{AgentCapabilities, AuthMethod, ClientCapabilities};

/// A version of the protocol. Only breaking changes raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProtocolVersion(pub u16);

impl ProtocolVersion {
    /// Version 1.
    pub const V1: Self = ProtocolVersion(1);
    /// Version 2, a draft.
    #[cfg(feature = "protocol-v2")]
    pub const V2: Self = ProtocolVersion(2);
    /// The newest version that this crate supports.
    pub const LATEST: Self = ProtocolVersion::V1;
}

impl From<u16> for ProtocolVersion {
    fn from(version: u16) -> Self {
        ProtocolVersion(version)
    }
}

impl std::fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

schema_of!(ProtocolVersion, "ProtocolVersion", |_| schemars::json_schema!({
    "description": "A version of the protocol. Only breaking changes raise it.",
    "type": "integer", "format": "uint16", "minimum": 0, "maximum": 65535,
}));

/// The params of `initialize`, the first request of a client.
#[wire]
pub struct InitializeRequest {
    /// The newest version that the client supports.
    pub protocol_version: ProtocolVersion,
    /// The capabilities of the client.
    #[wire(default, lenient)]
    pub client_capabilities: ClientCapabilities,
    /// The name and version of the client.
    #[wire(lenient)]
    pub client_info: Option<Implementation>,
}

/// The answer to `initialize`.
#[wire]
pub struct InitializeResponse {
    /// The version of the connection: that of the client, or the newest that the agent supports.
    pub protocol_version: ProtocolVersion,
    /// The capabilities of the agent.
    #[wire(default, lenient)]
    pub agent_capabilities: AgentCapabilities,
    /// The ways to authenticate that the agent offers.
    #[wire(default, skip_invalid)]
    pub auth_methods: Vec<AuthMethod>,
    /// The name and version of the agent.
    #[wire(lenient)]
    pub agent_info: Option<Implementation>,
}

/// The name and version of the program on one side.
#[wire]
pub struct Implementation {
    /// The name for programs.
    pub name: String,
    /// The name to show to the user.
    #[wire(lenient)]
    pub title: Option<String>,
    /// The version of the program.
    pub version: String,
}
