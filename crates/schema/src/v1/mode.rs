//! Session modes.
//!
//! See [Session modes](https://agentclientprotocol.com/protocol/v1/session-modes).

use duologue_schema_derive::wire;

use crate::{SessionId, SessionModeId};

/// The modes of a session.
#[wire]
pub struct SessionModeState {
    /// The current mode.
    pub current_mode_id: SessionModeId,
    /// The available modes.
    #[wire(skip_invalid)]
    pub available_modes: Vec<SessionMode>,
}

/// A mode of operation of the agent.
#[wire]
pub struct SessionMode {
    /// The id of the mode.
    pub id: SessionModeId,
    /// The name to show to the user.
    pub name: String,
    /// A description of the mode.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// The params of `session/set_mode`, which changes the mode.
#[wire]
pub struct SetSessionModeRequest {
    /// The session.
    pub session_id: SessionId,
    /// One of the available modes.
    pub mode_id: SessionModeId,
}

/// The answer to `session/set_mode`.
#[wire]
pub struct SetSessionModeResponse {}

/// A change of the mode of the session.
#[wire]
pub struct CurrentModeUpdate {
    /// The new mode. It is also read from `modeId`, which some agents send.
    #[wire(alias = "modeId")]
    pub current_mode_id: SessionModeId,
}
