#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - `new` takes the required fields of a type. A setter exists for each optional one.
//! - Data that this crate does not know is kept in variants named `Unknown` and written back unchanged.
//! - Malformed data is an error, except where the protocol asks for leniency. There a bad value reads as absent,
//!   and a bad item of a list is skipped.
//! - The modules [`envelope`], [`dialogue`] and [`work`] have the messages between agents, which are not part of
//!   ACP.
//! - The names of methods are in one table; see [`Request`], [`ClientRequest`] and [`AgentRequest`].

mod conversation;
pub mod dialogue;
pub mod envelope;
mod error;
#[cfg(feature = "schemars")]
pub mod export;
mod ids;
mod json;
mod members;
mod meta;
mod method;
mod negotiation;
mod patch;
mod path;
mod printable;
mod request_id;
mod serialized_len;
mod v1;
mod wire;
pub mod work;

pub use conversation::{
    Compaction, Conversation, ConversationEntry, ConversationMessage, ConversationStats, MessageKind,
    OPEN_CALL_BYTES, OPEN_CALLS, Retention, SessionState,
};
pub use error::{Error, ErrorCode};
pub use ids::{
    AuthMethodId, CompactionId, ElicitationId, MessageId, PermissionOptionId, SessionConfigGroupId,
    SessionConfigId, SessionConfigValueId, SessionId, SessionModeId, TerminalId, ToolCallId,
};
pub use json::Json;
pub use members::Members;
pub use meta::Meta;
pub use method::{Notification, Request};
pub use negotiation::DuologueCapabilities;
pub use patch::Patch;
pub use path::{PATH_BYTES, path_fault};
pub use printable::printable;
pub use request_id::RequestId;
#[doc(hidden)]
pub use serialized_len::serialized_len;
pub use wire::Unknown;

pub use v1::auth::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest, AuthenticateResponse,
    LogoutRequest, LogoutResponse,
};
pub use v1::capabilities::{
    AgentAuthCapabilities, AgentCapabilities, AuthCapabilities, BooleanConfigOptionCapabilities,
    ClientCapabilities, ClientSessionCapabilities, CompactionCapabilities, ElicitationCapabilities,
    ElicitationFormCapabilities, ElicitationUrlCapabilities, FileSystemCapabilities, LogoutCapabilities,
    McpCapabilities, NoticeCapabilities, PromptCapabilities, SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities, SessionCloseCapabilities, SessionConfigOptionsCapabilities,
    SessionDeleteCapabilities, SessionListCapabilities, SessionResumeCapabilities,
};
pub use v1::command::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, UnstructuredCommandInput,
};
pub use v1::compaction::{CompactionStatus, CompactionSummaryChunk, CompactionUpdate};
pub use v1::config::{
    ConfigOptionUpdate, SessionConfigBoolean, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelect, SessionConfigSelectGroup,
    SessionConfigSelectOption, SessionConfigSelectOptions, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
};
pub use v1::content::{
    Annotations, AudioContent, BlobResourceContents, ContentBlock, EmbeddedResource,
    EmbeddedResourceResource, ImageContent, ResourceLink, Role, TextContent, TextResourceContents,
};
pub use v1::elicitation::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    ElicitationAcceptAction, ElicitationAction, ElicitationContentValue, ElicitationFormMode,
    ElicitationMode, ElicitationRequestScope, ElicitationScope, ElicitationSessionScope, ElicitationUrlMode,
};
pub use v1::extension::{ExtNotification, ExtRequest, ExtResponse};
pub use v1::form::{
    BooleanPropertySchema, ElicitationPropertySchema, ElicitationSchema, ElicitationSchemaType, EnumOption,
    IntegerPropertySchema, MultiSelectItems, MultiSelectPropertySchema, NumberPropertySchema, StringFormat,
    StringMultiSelectItems, StringPropertySchema, TitledMultiSelectItems,
};
pub use v1::fs::{ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse};
pub use v1::initialize::{Implementation, InitializeRequest, InitializeResponse, ProtocolVersion};
pub use v1::mcp::{HttpHeader, McpServer, McpServerHttp, McpServerSse, McpServerStdio};
pub use v1::methods::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
    METHODS, MethodRow, MethodSide,
};
pub use v1::mode::{
    CurrentModeUpdate, SessionMode, SessionModeState, SetSessionModeRequest, SetSessionModeResponse,
};
pub use v1::permission::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome,
};
pub use v1::plan::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus};
pub use v1::prompt::{
    CancelNotification, CancelRequestNotification, PromptRequest, PromptResponse, StopReason,
};
pub use v1::session::{
    CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest,
    NewSessionResponse, ResumeSessionRequest, ResumeSessionResponse, SessionInfo,
};
pub use v1::terminal::{
    CreateTerminalRequest, CreateTerminalResponse, EnvVariable, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, TerminalExitStatus, TerminalOutputRequest,
    TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
pub use v1::tool_call::{
    Content, Diff, Terminal, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolKind,
};
pub use v1::update::{
    ContentChunk, Cost, MessageClear, Notice, NoticeSeverity, SessionInfoUpdate, SessionNotification,
    SessionUpdate, UsageUpdate,
};
