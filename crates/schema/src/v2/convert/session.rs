//! Methods that create and open sessions, prompts and slash commands.

use crate::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, ForkSessionRequest,
    ForkSessionResponse, IdleStateUpdate, LoadSessionRequest, LoadSessionResponse, McpServer, McpServerHttp,
    NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionConfigOption, SessionOptionsResponse, StateUpdate,
    UnstructuredCommandInput, v2,
};

use super::config::first_values;
use super::{ConversionError, all, options_with_modes};

impl From<v2::McpServer> for McpServer {
    fn from(server: v2::McpServer) -> Self {
        match server {
            v2::McpServer::Http(server) => {
                let v2::McpServerHttp { name, url, headers, meta } = *server;
                McpServerHttp { name, url, headers, meta }.into()
            }
            v2::McpServer::Acp(server) => McpServer::Acp(server),
            v2::McpServer::Stdio(server) => McpServer::Stdio(server),
            v2::McpServer::Unknown(unknown) => McpServer::Unknown(unknown),
        }
    }
}

/// Fails for a server with server-sent events.
impl TryFrom<McpServer> for v2::McpServer {
    type Error = ConversionError;

    fn try_from(server: McpServer) -> Result<Self, ConversionError> {
        Ok(match server {
            McpServer::Http(server) => {
                let McpServerHttp { name, url, headers, meta } = *server;
                v2::McpServerHttp { name, url, headers, meta }.into()
            }
            McpServer::Sse(_) => {
                let message = "version 2 has no MCP servers with server-sent events; use HTTP";
                return Err(ConversionError::new(message));
            }
            McpServer::Acp(server) => v2::McpServer::Acp(server),
            McpServer::Stdio(server) => v2::McpServer::Stdio(server),
            McpServer::Unknown(unknown) => v2::McpServer::Unknown(unknown),
        })
    }
}

fn servers(servers: Vec<McpServer>) -> Result<Vec<v2::McpServer>, ConversionError> {
    servers.into_iter().map(v2::McpServer::try_from).collect()
}

impl From<v2::NewSessionRequest> for NewSessionRequest {
    fn from(request: v2::NewSessionRequest) -> Self {
        NewSessionRequest {
            cwd: request.cwd,
            mcp_servers: all(request.mcp_servers),
            additional_directories: request.additional_directories,
            system_prompt: request.system_prompt,
            config_options: first_values(request.config_options),
            meta: request.meta,
        }
    }
}

impl TryFrom<NewSessionRequest> for v2::NewSessionRequest {
    type Error = ConversionError;

    fn try_from(request: NewSessionRequest) -> Result<Self, ConversionError> {
        Ok(v2::NewSessionRequest {
            cwd: request.cwd,
            additional_directories: request.additional_directories,
            mcp_servers: servers(request.mcp_servers)?,
            system_prompt: request.system_prompt,
            config_options: all(request.config_options),
            meta: request.meta,
        })
    }
}

/// The request of version 1 that a `session/resume` of version 2 means.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionOpening {
    /// The session with its history.
    Load(LoadSessionRequest),
    /// The session without its history.
    Resume(ResumeSessionRequest),
}

/// Fails for an unknown start of the history.
impl TryFrom<v2::ResumeSessionRequest> for SessionOpening {
    type Error = ConversionError;

