//! The draft of protocol version 2.
//!
//! A type whose JSON is that of version 1 is the type of version 1; this module exports it again. The others have
//! the names of version 2, and [`convert`] converts them to and from the types that agents and clients are written
//! with. The module may change in any release, as the draft does.
//!
//! ```
//! use duologue_schema::{Conversation, SessionUpdate, v2};
//!
//! let mut conversation = Conversation::default();
//! for line in [
//!     r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"Draft"}]}"#,
//!     r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"Final"}]}"#,
//!     r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#,
//! ] {
//!     let update: v2::SessionUpdate = serde_json::from_str(line)?;
//!     conversation.apply(&SessionUpdate::from(update));
//! }
//! assert_eq!(conversation.agent_text(), "Final");
//! assert_eq!(conversation.state().foreground.as_ref().unwrap().tag(), "idle");
//! # Ok::<(), serde_json::Error>(())
//! ```

mod auth;
mod background;
mod capabilities;
mod command;
mod config;
mod content;
pub mod convert;
mod diff;
mod error_data;
mod idempotency;
mod initialize;
mod mcp;
mod methods;
mod permission;
mod proxy;
mod session;
mod skill;
mod terminal;
mod tool_call;
mod update;

pub use auth::*;
pub use background::*;
pub use capabilities::*;
pub use command::*;
pub use config::*;
pub use content::*;
pub use diff::*;
pub use error_data::*;
pub use idempotency::*;
pub use initialize::*;
pub use mcp::*;
pub use methods::*;
pub use permission::*;
pub use proxy::*;
pub use session::*;
pub use skill::*;
pub use terminal::*;
pub use tool_call::*;
pub use update::*;

pub use crate::{
    Annotations, ArchiveSessionRequest, ArchiveSessionResponse, AudioContent, AuthAccount, AuthMethodId,
    AuthState, AuthStatusCapabilities, AuthStatusRequest, AuthStatusResponse, AuthStatusUpdateNotification,
    BlobResourceContents, BooleanPropertySchema, CancelRequestNotification, CloseSessionRequest,
    CloseSessionResponse, CompactionId, CompactionStatus, CompactionSummaryChunk,
    CompleteElicitationNotification, Content, ContentBlock, Cost, CreateElicitationRequest,
    CreateElicitationResponse, CursorAnchor, CursorAnchorPosition, CursorCapabilities,
    CursorCompactionAnchor, CursorForkCapabilities, CursorId, CursorMessageAnchor, CursorToolCallAnchor,
    CursorUpdate, DeleteSessionRequest, DeleteSessionResponse, DisableProviderRequest,
    DisableProviderResponse, ElicitationAcceptAction, ElicitationAction, ElicitationCapabilities,
    ElicitationContentValue, ElicitationFormCapabilities, ElicitationFormMode, ElicitationId,
    ElicitationMode, ElicitationPropertySchema, ElicitationRequestScope, ElicitationSchema,
    ElicitationSchemaType, ElicitationScope, ElicitationSessionScope, ElicitationUrlCapabilities,
    ElicitationUrlMode, EmbeddedResource, EmbeddedResourceResource, EnumOption, EnvVariable, Error,
    ErrorCode, ErrorStopReason, ExtNotification, ExtRequest, ExtResponse, FormFields, HttpHeader,
    IdleStateUpdate, IdleStop, ImageContent, Implementation, IntegerPropertySchema, ListProvidersRequest,
    ListProvidersResponse, ListSessionsRequest, ListSessionsResponse, LlmProtocol, McpError, McpRequestId,
    McpServerAcp, McpServerAcpId, McpServerStdio, MessageId, MessageMcpNotification, MessageMcpRequest,
    MessageMcpResponse, MessageUpdate as UserMessage, MessageUpdate as AgentMessage,
    MessageUpdate as AgentThought, MultiSelectItems, MultiSelectPropertySchema, Notice, NoticeSeverity,
    NumberPropertySchema, PermissionOption, PermissionOptionId, PermissionOptionKind, PlanEntry,
    PlanEntryPriority, PlanEntryStatus, PlanId, PlanItems, PlanMarkdown, PlanRemoved, PlanUpdate,
    PlanUpdateContent, PromptSuggestion, PromptSuggestionsAudioCapabilities, PromptSuggestionsCapabilities,
    PromptSuggestionsEmbeddedContextCapabilities, PromptSuggestionsImageCapabilities,
    PromptSuggestionsUpdate, ProtocolVersion, ProviderCurrentConfig, ProviderId, ProviderInfo,
    ProvidersCapabilities, ProxySuccessorNotification, ProxySuccessorRequest, ProxySuccessorResponse,
    RequestId, RequiresActionStateUpdate, ResourceLink, Role, RunningStateUpdate, SelectedPermissionOutcome,
    SessionAdditionalDirectoriesCapabilities, SessionArchiveCapabilities, SessionArchiveFilter,
    SessionCancelCapabilities, SessionConfigBoolean, SessionConfigGroupId, SessionConfigId,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionConfigValueId, SessionDeleteCapabilities,
    SessionForkCapabilities, SessionId, SessionInfo, SessionInfoUpdate, SessionMessage, SessionMessageChunk,
    SessionOptionsCapabilities, SessionOptionsRequest, SessionReference, SessionStatus,
    SessionStatusCapabilities, SessionStatusRequest, SessionStatusResponse, SessionSystemPromptCapabilities,
    SessionSystemPromptModeCapabilities, SessionSystemPromptOverrideCapabilities, SessionTitleCapabilities,
    SetProviderRequest, SetProviderResponse, SetSessionTitleRequest, SetSessionTitleResponse, StateUpdate,
    StringFormat, StringMultiSelectItems, StringPropertySchema, SubagentSessionCapabilities, SubagentUpdate,
    SystemPrompt, SystemPromptMode, Terminal, TerminalId, TextContent, TextResourceContents,
    TitledMultiSelectItems, ToolCallId, ToolCallLocation, ToolCallStatus, ToolKind, UnarchiveSessionRequest,
    UnarchiveSessionResponse, UnknownStateUpdate, Usage, UsageUpdate,
};

/// An absolute path in the syntax of the agent's machine.
pub type AbsolutePath = std::path::PathBuf;
/// A media type, such as `text/plain`.
pub type MediaType = String;
/// The opaque start of a page of `session/list`.
pub type SessionListCursor = String;
