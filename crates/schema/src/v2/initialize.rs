//! The first request of a connection.

use duologue_schema_derive::wire;

use super::{AgentCapabilities, AuthMethod, ClientCapabilities};
use crate::{Implementation, ProtocolVersion};

/// The params of `initialize`, the first request of a client.
#[wire]
pub struct InitializeRequest {
    /// The newest version that the client supports.
    pub protocol_version: ProtocolVersion,
    /// The name and version of the client.
    pub info: Implementation,
    /// The capabilities of the client.
    #[wire(default, lenient)]
    pub capabilities: ClientCapabilities,
}

/// The answer to `initialize`.
#[wire]
pub struct InitializeResponse {
    /// The version of the connection.
    pub protocol_version: ProtocolVersion,
    /// The name and version of the agent.
    pub info: Implementation,
    /// The capabilities of the agent.
    #[wire(default, lenient)]
    pub capabilities: AgentCapabilities,
    /// The ways to authenticate that the agent offers.
    #[wire(default, skip_invalid)]
    pub auth_methods: Vec<AuthMethod>,
}
