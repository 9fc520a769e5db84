//! The capabilities of each side. An absent or malformed capability counts as not supported.
//!
//! See [Initialization](https://agentclientprotocol.com/protocol/v1/initialization#capabilities).

use duologue_schema_derive::wire;

use crate::DuologueCapabilities;

/// The capabilities of a client.
#[wire]
pub struct ClientCapabilities {
    /// The file methods that the client handles.
    #[wire(default, lenient)]
    pub fs: FileSystemCapabilities,
    /// True if the client handles all five `terminal/*` methods.
    #[wire(default, lenient)]
    pub terminal: bool,
    /// The session features that the client supports.
    #[wire(lenient)]
    pub session: Option<ClientSessionCapabilities>,
    /// The ways to authenticate that the client supports.
    #[wire(default, lenient)]
    pub auth: AuthCapabilities,
    /// The elicitations that the client can show to the user.
    #[wire(lenient)]
    pub elicitation: Option<ElicitationCapabilities>,
    /// Present if the client shows child sessions.
    #[wire(lenient)]
    pub subagents: Option<crate::SubagentCapabilities>,
    /// Present if the client shows plans by their ids.
    #[wire(lenient)]
    pub plan: Option<crate::PlanCapabilities>,
}

/// The file methods that a client handles.
#[wire]
pub struct FileSystemCapabilities {
    /// True if the client handles `fs/read_text_file`.
    #[wire(default, lenient)]
    pub read_text_file: bool,
    /// True if the client handles `fs/write_text_file`.
    #[wire(default, lenient)]
    pub write_text_file: bool,
}

/// The session features that a client supports.
#[wire]
pub struct ClientSessionCapabilities {
    /// Present if the client shows compactions.
    #[wire(lenient)]
    pub compaction: Option<CompactionCapabilities>,
    /// The config options that the client supports.
    #[wire(lenient)]
    pub config_options: Option<SessionConfigOptionsCapabilities>,
    /// Present if the client shows notices.
    #[wire(lenient)]
    pub notices: Option<NoticeCapabilities>,
    /// Present if the client offers prompt suggestions.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub prompt_suggestions: Option<crate::PromptSuggestionsCapabilities>,
    /// Present if the client receives cursors.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub cursors: Option<crate::SessionCursorsCapabilities>,
}

/// The capability to receive `compaction_update` and `compaction_summary_chunk`.
#[wire]
pub struct CompactionCapabilities {}

/// The capability to receive `notice`.
#[wire]
pub struct NoticeCapabilities {}

/// The config options that a client supports.
#[wire]
pub struct SessionConfigOptionsCapabilities {
    /// Present if the client supports boolean options.
    #[wire(lenient)]
    pub boolean: Option<BooleanConfigOptionCapabilities>,
}

/// The capability to show boolean config options.
#[wire]
pub struct BooleanConfigOptionCapabilities {}

/// The ways to authenticate that a client supports.
#[wire]
pub struct AuthCapabilities {
    /// True if the client can run a login in a terminal.
    #[wire(default, lenient)]
    pub terminal: bool,
}

/// The elicitations that a client can show to the user.
#[wire]
pub struct ElicitationCapabilities {
    /// Present if the client shows forms.
    #[wire(lenient)]
    pub form: Option<ElicitationFormCapabilities>,
    /// Present if the client opens URLs.
    #[wire(lenient)]
    pub url: Option<ElicitationUrlCapabilities>,
}

/// The capability to show forms.
#[wire]
pub struct ElicitationFormCapabilities {}

/// The capability to open URLs.
#[wire]
pub struct ElicitationUrlCapabilities {}

impl ClientCapabilities {
    /// Returns true if the client supports boolean config options.
    #[must_use]
    pub fn has_boolean_options(&self) -> bool {
        self.session
            .as_ref()
            .and_then(|session| session.config_options.as_ref())
            .is_some_and(|options| options.boolean.is_some())
    }

