//! What each side says it can do. What is absent, or malformed, it cannot.
//!
//! See [Initialization](https://agentclientprotocol.com/protocol/v1/initialization#capabilities).

use duologue_schema_derive::wire;

use crate::DuologueCapabilities;

/// What a client can do.
#[wire]
pub struct ClientCapabilities {
    /// Files it reads and writes for the agent.
    #[wire(default, lenient)]
    pub fs: FileSystemCapabilities,
    /// Whether it runs terminals: all five `terminal/*` methods.
    #[wire(default, lenient)]
    pub terminal: bool,
    /// What it understands about sessions.
    #[wire(lenient)]
    pub session: Option<ClientSessionCapabilities>,
    /// Ways to authenticate.
    #[wire(default, lenient)]
    pub auth: AuthCapabilities,
    /// Questions it can put to the person.
    #[wire(lenient)]
    pub elicitation: Option<ElicitationCapabilities>,
}

/// Files a client reads and writes for the agent.
#[wire]
pub struct FileSystemCapabilities {
    /// `fs/read_text_file`.
    #[wire(default, lenient)]
    pub read_text_file: bool,
    /// `fs/write_text_file`.
    #[wire(default, lenient)]
    pub write_text_file: bool,
}

/// What a client understands about sessions.
#[wire]
pub struct ClientSessionCapabilities {
    /// Whether it shows compactions.
    #[wire(lenient)]
    pub compaction: Option<CompactionCapabilities>,
    /// What it understands about config options.
    #[wire(lenient)]
    pub config_options: Option<SessionConfigOptionsCapabilities>,
    /// Whether it shows notices.
    #[wire(lenient)]
    pub notices: Option<NoticeCapabilities>,
}

/// A client that has this gets `compaction_update` and `compaction_summary_chunk`.
#[wire]
pub struct CompactionCapabilities {}

/// A client that has this gets `notice`.
#[wire]
pub struct NoticeCapabilities {}

/// What a client understands about config options.
#[wire]
pub struct SessionConfigOptionsCapabilities {
    /// Whether it takes options that are on or off.
    #[wire(lenient)]
    pub boolean: Option<BooleanConfigOptionCapabilities>,
}

/// A client that has this takes config options that are on or off.
#[wire]
pub struct BooleanConfigOptionCapabilities {}

/// Ways to authenticate that a client supports.
#[wire]
pub struct AuthCapabilities {
    /// Whether it can run a login in a terminal.
    #[wire(default, lenient)]
    pub terminal: bool,
}

/// Questions a client can put to the person.
#[wire]
pub struct ElicitationCapabilities {
    /// By a form.
    #[wire(lenient)]
    pub form: Option<ElicitationFormCapabilities>,
    /// At a URL.
    #[wire(lenient)]
    pub url: Option<ElicitationUrlCapabilities>,
}

/// A client that has this shows forms.
#[wire]
pub struct ElicitationFormCapabilities {}

/// A client that has this opens URLs.
#[wire]
pub struct ElicitationUrlCapabilities {}

impl ClientCapabilities {
    /// Whether the client takes config options that are on or off.
    #[must_use]
    pub fn has_boolean_options(&self) -> bool {
        self.session
            .as_ref()
            .and_then(|session| session.config_options.as_ref())
            .is_some_and(|options| options.boolean.is_some())
    }

    /// Whether the client shows compactions.
    #[must_use]
    pub fn has_compaction(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.compaction.is_some())
    }

    /// Whether the client shows notices.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.notices.is_some())
    }

    /// Whether the client takes `agent_message_clear` and `agent_thought_clear`, which it says by
    /// `_meta.duologue.messageClear`.
    #[must_use]
    pub fn has_message_clear(&self) -> bool {
        DuologueCapabilities::of(self.meta.as_ref()).message_clear
    }

    /// Whether the client shows forms.
    #[must_use]
    pub fn has_form_elicitation(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some())
    }

    /// Whether the client opens URLs.
    #[must_use]
    pub fn has_url_elicitation(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|elicitation| elicitation.url.is_some())
    }
}

/// What an agent can do, beyond `session/new`, `session/prompt`, `session/cancel` and `session/update`.
#[wire]
pub struct AgentCapabilities {
    /// `session/load`.
    #[wire(default, lenient)]
    pub load_session: bool,
    /// What a prompt may hold.
    #[wire(default, lenient)]
    pub prompt_capabilities: PromptCapabilities,
    /// How it reaches MCP servers.
    #[wire(default, lenient)]
    pub mcp_capabilities: McpCapabilities,
    /// What else it does with sessions.
    #[wire(default, lenient)]
    pub session_capabilities: SessionCapabilities,
    /// What it does about authentication.
    #[wire(default, lenient)]
    pub auth: AgentAuthCapabilities,
}

/// What a prompt may hold besides text and resource links.
#[wire]
pub struct PromptCapabilities {
    /// Pictures.
    #[wire(default, lenient)]
    pub image: bool,
    /// Sound.
    #[wire(default, lenient)]
    pub audio: bool,
    /// Resources with their contents.
    #[wire(default, lenient)]
    pub embedded_context: bool,
}

/// How an agent reaches MCP servers, besides stdio.
#[wire]
pub struct McpCapabilities {
    /// HTTP.
    #[wire(default, lenient)]
    pub http: bool,
    /// Server-sent events.
    #[wire(default, lenient)]
    pub sse: bool,
}

/// What else an agent does with sessions; each one opens the method of its name.
#[wire]
pub struct SessionCapabilities {
    /// `session/list`.
    #[wire(lenient)]
    pub list: Option<SessionListCapabilities>,
    /// `session/delete`.
    #[wire(lenient)]
    pub delete: Option<SessionDeleteCapabilities>,
    /// The field `additionalDirectories`.
    #[wire(lenient)]
    pub additional_directories: Option<SessionAdditionalDirectoriesCapabilities>,
    /// `session/resume`.
    #[wire(lenient)]
    pub resume: Option<SessionResumeCapabilities>,
    /// `session/close`.
    #[wire(lenient)]
    pub close: Option<SessionCloseCapabilities>,
}

/// An agent that has this takes `session/list`.
#[wire]
pub struct SessionListCapabilities {}

/// An agent that has this takes `session/delete`.
#[wire]
pub struct SessionDeleteCapabilities {}

/// An agent that has this takes `additionalDirectories`.
#[wire]
pub struct SessionAdditionalDirectoriesCapabilities {}

/// An agent that has this takes `session/resume`.
#[wire]
pub struct SessionResumeCapabilities {}

/// An agent that has this takes `session/close`.
#[wire]
pub struct SessionCloseCapabilities {}

/// What an agent does about authentication.
#[wire]
pub struct AgentAuthCapabilities {
    /// `logout`.
    #[wire(lenient)]
    pub logout: Option<LogoutCapabilities>,
}

/// An agent that has this takes `logout`.
#[wire]
pub struct LogoutCapabilities {}
