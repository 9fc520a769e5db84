//! Lists every definition with functions to decode and encode its type.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::*;

/// A definition of the schema.
#[derive(Clone)]
#[non_exhaustive]
pub struct Definition {
    /// The name of the definition.
    pub name: Cow<'static, str>,
    /// Decodes JSON text into the type and encodes that again.
    pub round_trip: fn(&str) -> Result<String, String>,
    pub(super) register: fn(&mut SchemaGenerator),
}

impl Definition {
    pub(crate) fn of<T: JsonSchema + Serialize + DeserializeOwned>() -> Self {
        Definition {
            name: T::schema_name(),
            round_trip: round_trip::<T>,
            register: |generator| {
                generator.subschema_for::<T>();
            },
        }
    }

    pub(super) fn envelope(name: &'static str, round_trip: fn(&str) -> Result<String, String>) -> Self {
        Definition { name: Cow::Borrowed(name), round_trip, register: |_| {} }
    }

    /// Creates the definition of a type that the exported schema has under another name, or in place.
    #[cfg(feature = "protocol-v2")]
    pub(super) fn alias<T: Serialize + DeserializeOwned>(name: &'static str) -> Self {
        Definition::envelope(name, round_trip::<T>)
    }
}

/// The definitions of the listed types.
macro_rules! define {
    ($($type:ty),* $(,)?) => {
        vec![$(crate::export::Definition::of::<$type>()),*]
    };
}
pub(crate) use define;

/// The definitions of the messages that carry params and results.
macro_rules! envelopes {
    (@ AgentResponse) => { envelopes!(@response AgentResponse) };
    (@ ClientResponse) => { envelopes!(@response ClientResponse) };
    (@ ProxyResponse) => { envelopes!(@response ProxyResponse) };
    (@response $name:ident) => {
        $crate::export::Definition::envelope(
            stringify!($name),
            $crate::export::registry::round_trip::<$crate::export::registry::AnyResponse>,
        )
    };
    (@ $name:ident) => {
        $crate::export::Definition::envelope(stringify!($name), |text| {
            $crate::export::registry::message(text, $name::decode)
        })
    };
    ($($name:ident),* $(,)?) => {
        [$(envelopes!(@ $name)),*]
    };
}
#[cfg(feature = "protocol-v2")]
pub(super) use envelopes;