    /// Returns true if the client shows compactions.
    #[must_use]
    pub fn has_compaction(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.compaction.is_some())
    }

    /// Returns true if the client shows notices.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.notices.is_some())
    }

    /// Returns true if the client offers prompt suggestions.
    #[cfg(feature = "unstable")]
    #[must_use]
    pub fn has_prompt_suggestions(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.prompt_suggestions.is_some())
    }

    /// Returns true if the client receives cursors.
    #[cfg(feature = "unstable")]
    #[must_use]
    pub fn has_cursors(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.cursors.is_some())
    }

    /// Returns true if the client handles `agent_message_clear` and `agent_thought_clear`, which it
    /// advertises as `_meta.duologue.messageClear`.
    #[must_use]
    pub fn has_message_clear(&self) -> bool {
        DuologueCapabilities::of(self.meta.as_ref()).message_clear
    }

    /// Returns true if the client shows forms.
    #[must_use]
    pub fn has_form_elicitation(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some())
    }

    /// Returns true if the client opens URLs.
    #[must_use]
    pub fn has_url_elicitation(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|elicitation| elicitation.url.is_some())
    }
}

/// The capabilities of an agent, beyond `session/new`, `session/prompt`, `session/cancel` and
/// `session/update`.
#[wire]
pub struct AgentCapabilities {
    /// True if the agent handles `session/load`.
    #[wire(default, lenient)]
    pub load_session: bool,
    /// The content that a prompt may contain.
    #[wire(default, lenient)]
    pub prompt_capabilities: PromptCapabilities,
    /// The transports to MCP servers that the agent supports.
    #[wire(default, lenient)]
    pub mcp_capabilities: McpCapabilities,
    /// The optional session methods that the agent handles.
    #[wire(default, lenient)]
    pub session_capabilities: SessionCapabilities,
    /// The authentication methods that the agent handles.
    #[wire(default, lenient)]
    pub auth: AgentAuthCapabilities,
    /// Present if the agent handles the `providers/*` methods.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub providers: Option<crate::ProvidersCapabilities>,
}

/// The content that a prompt may contain besides text and resource links.
#[wire]
pub struct PromptCapabilities {
    /// True if a prompt may contain images.
    #[wire(default, lenient)]
    pub image: bool,
    /// True if a prompt may contain audio.
    #[wire(default, lenient)]
    pub audio: bool,
    /// True if a prompt may contain resources with their contents.
    #[wire(default, lenient)]
    pub embedded_context: bool,
}

/// The transports to MCP servers that an agent supports besides stdio.
#[wire]
pub struct McpCapabilities {
    /// True if the agent supports HTTP.
    #[wire(default, lenient)]
    pub http: bool,
    /// True if the agent supports server-sent events.
    #[wire(default, lenient)]
    pub sse: bool,
    /// True if the agent reaches servers of its peer through `mcp/message`.
    #[cfg(feature = "unstable")]
    #[wire(default, lenient)]
    pub acp: bool,
}

/// The optional session methods that an agent handles.
#[wire]
pub struct SessionCapabilities {
    /// Present if the agent handles `session/list`.
    #[wire(lenient)]
    pub list: Option<SessionListCapabilities>,
    /// Present if the agent handles `session/delete`.
    #[wire(lenient)]
    pub delete: Option<SessionDeleteCapabilities>,
    /// Present if the agent reads the field `additionalDirectories`.
    #[wire(lenient)]
    pub additional_directories: Option<SessionAdditionalDirectoriesCapabilities>,
    /// Present if the agent handles `session/resume`.
    #[wire(lenient)]
    pub resume: Option<SessionResumeCapabilities>,
    /// Present if the agent handles `session/close`.
    #[wire(lenient)]
    pub close: Option<SessionCloseCapabilities>,
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

/// The capability to handle `session/list`.
#[wire]
pub struct SessionListCapabilities {}

/// The capability to handle `session/delete`.
#[wire]
pub struct SessionDeleteCapabilities {}

/// The capability to read the field `additionalDirectories`.
#[wire]
pub struct SessionAdditionalDirectoriesCapabilities {}

/// The capability to handle `session/resume`.
#[wire]
pub struct SessionResumeCapabilities {}

/// The capability to handle `session/close`.
#[wire]
pub struct SessionCloseCapabilities {}

/// The authentication methods that an agent handles.
#[wire]
pub struct AgentAuthCapabilities {
    /// Present if the agent handles `logout`.
    #[wire(lenient)]
    pub logout: Option<LogoutCapabilities>,
    /// Present if the agent handles `auth/status`.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub status: Option<crate::AuthStatusCapabilities>,
}

/// The capability to handle `logout`.
#[wire]
pub struct LogoutCapabilities {}
