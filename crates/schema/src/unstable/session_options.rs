//! The config options of a session before it exists, and their first values.

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{SessionConfigId, SessionConfigOption, SessionConfigOptionValue, SessionId, SessionModeState};

/// The capability to handle `session/options`, and to read `configOptions` of requests that open a session.
#[wire]
pub struct SessionOptionsCapabilities {}

/// The params of `session/options`, which returns the options that a session would have. It opens none.
#[wire]
pub struct SessionOptionsRequest {
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// Further working directories, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
    /// The earlier session that would be opened. Absent means a new one.
    pub session_id: Option<SessionId>,
}

/// The answer to `session/options`. The response that opens a session has the options that count.
#[wire]
pub struct SessionOptionsResponse {
    /// The modes, if any. Config options take precedence over modes.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// The config options.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
    /// The slash commands, from an agent of version 2.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub available_commands: Vec<crate::AvailableCommand>,
}

/// The first value of a config option of a session. An agent ignores an unknown option or a value that does not fit. Only
/// for agents with `session_capabilities.options`.
#[wire]
pub struct InitialSessionConfigOption {
    /// The id of the option.
    pub config_id: SessionConfigId,
    /// The value.
    #[wire(flatten)]
    pub value: SessionConfigOptionValue,
}
