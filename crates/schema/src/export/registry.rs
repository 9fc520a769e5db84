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
}

/// The definitions of the listed types.
macro_rules! define {
    ($($type:ty),* $(,)?) => {
        vec![$(crate::export::Definition::of::<$type>()),*]
    };
}
pub(crate) use define;

/// Returns every definition of the schema.
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
        WriteTextFileResponse,
    };
    let envelope = |name, round_trip| Definition { name: Cow::Borrowed(name), round_trip, register: |_| {} };
    let envelopes = [
        envelope("AgentNotification", |text| message(text, AgentNotification::decode)),
        envelope("AgentRequest", |text| message(text, AgentRequest::decode)),
        envelope("AgentResponse", round_trip::<AnyResponse>),
        envelope("ClientNotification", |text| message(text, ClientNotification::decode)),
        envelope("ClientRequest", |text| message(text, ClientRequest::decode)),
        envelope("ClientResponse", round_trip::<AnyResponse>),
    ];
    all.extend(envelopes);
    all
}

fn round_trip<T: Serialize + DeserializeOwned>(text: &str) -> Result<String, String> {
    let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    serde_json::to_string(&value).map_err(|error| error.to_string())
}

/// Decodes and encodes a request or a notification. The params of an unknown method stay unchanged.
fn message<T: Serialize>(
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
struct AnyResponse {
    id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}
