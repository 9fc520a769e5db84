//! Session modes.
//!
//! See [Session modes](https://agentclientprotocol.com/protocol/v1/session-modes).

use duologue_schema_derive::wire;

use crate::{SessionId, SessionModeId};

/// The modes of a session.
#[wire]
pub struct SessionModeState {
    /// The mode it is in.
    pub current_mode_id: SessionModeId,
    /// The modes it can be in.
    #[wire(skip_invalid)]
    pub available_modes: Vec<SessionMode>,
}

/// A way the agent can behave.
#[wire]
pub struct SessionMode {
    /// Which mode.
    pub id: SessionModeId,
    /// Its name, for a person.
    pub name: String,
    /// What it is like.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// `session/set_mode`: changes the mode.
#[wire]
pub struct SetSessionModeRequest {
    /// The session.
    pub session_id: SessionId,
    /// One of its available modes.
    pub mode_id: SessionModeId,
}

/// The answer to `session/set_mode`.
#[wire]
pub struct SetSessionModeResponse {}

/// The session is in another mode now.
#[wire]
pub struct CurrentModeUpdate {
    /// The mode. Read from `modeId` too, which some agents send.
    #[wire(alias = "modeId")]
    pub current_mode_id: SessionModeId,
}
