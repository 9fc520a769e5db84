//! The unstable part of version 1: the dialogue of [`agent`] and [`client`], with the same dialogue in the programs
//! `agent-unstable` and `client-unstable` on the other side.

pub(super) mod agent;
pub(super) mod client;

use super::scripted::ScriptedDialogue;
use super::wire;
use duologue_schema::{Json, Members};
use serde_json::json;

pub(super) const DIALOGUE: ScriptedDialogue = ScriptedDialogue {
    protocol: "v1 unstable",
    version: wire::UNSTABLE,
    rows: &[
        "initialize",
        "auth/status",
        "auth/status_update",
        "providers/list",
        "providers/set",
        "providers/disable",
        "systemPrompt append",
        "systemPrompt override",
        "session/fork",
        "session/set_title",
        "session/status",
        "session/archive",
        "session/list archived",
        "session/unarchive",
        "session/prompt usage",
        "plan_update",
        "plan_removed",
        "subagent_update",
        "session_message",
        "session_message_chunk",
        "session/cancel of a child",
        "_session/steering",
        "mcp/message request",
        "mcp/message notification",
        "proxy/initialize",
        "proxy/successor request",
        "proxy/successor notification",
    ],
    notes: &[
        "ts has the names and the types of proxy/*, and no programs of a chain: its cells are custom methods of the SDK",
        "no SDK has a type for _session/steering: its cells are custom methods",
    ],
};

/// The server of the client, which the agent reaches through `mcp/message`.
const MCP_SERVER: &str = "tools-1";

/// Returns the params of an MCP request, with the members of `_meta` that its specification demands.
fn mcp_params() -> Members {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut params = Members::new();
    params.insert("_meta", Json::from(meta));
    params
}