/// Returns every definition of the stable version 1.
#[must_use]
pub fn definitions() -> Vec<Definition> {
    let mut all = define! {
        AgentAuthCapabilities, AgentCapabilities, Annotations, AudioContent, AuthCapabilities, AuthMethod,
        AuthMethodAgent, AuthMethodId, AuthMethodTerminal, AuthenticateRequest, AuthenticateResponse,
        AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, BlobResourceContents,
        BooleanConfigOptionCapabilities, BooleanPropertySchema, CancelNotification,
        CancelRequestNotification, ClientCapabilities, ClientSessionCapabilities, CloseSessionRequest,
        CloseSessionResponse, CompactionCapabilities, CompactionId, CompactionStatus,
        CompactionSummaryChunk, CompactionUpdate, CompleteElicitationNotification, ConfigOptionUpdate,
        Content, ContentBlock, ContentChunk, Cost, CreateElicitationRequest, CreateElicitationResponse,
        CreateTerminalRequest, CreateTerminalResponse, CurrentModeUpdate, DeleteSessionRequest,
        DeleteSessionResponse, Diff, ElicitationAcceptAction, ElicitationCapabilities,
        ElicitationContentValue, ElicitationFormCapabilities, ElicitationFormMode, ElicitationId,
        ElicitationPropertySchema, ElicitationRequestScope, ElicitationSchema, ElicitationSchemaType,
        ElicitationSessionScope, ElicitationUrlCapabilities, ElicitationUrlMode, EmbeddedResource,
        EmbeddedResourceResource, EnumOption, EnvVariable, Error, ErrorCode, ExtNotification, ExtRequest,
        ExtResponse, FileSystemCapabilities, HttpHeader, ImageContent, Implementation, InitializeRequest,
        InitializeResponse, IntegerPropertySchema, KillTerminalRequest, KillTerminalResponse,
        ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
        LogoutCapabilities, LogoutRequest, LogoutResponse, McpCapabilities, McpServer, McpServerHttp,
        McpServerSse, McpServerStdio, MessageClear, MessageId, MultiSelectItems, MultiSelectPropertySchema,
        NewSessionRequest, NewSessionResponse, Notice, NoticeCapabilities, NoticeSeverity,
        NumberPropertySchema, PermissionOption, PermissionOptionId, PermissionOptionKind, Plan, PlanEntry,
        PlanEntryPriority, PlanEntryStatus, PromptCapabilities, PromptRequest, PromptResponse,
        ProtocolVersion, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
        ReleaseTerminalResponse, RequestId, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse, ResourceLink, ResumeSessionRequest, ResumeSessionResponse, Role,
        SelectedPermissionOutcome, SessionAdditionalDirectoriesCapabilities, SessionCapabilities,
        SessionCloseCapabilities, SessionConfigBoolean, SessionConfigGroupId, SessionConfigId,
        SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionsCapabilities,
        SessionConfigSelect, SessionConfigSelectGroup, SessionConfigSelectOption,
        SessionConfigSelectOptions, SessionConfigValueId, SessionDeleteCapabilities, SessionId,
        SessionInfo, SessionInfoUpdate, SessionListCapabilities, SessionMode, SessionModeId,
        SessionModeState, SessionNotification, SessionResumeCapabilities, SessionUpdate,
        SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
        SetSessionModeResponse, StopReason, StringFormat, StringMultiSelectItems, StringPropertySchema,
        Terminal, TerminalExitStatus, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
        TextContent, TextResourceContents, TitledMultiSelectItems, ToolCall, ToolCallContent, ToolCallId,
        ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolKind, UnstructuredCommandInput, UsageUpdate,
        WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
        WriteTextFileResponse, ErrorStopReason, IdleStateUpdate, PlanCapabilities, PlanId, PlanItems,
        PlanMarkdown, PlanRemoved, PlanUpdate, PlanUpdateContent, RequiresActionStateUpdate,
        RunningStateUpdate, SessionCancelCapabilities, SessionMessage, SessionMessageChunk,
        SessionReference, SessionSystemPromptCapabilities, SessionSystemPromptModeCapabilities,
        SessionSystemPromptOverrideCapabilities, StateUpdate, SubagentCapabilities,
        SubagentSessionCapabilities, SubagentUpdate, SystemPrompt, SystemPromptMode, UnknownStateUpdate,
    };
    all.extend(envelopes! { AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse });
    all
}

