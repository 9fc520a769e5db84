//! The MCP servers that a client asks a session to use.
//!
//! See [MCP servers](https://agentclientprotocol.com/protocol/v1/session-setup#mcp-servers).

use std::borrow::Cow;
use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::EnvVariable;

/// The address of an MCP server. A server of an unknown `type` is never read as a program to run.
#[wire(tag = "type")]
pub enum McpServer {
    /// HTTP. Requires `mcpCapabilities.http` of the agent.
    Http(Box<McpServerHttp>),
    /// Server-sent events. Requires `mcpCapabilities.sse` of the agent.
    Sse(Box<McpServerSse>),
    /// A server that the client provides on this connection. Requires `mcpCapabilities.acp` of the agent.
    #[cfg(feature = "unstable")]
    Acp(Box<crate::McpServerAcp>),
    /// A program that the agent runs. Every agent supports it.
    #[wire(untagged, alias = "stdio")]
    Stdio(Box<McpServerStdio>),
}

impl McpServer {
    /// Returns the name to show to the user. Only a server of an unknown `type` can lack one.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match self {
            McpServer::Http(server) => Some(Cow::Borrowed(&server.name)),
            McpServer::Sse(server) => Some(Cow::Borrowed(&server.name)),
            #[cfg(feature = "unstable")]
            McpServer::Acp(server) => Some(Cow::Borrowed(&server.name)),
            McpServer::Stdio(server) => Some(Cow::Borrowed(&server.name)),
            McpServer::Unknown(unknown) => unknown.text("name").map(Cow::Owned),
        }
    }
}

/// An MCP server reached by HTTP.
#[wire]
pub struct McpServerHttp {
    /// The name to show to the user.
    pub name: String,
    /// The URL of the server.
    pub url: String,
    /// The headers to send.
    #[wire(null_default)]
    pub headers: Vec<HttpHeader>,
}

/// An MCP server reached by server-sent events.
#[wire]
pub struct McpServerSse {
    /// The name to show to the user.
    pub name: String,
    /// The URL of the server.
    pub url: String,
    /// The headers to send.
    #[wire(null_default)]
    pub headers: Vec<HttpHeader>,
}

/// An MCP server that the agent runs as a program.
#[wire]
pub struct McpServerStdio {
    /// The name to show to the user.
    pub name: String,
    /// The program, as an absolute path.
    pub command: PathBuf,
    /// The arguments of the program.
    #[wire(default, always, null_default)]
    pub args: Vec<String>,
    /// The environment variables to set.
    #[wire(default, always, null_default)]
    pub env: Vec<EnvVariable>,
}

/// A header of an HTTP request.
#[wire]
pub struct HttpHeader {
    /// The name of the header.
    pub name: String,
    /// The value of the header.
    pub value: String,
}
