//! The capabilities of each side. A capability is an object, possibly empty; an absent one is not supported.

use duologue_schema_derive::wire;

use crate::{ElicitationCapabilities, SessionAdditionalDirectoriesCapabilities, SessionDeleteCapabilities};

/// The capabilities of a client.
#[wire]
pub struct ClientCapabilities {
    /// The ways to authenticate that the client supports.
    #[wire(lenient)]
    pub auth: Option<ClientAuthCapabilities>,
    /// The elicitations that the client can show to the user.
    #[wire(lenient)]
    pub elicitation: Option<ElicitationCapabilities>,
    /// The session features that the client supports.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub session: Option<ClientSessionCapabilities>,
}

/// The session features that a client supports.
#[wire]
pub struct ClientSessionCapabilities {
    /// Present if the client offers prompt suggestions.
    #[wire(lenient)]
    pub prompt_suggestions: Option<crate::PromptSuggestionsCapabilities>,
    /// The kinds of commands that the client shows besides `command`.
    #[wire(lenient)]
    pub commands: Option<super::CommandsCapabilities>,
}

/// The ways to authenticate that a client supports.
#[wire]
pub struct ClientAuthCapabilities {
    /// Present if the client can run a login in a terminal.
    #[wire(lenient)]
    pub terminal: Option<TerminalAuthCapabilities>,
}

/// The capability to run a login in a terminal.
#[wire]
pub struct TerminalAuthCapabilities {}

/// The capabilities of an agent.
#[wire]
pub struct AgentCapabilities {
    /// Present if the agent has sessions, with all methods of sessions that need no capability.
    #[wire(lenient)]
    pub session: Option<SessionCapabilities>,
    /// The authentication features that the agent supports. A method of login is no capability.
    #[wire(lenient)]
    pub auth: Option<AgentAuthCapabilities>,
    /// Present if the agent handles the `providers/*` methods.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub providers: Option<crate::ProvidersCapabilities>,
}

/// The authentication features that an agent supports.
#[wire]
pub struct AgentAuthCapabilities {
    /// Present if the agent handles `auth/status`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub status: Option<crate::AuthStatusCapabilities>,
}

/// The features of sessions that an agent supports.
#[wire]
pub struct SessionCapabilities {
    /// The content that a prompt may contain.
    #[wire(lenient)]
    pub prompt: Option<PromptCapabilities>,
    /// The transports to MCP servers that the agent supports.
    #[wire(lenient)]
    pub mcp: Option<McpCapabilities>,
    /// Present if the agent handles `session/delete`.
    #[wire(lenient)]
    pub delete: Option<SessionDeleteCapabilities>,
    /// Present if the agent reads the field `additionalDirectories`.
    #[wire(lenient)]
    pub additional_directories: Option<SessionAdditionalDirectoriesCapabilities>,
    /// Present if the agent reads the field `systemPrompt`.
    #[wire(lenient)]
    pub system_prompt: Option<crate::SessionSystemPromptCapabilities>,
    /// Present if the agent handles `session/fork`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub fork: Option<crate::SessionForkCapabilities>,
    /// Present if the agent handles `session/archive` and `session/unarchive`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub archive: Option<crate::SessionArchiveCapabilities>,
    /// Present if the agent handles `session/status`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub status: Option<crate::SessionStatusCapabilities>,
    /// Present if the agent handles `session/set_title`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub title: Option<crate::SessionTitleCapabilities>,
    /// Present if the agent handles `session/options`, and reads `configOptions` of requests that open a session.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub options: Option<crate::SessionOptionsCapabilities>,
}

/// The content that a prompt may contain besides text and resource links.
#[wire]
pub struct PromptCapabilities {
    /// Present if a prompt may contain images.
    #[wire(lenient)]
    pub image: Option<PromptImageCapabilities>,
    /// Present if a prompt may contain audio.
    #[wire(lenient)]
    pub audio: Option<PromptAudioCapabilities>,
    /// Present if a prompt may contain resources with their contents.
    #[wire(lenient)]
    pub embedded_context: Option<PromptEmbeddedContextCapabilities>,
    /// Present if a prompt may contain a skill.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub skill: Option<super::PromptSkillCapabilities>,
}

/// The capability to read images in a prompt.
#[wire]
pub struct PromptImageCapabilities {}

/// The capability to read audio in a prompt.
#[wire]
pub struct PromptAudioCapabilities {}

/// The capability to read resources with their contents in a prompt.
#[wire]
pub struct PromptEmbeddedContextCapabilities {}

/// The transports to MCP servers that an agent supports.
#[wire]
pub struct McpCapabilities {
    /// Present if the agent runs servers as programs.
    #[wire(lenient)]
    pub stdio: Option<McpStdioCapabilities>,
    /// Present if the agent supports HTTP.
    #[wire(lenient)]
    pub http: Option<McpHttpCapabilities>,
    /// Present if the agent reaches servers of its peer through `mcp/message`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub acp: Option<McpAcpCapabilities>,
}

/// The capability to run MCP servers as programs.
#[wire]
pub struct McpStdioCapabilities {}

/// The capability to reach MCP servers by HTTP.
#[wire]
pub struct McpHttpCapabilities {}

/// The capability to reach MCP servers of the peer through `mcp/message`.
#[wire]
pub struct McpAcpCapabilities {}