    fn try_from(request: v2::ResumeSessionRequest) -> Result<Self, ConversionError> {
        let v2::ResumeSessionRequest {
            session_id,
            cwd,
            additional_directories,
            mcp_servers,
            replay_from,
            system_prompt,
            config_options,
            meta,
        } = request;
        let (mcp_servers, config_options) = (all(mcp_servers), first_values(config_options));
        let resumed = ResumeSessionRequest {
            session_id,
            cwd,
            mcp_servers,
            additional_directories,
            system_prompt,
            config_options,
            meta,
        };
        match replay_from {
            None => Ok(SessionOpening::Resume(resumed)),
            Some(v2::ReplayFrom::Start(_)) => {
                let ResumeSessionRequest {
                    session_id,
                    cwd,
                    mcp_servers,
                    additional_directories,
                    system_prompt,
                    config_options,
                    meta,
                } = resumed;
                Ok(SessionOpening::Load(LoadSessionRequest {
                    session_id,
                    cwd,
                    mcp_servers,
                    additional_directories,
                    system_prompt,
                    config_options,
                    meta,
                }))
            }
            Some(other) => {
                let tag: String = other.tag().chars().take(40).collect();
                Err(ConversionError::new(format!("`replayFrom` must have the type `start`, not `{tag}`")))
            }
        }
    }
}

/// Fails for a server with server-sent events.
impl TryFrom<ResumeSessionRequest> for v2::ResumeSessionRequest {
    type Error = ConversionError;

    fn try_from(request: ResumeSessionRequest) -> Result<Self, ConversionError> {
        Ok(v2::ResumeSessionRequest {
            session_id: request.session_id,
            cwd: request.cwd,
            additional_directories: request.additional_directories,
            mcp_servers: servers(request.mcp_servers)?,
            replay_from: None,
            system_prompt: request.system_prompt,
            config_options: all(request.config_options),
            meta: request.meta,
        })
    }
}

/// Fails for a server with server-sent events.
impl TryFrom<LoadSessionRequest> for v2::ResumeSessionRequest {
    type Error = ConversionError;

    fn try_from(request: LoadSessionRequest) -> Result<Self, ConversionError> {
        Ok(v2::ResumeSessionRequest {
            session_id: request.session_id,
            cwd: request.cwd,
            additional_directories: request.additional_directories,
            mcp_servers: servers(request.mcp_servers)?,
            replay_from: Some(v2::ReplayFromStart::new().into()),
            system_prompt: request.system_prompt,
            config_options: all(request.config_options),
            meta: request.meta,
        })
    }
}

impl From<v2::ForkSessionRequest> for ForkSessionRequest {
    fn from(request: v2::ForkSessionRequest) -> Self {
        ForkSessionRequest {
            session_id: request.session_id,
            cwd: request.cwd,
            mcp_servers: all(request.mcp_servers),
            additional_directories: request.additional_directories,
            system_prompt: request.system_prompt,
            config_options: first_values(request.config_options),
            cursor_id: request.cursor_id,
            meta: request.meta,
        }
    }
}

/// Fails for a server with server-sent events.
impl TryFrom<ForkSessionRequest> for v2::ForkSessionRequest {
    type Error = ConversionError;

    fn try_from(request: ForkSessionRequest) -> Result<Self, ConversionError> {
        Ok(v2::ForkSessionRequest {
            session_id: request.session_id,
            cwd: request.cwd,
            additional_directories: request.additional_directories,
            mcp_servers: servers(request.mcp_servers)?,
            system_prompt: request.system_prompt,
            config_options: all(request.config_options),
            cursor_id: request.cursor_id,
            meta: request.meta,
        })
    }
}

/// Returns the options of a session in version 1, which writes no empty list.
fn options(options: Vec<v2::SessionConfigOption>) -> Option<Vec<SessionConfigOption>> {
    (!options.is_empty()).then(|| all(options))
}

/// Implements the conversions of a response that opens a session.
macro_rules! opened {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl From<v2::$name> for $name {
            fn from(response: v2::$name) -> Self {
                $name {
                    $($field: response.$field,)*
                    modes: None,
                    config_options: options(response.config_options),
                    available_commands: commands(response.available_commands),
                    meta: response.meta,
                }
            }
        }

        impl From<$name> for v2::$name {
            fn from(response: $name) -> Self {
                let options = response.config_options.unwrap_or_default();
                v2::$name {
                    $($field: response.$field,)*
                    config_options: options_with_modes(response.modes.as_ref(), options),
                    available_commands: all(response.available_commands),
                    meta: response.meta,
                }
            }
        }
    )*};
}

