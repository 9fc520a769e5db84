//! The MCP servers a client wants a session to use.
//!
//! See [MCP servers](https://agentclientprotocol.com/protocol/v1/session-setup#mcp-servers).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::EnvVariable;

/// How to reach an MCP server. One of an unknown `type` is never taken for a program to run.
#[wire(tag = "type")]
pub enum McpServer {
    /// By HTTP. Needs `mcpCapabilities.http` of the agent.
    Http(Box<McpServerHttp>),
    /// By server-sent events. Needs `mcpCapabilities.sse` of the agent.
    Sse(Box<McpServerSse>),
    /// By running a program. Every agent can.
    #[wire(untagged, alias = "stdio")]
    Stdio(Box<McpServerStdio>),
}

/// An MCP server reached by HTTP.
#[wire]
pub struct McpServerHttp {
    /// Its name, for a person.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

/// An MCP server reached by server-sent events.
#[wire]
pub struct McpServerSse {
    /// Its name, for a person.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

/// An MCP server to run.
#[wire]
pub struct McpServerStdio {
    /// Its name, for a person.
    pub name: String,
    /// The program, as an absolute path.
    pub command: PathBuf,
    /// Its arguments.
    #[wire(default, always, null_default)]
    pub args: Vec<String>,
    /// Variables to set.
    #[wire(default, always, null_default)]
    pub env: Vec<EnvVariable>,
}

/// A header of an HTTP request.
#[wire]
pub struct HttpHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}
