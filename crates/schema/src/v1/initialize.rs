//! The first exchange of a connection: versions and capabilities.
//!
//! See [Initialization](https://agentclientprotocol.com/protocol/v1/initialization).

use duologue_schema_derive::wire;
use serde::{Deserialize, Serialize};

use crate::{AgentCapabilities, AuthMethod, ClientCapabilities};

/// A version of the protocol: a whole number, raised by breaking changes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProtocolVersion(pub u16);

impl ProtocolVersion {
    /// Version 1.
    pub const V1: Self = ProtocolVersion(1);
    /// The newest version this crate speaks.
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

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for ProtocolVersion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProtocolVersion".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A version of the protocol: a whole number, raised by breaking changes only.",
            "type": "integer", "format": "uint16", "minimum": 0, "maximum": 65535,
        })
    }
}

/// `initialize`: the first request, by the client.
#[wire]
pub struct InitializeRequest {
    /// The newest version the client speaks.
    pub protocol_version: ProtocolVersion,
    /// What the client can do.
    #[wire(default, lenient)]
    pub client_capabilities: ClientCapabilities,
    /// Who the client is.
    #[wire(lenient)]
    pub client_info: Option<Implementation>,
}

/// The answer to `initialize`.
#[wire]
pub struct InitializeResponse {
    /// The version to speak: the client's, or else the newest the agent speaks.
    pub protocol_version: ProtocolVersion,
    /// What the agent can do.
    #[wire(default, lenient)]
    pub agent_capabilities: AgentCapabilities,
    /// The ways to authenticate.
    #[wire(default, skip_invalid)]
    pub auth_methods: Vec<AuthMethod>,
    /// Who the agent is.
    #[wire(lenient)]
    pub agent_info: Option<Implementation>,
}

/// The program on one side.
#[wire]
pub struct Implementation {
    /// Its name, for programs.
    pub name: String,
    /// Its name, for people.
    #[wire(lenient)]
    pub title: Option<String>,
    /// Its version.
    pub version: String,
}