/// Returns every definition of version 1 with its unstable part.
#[cfg(feature = "unstable")]
pub(super) fn unstable_definitions() -> Vec<Definition> {
    fn request(text: &str) -> Result<String, String> {
        message(text, |method, params| {
            let unstable = UnstableClientRequest::decode(method, params).map(to_json);
            unstable.or_else(|| ClientRequest::decode(method, params).map(to_json))
        })
    }
    fn reverse_request(text: &str) -> Result<String, String> {
        message(text, |method, params| {
            let unstable = UnstableAgentRequest::decode(method, params).map(to_json);
            unstable.or_else(|| AgentRequest::decode(method, params).map(to_json))
        })
    }
    fn notification(text: &str) -> Result<String, String> {
        message(text, |method, params| {
            let unstable = UnstableClientNotification::decode(method, params).map(to_json);
            unstable.or_else(|| ClientNotification::decode(method, params).map(to_json))
        })
    }
    fn update(text: &str) -> Result<String, String> {
        message(text, |method, params| {
            let unstable = UnstableAgentNotification::decode(method, params).map(to_json);
            unstable.or_else(|| AgentNotification::decode(method, params).map(to_json))
        })
    }
    let mut more = define! {
        ArchiveSessionRequest, ArchiveSessionResponse, AuthAccount, AuthState, AuthStatusCapabilities,
        AuthStatusRequest, AuthStatusResponse, AuthStatusUpdateNotification, DisableProviderRequest,
        DisableProviderResponse, ForkSessionRequest, ForkSessionResponse,
        InitializeProxyRequest, InitializeProxyResponse, ListProvidersRequest,
        ListProvidersResponse, LlmProtocol, McpError, McpFailure, McpRequestId, McpServerAcp,
        McpServerAcpId, McpSuccess, MessageMcpNotification, MessageMcpRequest, MessageMcpResponse,
        ProviderCurrentConfig, ProviderId, ProviderInfo, ProvidersCapabilities,
        ProxySuccessorNotification, ProxySuccessorRequest, ProxySuccessorResponse,
        SessionArchiveCapabilities,
        SessionArchiveFilter, SessionForkCapabilities, SessionStatus, SessionStatusCapabilities, SessionStatusRequest,
        SessionStatusResponse, SessionTitleCapabilities, SetProviderRequest,
        SetProviderResponse, SetSessionTitleRequest, SetSessionTitleResponse, UnarchiveSessionRequest, UnarchiveSessionResponse, Usage,
        SessionCursorsCapabilities, CursorAnchor, CursorAnchorPosition, CursorCapabilities, CursorCompactionAnchor, CursorForkCapabilities, CursorId, CursorMessageAnchor, CursorToolCallAnchor, CursorUpdate, InitialSessionConfigOption, PromptSuggestion, PromptSuggestionsAudioCapabilities, PromptSuggestionsCapabilities, PromptSuggestionsEmbeddedContextCapabilities, PromptSuggestionsImageCapabilities, PromptSuggestionsUpdate, SessionOptionsCapabilities, SessionOptionsRequest, SessionOptionsResponse,
    };
    more.extend([
        Definition::envelope("AgentNotification", update),
        Definition::envelope("AgentRequest", reverse_request),
        Definition::envelope("ClientNotification", notification),
        Definition::envelope("ClientRequest", request),
    ]);
    more.extend(envelopes! { ProxyNotification, ProxyRequest, ProxyResponse });
    let mut all = definitions();
    all.retain(|known| more.iter().all(|definition| definition.name != known.name));
    all.extend(more);
    all
}

#[cfg(feature = "unstable")]
fn to_json<T: Serialize>(params: Result<T, Error>) -> Result<Json, Error> {
    params.and_then(|params| Json::new(&params).map_err(|error| Error::internal(error.to_string())))
}

pub(super) fn round_trip<T: Serialize + DeserializeOwned>(text: &str) -> Result<String, String> {
    let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    serde_json::to_string(&value).map_err(|error| error.to_string())
}

/// Decodes and encodes a request or a notification. The params of an unknown method stay unchanged.
pub(super) fn message<T: Serialize>(
    text: &str,
    decode: impl Fn(&str, Option<&RawValue>) -> Option<Result<T, Error>>,
) -> Result<String, String> {
    fn some<'de, D: Deserializer<'de>>(d: D) -> Result<Option<RequestId>, D::Error> {
        RequestId::deserialize(d).map(Some)
    }
    #[derive(Serialize, Deserialize)]
    struct Message<P> {
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        id: Option<RequestId>,
        method: String,
        #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
        params: Option<P>,
    }
    let Message { id, method, params } =
        serde_json::from_str::<Message<Json>>(text).map_err(|error| error.to_string())?;
    let encoded = match decode(&method, params.as_ref().map(Json::as_raw)) {
        Some(params) => {
            let params = Some(params.map_err(|error| error.to_string())?);
            serde_json::to_string(&Message { id, method, params })
        }
        None => serde_json::to_string(&Message { id, method, params }),
    };
    encoded.map_err(|error| error.to_string())
}

/// A response. The type of its result depends on the request.
#[derive(Serialize, Deserialize)]
pub(super) struct AnyResponse {
    id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}