opened! {
    NewSessionResponse { session_id }
    ResumeSessionResponse {}
    ForkSessionResponse { session_id }
    SessionOptionsResponse {}
}

impl From<v2::ResumeSessionResponse> for LoadSessionResponse {
    fn from(response: v2::ResumeSessionResponse) -> Self {
        let ResumeSessionResponse { modes, config_options, available_commands, meta } = response.into();
        LoadSessionResponse { modes, config_options, available_commands, meta }
    }
}

impl From<LoadSessionResponse> for v2::ResumeSessionResponse {
    fn from(response: LoadSessionResponse) -> Self {
        let LoadSessionResponse { modes, config_options, available_commands, meta } = response;
        ResumeSessionResponse { modes, config_options, available_commands, meta }.into()
    }
}

impl From<v2::PromptRequest> for PromptRequest {
    fn from(request: v2::PromptRequest) -> Self {
        let v2::PromptRequest { session_id, prompt, idempotency_key, meta } = request;
        PromptRequest { session_id, prompt, idempotency_key, meta }
    }
}

impl From<PromptRequest> for v2::PromptRequest {
    fn from(request: PromptRequest) -> Self {
        let PromptRequest { session_id, prompt, idempotency_key, meta } = request;
        v2::PromptRequest { session_id, prompt, idempotency_key, meta }
    }
}

/// The update that ends a turn in version 2.
impl From<PromptResponse> for StateUpdate {
    fn from(response: PromptResponse) -> Self {
        let PromptResponse { stop_reason, usage, meta } = response;
        IdleStateUpdate { usage, background: None, stop: stop_reason.into(), meta }.into()
    }
}

/// Fails if the agent gave no reason.
impl TryFrom<IdleStateUpdate> for PromptResponse {
    type Error = ConversionError;

    fn try_from(idle: IdleStateUpdate) -> Result<Self, ConversionError> {
        let IdleStateUpdate { usage, stop, meta, .. } = idle;
        let stop_reason =
            stop.reason().ok_or_else(|| ConversionError::new("the state `idle` has no `stopReason`"))?;
        Ok(PromptResponse { stop_reason, usage, meta })
    }
}

/// Converts the commands of a known kind.
fn commands(commands: Vec<v2::AvailableCommand>) -> Vec<AvailableCommand> {
    let known = commands.into_iter().filter_map(|command| match command {
        v2::AvailableCommand::Command(command) => {
            let v2::Command { name, description, input, meta } = *command;
            let input = match input {
                Some(v2::AvailableCommandInput::Text(text)) => {
                    Some(AvailableCommandInput::Unstructured(UnstructuredCommandInput {
                        hint: text.hint,
                        meta: text.meta,
                    }))
                }
                _ => None,
            };
            Some(AvailableCommand { name, description, input, meta })
        }
        v2::AvailableCommand::Skill(_) | v2::AvailableCommand::Unknown(_) => None,
    });
    known.collect()
}

impl From<AvailableCommand> for v2::AvailableCommand {
    fn from(command: AvailableCommand) -> Self {
        let AvailableCommand { name, description, input, meta } = command;
        let input = input.map(|AvailableCommandInput::Unstructured(text)| {
            v2::TextCommandInput { hint: text.hint, meta: text.meta }.into()
        });
        v2::Command { name, description, input, meta }.into()
    }
}

impl From<v2::AvailableCommandsUpdate> for AvailableCommandsUpdate {
    fn from(update: v2::AvailableCommandsUpdate) -> Self {
        AvailableCommandsUpdate { available_commands: commands(update.available_commands), meta: update.meta }
    }
}

impl From<AvailableCommandsUpdate> for v2::AvailableCommandsUpdate {
    fn from(update: AvailableCommandsUpdate) -> Self {
        v2::AvailableCommandsUpdate { available_commands: all(update.available_commands), meta: update.meta }
    }
}
