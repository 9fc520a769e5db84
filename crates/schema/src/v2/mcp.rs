//! The MCP servers that a client asks a session to use.

use duologue_schema_derive::wire;

use crate::{HttpHeader, McpServerStdio};

/// The address of an MCP server. It always has a `type`.
#[wire(tag = "type", open)]
pub enum McpServer {
    /// HTTP. Requires `session.mcp.http` of the agent.
    Http(Box<McpServerHttp>),
    /// A server that the client provides on this connection. Requires `session.mcp.acp` of the agent.
    #[cfg(feature = "unstable")]
    Acp(Box<crate::McpServerAcp>),
    /// A program that the agent runs. Requires `session.mcp.stdio` of the agent.
    Stdio(Box<McpServerStdio>),
}

/// An MCP server reached by HTTP.
#[wire]
pub struct McpServerHttp {
    /// The name to show to the user.
    pub name: String,
    /// The URL of the server.
    pub url: String,
    /// The headers to send.
    #[wire(default, null_default)]
    pub headers: Vec<HttpHeader>,
}
