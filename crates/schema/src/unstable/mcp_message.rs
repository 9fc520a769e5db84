//! MCP servers that one side of the connection provides: `mcp/message`.

use duologue_schema_derive::wire;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{Lenient, schema_of};
use crate::{Json, Members, Patch};

crate::ids::ids! {
    /// The id of an MCP server that is reached through `mcp/message`.
    McpServerAcpId,
    /// The id of a request within `mcp/message`. Its sender creates it.
    McpRequestId,
}

/// An MCP server that the client provides on this connection.
#[wire]
pub struct McpServerAcp {
    /// The name to show to the user.
    pub name: String,
    /// The id of the server.
    pub server_id: McpServerAcpId,
}

/// The params of the request `mcp/message`, which carries a request to an MCP server.
#[wire]
pub struct MessageMcpRequest {
    /// The server.
    pub server_id: McpServerAcpId,
    /// The id of the request.
    pub request_id: McpRequestId,
    /// The method of MCP.
    pub method: String,
    /// The params of the method.
    pub params: Option<Members>,
}

/// The params of the notification `mcp/message`, which carries a notification about a request to an MCP server.
#[wire]
pub struct MessageMcpNotification {
    /// The server.
    pub server_id: McpServerAcpId,
    /// The id of the request.
    pub request_id: McpRequestId,
    /// The method of MCP.
    pub method: String,
    /// The params of the method.
    pub params: Option<Members>,
}

/// The answer to `mcp/message`: the outcome of the request to the MCP server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum MessageMcpResponse {
    /// The request succeeded.
    Success(McpSuccess),
    /// The request failed.
    Failure(McpFailure),
}

/// The result of an MCP server.
#[wire]
pub struct McpSuccess {
    /// The result.
    pub result: Json,
}

/// The error of an MCP server.
#[wire]
pub struct McpFailure {
    /// The error.
    pub error: McpError,
}

/// The error object of MCP.
#[wire(no_meta)]
pub struct McpError {
    /// The code of the error.
    pub code: i32,
    /// The message of the error.
    pub message: String,
    /// Further details.
    pub data: Option<Json>,
    /// The unknown fields. They are written back unchanged.
    #[wire(flatten, default)]
    pub extra: Members,
}

impl From<McpSuccess> for MessageMcpResponse {
    fn from(success: McpSuccess) -> Self {
        Self::Success(success)
    }
}

impl From<McpFailure> for MessageMcpResponse {
    fn from(failure: McpFailure) -> Self {
        Self::Failure(failure)
    }
}

/// The fields of both outcomes. A result may be `null`.
#[wire]
struct McpOutcome {
    result: Patch<Json>,
    error: Option<McpError>,
}

impl<'de> Deserialize<'de> for MessageMcpResponse {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let McpOutcome { result, error, meta } = McpOutcome::deserialize(d)?;
        match (result, error) {
            (_, Some(error)) => Ok(McpFailure { error, meta }.into()),
            (Patch::Set(result), None) => Ok(McpSuccess { result, meta }.into()),
            (Patch::Clear, None) => Ok(McpSuccess { result: serde_json::Value::Null.into(), meta }.into()),
            (Patch::Keep, None) => Err(D::Error::missing_field("result")),
        }
    }
}

impl Lenient for MessageMcpResponse {}

schema_of!(MessageMcpResponse, "MessageMcpResponse", |generator| {
    let variants = [generator.subschema_for::<McpSuccess>(), generator.subschema_for::<McpFailure>()];
    crate::export::any_of(
        "The answer to `mcp/message`: the outcome of the request to the MCP server.",
        variants,
    )
});
