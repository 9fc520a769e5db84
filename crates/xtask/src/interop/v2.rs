//! The draft of protocol version 2, which the official SDKs have as an experiment: the dialogue of [`agent`] and [`client`],
//! with the same dialogue in the programs `agent-v2` and `client-v2` on the other side.

pub(super) mod agent;
pub(super) mod client;

use super::scripted::ScriptedDialogue;
use super::wire;

pub(super) const DIALOGUE: ScriptedDialogue = ScriptedDialogue {
    protocol: "v2",
    version: wire::V2,
    rows: &[
        "initialize",
        "auth/login",
        "auth/logout",
        "session/new",
        "session/set_config_option",
        "session/prompt",
        "session/cancel",
        "$/cancel_request",
        "tool_call/cancel",
        "terminal/cancel",
        "session/list",
        "session/resume",
        "session/close",
        "session/delete",
        "session/request_permission",
        "elicitation/create",
        "elicitation/complete",
        "user_message",
        "running",
        "requires_action",
        "idle",
        "error",
        "background work",
        "agent_thought_chunk",
        "agent_message_chunk",
        "agent_message",
        "tool_call_update",
        "tool_call_content_chunk",
        "plan_update",
        "session_info_update",
        "usage_update",
        "config_option_update",
        "available_commands_update",
        "notice",
        "compaction_update",
        "compaction_summary_chunk",
        "terminal_update",
        "terminal_output_chunk",
    ],
    notes: &[],
};
