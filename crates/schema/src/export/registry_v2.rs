//! Lists the definitions of version 2.

use serde_json::{Map, Value, json};

use super::registry::{Definition, define, envelopes};
use crate::v2::*;
use crate::{McpFailure, McpSuccess, MessageUpdate};

/// Returns every definition of the draft, with or without its unstable part.
pub(super) fn definitions(unstable: bool) -> Vec<Definition> {
    let mut all = define! {
        AgentAuthCapabilities, AgentCapabilities, Annotations, AudioContent, AuthMethod,
        AuthMethodAgent, AuthMethodId, AuthMethodTerminal, AvailableCommand, AvailableCommandInput,
        AvailableCommandsUpdate, BackgroundTerminal, BackgroundToolCall, BackgroundWork,
        BlobResourceContents, BooleanPropertySchema, CancelRequestNotification,
        CancelSessionNotification, CancelTerminalRequest, CancelTerminalResponse,
        CancelToolCallRequest, CancelToolCallResponse, CancelledPermissionOutcome, ChosenBoolean,
        ChosenValueId, ClientAuthCapabilities, ClientCapabilities, CloseSessionRequest,
        CloseSessionResponse, Command, CommandPermissionSubject, CompactionId, CompactionStatus,
        CompactionSummaryChunk, CompactionUpdate, CompleteElicitationNotification, ConfigOptionUpdate,
        Content, ContentBlock, ContentChunk, Cost, CreateElicitationRequest,
        CreateElicitationResponse, DeleteSessionRequest, DeleteSessionResponse, Diff, DiffChange,
        DiffFileType, DiffPatch, DiffPatchFormat, DiffPathChange, DiffPathPairChange,
        ElicitationAcceptAction, ElicitationCapabilities, ElicitationContentValue,
        ElicitationFormCapabilities, ElicitationFormMode, ElicitationId, ElicitationPropertySchema,
        ElicitationRequestScope, ElicitationSchema, ElicitationSchemaType, ElicitationSessionScope,
        ElicitationUrlCapabilities, ElicitationUrlMode, EmbeddedResource, EmbeddedResourceResource,
        EnumOption, EnvVariable, Error, ErrorCode, ErrorData, ErrorStopReason, ExtNotification,
        ExtRequest, ExtResponse, HttpHeader, Icon, IconTheme, IdempotencyKey, IdleStateUpdate, ImageContent,
        Implementation, InitializeRequest, InitializeResponse, IntegerPropertySchema,
        ListSessionsRequest, ListSessionsResponse, LoginAuthRequest, LoginAuthResponse,
        LogoutAuthRequest, LogoutAuthResponse, McpCapabilities, McpHttpCapabilities, McpServer,
        McpServerHttp, McpServerStdio, McpStdioCapabilities, MessageId, MessageUpdate,
        MultiSelectItems, MultiSelectPropertySchema, NewSessionRequest, NewSessionResponse, Notice,
        NoticeSeverity, NumberPropertySchema, PermissionOption, PermissionOptionId,
        PermissionOptionKind, PlanEntry, PlanEntryPriority, PlanEntryStatus, PlanId, PlanItems,
        PlanUpdate, PlanUpdateContent, PromptAudioCapabilities, PromptCapabilities,
        PromptEmbeddedContextCapabilities, PromptImageCapabilities, PromptRequest, PromptResponse,
        ProtocolVersion, ReplayComplete, ReplayFrom, ReplayFromStart, RequestId, RequestPermissionOutcome,
        RequestPermissionRequest, RequestPermissionResponse, RequestPermissionSubject,
        RequiresActionStateUpdate, ResourceLink, ResumeSessionRequest, ResumeSessionResponse, Role,
        RunningStateUpdate, SelectedPermissionOutcome, SessionAdditionalDirectoriesCapabilities,
        SessionCapabilities, SessionConfigBoolean, SessionConfigGroupId, SessionConfigId,
        SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelect,
        SessionConfigSelectGroup, SessionConfigSelectOption, SessionConfigSelectOptions,
        SessionConfigValueId, SessionDeleteCapabilities, SessionId, SessionInfo, SessionInfoUpdate,
        SessionNotFoundErrorData, SessionUpdate, SetSessionConfigOptionRequest,
        SetSessionConfigOptionResponse, StateUpdate, StringFormat, StringMultiSelectItems,
        StringPropertySchema, Terminal, TerminalAuthCapabilities, TerminalCancelCapabilities,
        TerminalCapabilities, TerminalExitStatus, TerminalId, TerminalOutput, TerminalOutputChunk,
        TerminalSize, TerminalUpdate, TextCommandInput, TextContent, TextResourceContents,
        TitledMultiSelectItems, ToolCallCancelCapabilities, ToolCallCapabilities, ToolCallContent,
        ToolCallContentChunk, ToolCallId, ToolCallLocation, ToolCallPermissionSubject, ToolCallStatus,
        ToolCallUpdate, ToolKind, UnsupportedProtocolVersionErrorData, UpdateSessionNotification,
        UsageUpdate, BackgroundSubagent, PlanMarkdown, PlanRemoved, SessionCancelCapabilities,
        SessionMessage, SessionMessageChunk, SessionReference, SessionSystemPromptCapabilities,
        SessionSystemPromptModeCapabilities, SessionSystemPromptOverrideCapabilities,
        SubagentSessionCapabilities, SubagentUpdate, SystemPrompt, SystemPromptMode, UnknownStateUpdate,
    };
    all.extend([
        Definition::alias::<AbsolutePath>("AbsolutePath"),
        Definition::alias::<AgentMessage>("AgentMessage"),
        Definition::alias::<AgentThought>("AgentThought"),
        Definition::alias::<MediaType>("MediaType"),
        Definition::alias::<SessionListCursor>("SessionListCursor"),
        Definition::alias::<UserMessage>("UserMessage"),
    ]);
    all.extend(envelopes! {
        AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
    });
    if unstable {
        all.extend(define! {
            ArchiveSessionRequest, ArchiveSessionResponse, AuthAccount, AuthState,
            AuthStatusCapabilities, AuthStatusRequest, AuthStatusResponse,
            AuthStatusUpdateNotification, DisableProviderRequest,
            DisableProviderResponse, ForkSessionRequest, ForkSessionResponse,
            InitializeProxyRequest, InitializeProxyResponse, ListProvidersRequest,
            ListProvidersResponse, LlmProtocol, McpAcpCapabilities, McpError, McpFailure,
            McpRequestId, McpServerAcp, McpServerAcpId, McpSuccess, MessageMcpNotification,
            MessageMcpRequest, MessageMcpResponse, ProviderCurrentConfig, ProviderId, ProviderInfo, ProvidersCapabilities,
            ProxySuccessorNotification, ProxySuccessorRequest, ProxySuccessorResponse,
            SessionArchiveCapabilities, SessionArchiveFilter, SessionForkCapabilities, SessionStatus,
            SessionStatusCapabilities, SessionStatusRequest, SessionStatusResponse,
            SessionTitleCapabilities, SetProviderRequest,
            SetProviderResponse, SetSessionTitleRequest, SetSessionTitleResponse,
            UnarchiveSessionRequest, UnarchiveSessionResponse, Usage,
            ClientSessionCapabilities, CommandsCapabilities, CommandsSkillCapabilities, PromptSkillCapabilities,
            PromptSkillInlineCapabilities, Skill, SkillReference, CursorAnchor, CursorAnchorPosition, CursorCapabilities, CursorCompactionAnchor, CursorForkCapabilities, CursorId, CursorMessageAnchor, CursorToolCallAnchor, CursorUpdate, InitialSessionConfigOption, PromptSuggestion, PromptSuggestionsAudioCapabilities, PromptSuggestionsCapabilities, PromptSuggestionsEmbeddedContextCapabilities, PromptSuggestionsImageCapabilities, PromptSuggestionsUpdate, SessionOptionsCapabilities, SessionOptionsRequest, SessionOptionsResponse,
        });
        all.extend(envelopes! { ProxyNotification, ProxyRequest, ProxyResponse });
    }
    all
}

/// Adds the rules of version 2 to types that version 1 has without them.
pub(super) fn refine(all: &mut Map<String, Value>) {
    let mut rule = |definition: &str, property: &str, rules: Value| {
        let property = all.get_mut(definition).and_then(|schema| schema["properties"].get_mut(property));
        if let (Some(Value::Object(property)), Value::Object(rules)) = (property, rules) {
            property.extend(rules);
        }
    };
    rule("Annotations", "priority", json!({ "minimum": 0, "maximum": 1 }));
    rule("ToolCallLocation", "line", json!({ "minimum": 1 }));
    rule("ResourceLink", "size", json!({ "minimum": 0 }));
    for property in ["cols", "rows"] {
        rule("TerminalSize", property, json!({ "minimum": 1 }));
    }
    for (definition, property) in [
        ("Diff", "changes"),
        ("PromptRequest", "prompt"),
        ("RequestPermissionRequest", "options"),
        ("SessionConfigSelectGroup", "options"),
        ("StringMultiSelectItems", "enum"),
        ("StringPropertySchema", "enum"),
        ("StringPropertySchema", "oneOf"),
        ("SystemPrompt", "content"),
        ("TitledMultiSelectItems", "anyOf"),
    ] {
        rule(definition, property, json!({ "minItems": 1 }));
    }
    if let Some(options) =
        all.get_mut("SessionConfigSelectOptions").and_then(|schema| schema["anyOf"].as_array_mut())
    {
        options.iter_mut().for_each(|options| options["minItems"] = 1.into());
    }
    // An object of an unknown kind has these members too.
    for (definition, members) in [
        ("AuthMethod", &["methodId", "name"][..]),
        ("AvailableCommand", &["name", "description"]),
        ("PlanUpdateContent", &["planId"]),
        ("InitialSessionConfigOption", &["value"]),
        ("SetSessionConfigOptionRequest", &["value"]),
    ] {
        let variants = all.get_mut(definition).and_then(|schema| schema["anyOf"].as_array_mut());
        if let Some(Value::Object(other)) = variants.and_then(|variants| variants.last_mut()) {
            for member in members {
                let schema = if *member == "value" { json!({}) } else { json!({ "type": "string" }) };
                other["properties"][member] = schema;
                if let Some(required) = other["required"].as_array_mut() {
                    required.push((*member).into());
                }
            }
        }
    }
    if let Some(message) = all.get("MessageUpdate").cloned() {
        for name in ["UserMessage", "AgentMessage", "AgentThought"] {
            all.insert(name.to_owned(), message.clone());
        }
    }
    for (name, doc) in [
        ("AbsolutePath", "An absolute path in the syntax of the agent's machine."),
        ("MediaType", "A media type, such as `text/plain`."),
        ("SessionListCursor", "The opaque start of a page of `session/list`."),
    ] {
        all.insert(name.to_owned(), json!({ "description": doc, "type": "string" }));
    }
    if let Some(id) = all.get_mut("RequestId") {
        id["anyOf"] = json!([{ "type": "integer", "format": "int64" }, { "type": "string" }]);
    }
}
