//! The draft of version 2: its tables of methods, its types and the conversions.

use duologue_schema::export::Surface;
use duologue_schema::export::random::{RandomValues, same};
use duologue_schema::v2::convert::{SessionOpening, mode_request, options_with_modes};
use duologue_schema::{
    AuthMethod, ClientCapabilities, DuologueCapabilities, InitializeResponse, MethodRow, PromptResponse,
    RequestPermissionRequest, SessionConfigOption, SessionMode, SessionModeState, SessionUpdate, StateUpdate,
    StopReason, ToolCallContent, ToolCallUpdate, v2,
};
use insta::assert_snapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_str(&value.to_string()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn write<T: Serialize>(value: T) -> String {
    serde_json::to_string(&value).unwrap()
}

#[test]
fn every_method_has_its_types() {
    let row = |row: &MethodRow| {
        let result = row.result.map(|result| format!(" -> {result}")).unwrap_or_default();
        format!("{:?} {}({}){result}\n", row.side, row.method, row.params)
    };
    let all = v2::METHODS.into_iter().flatten().chain(v2::PROXY_METHODS);
    assert_snapshot!(all.map(row).collect::<String>(), @r"
    Agent initialize(InitializeRequest) -> InitializeResponse
    Agent auth/login(LoginAuthRequest) -> LoginAuthResponse
    Agent auth/logout(LogoutAuthRequest) -> LogoutAuthResponse
    Agent session/new(NewSessionRequest) -> NewSessionResponse
    Agent session/resume(ResumeSessionRequest) -> ResumeSessionResponse
    Agent session/fork(ForkSessionRequest) -> ForkSessionResponse
    Agent session/set_config_option(SetSessionConfigOptionRequest) -> SetSessionConfigOptionResponse
    Agent session/prompt(PromptRequest) -> PromptResponse
    Agent tool_call/cancel(CancelToolCallRequest) -> CancelToolCallResponse
    Agent terminal/cancel(CancelTerminalRequest) -> CancelTerminalResponse
    Agent session/list(ListSessionsRequest) -> ListSessionsResponse
    Agent session/delete(DeleteSessionRequest) -> DeleteSessionResponse
    Agent session/close(CloseSessionRequest) -> CloseSessionResponse
    Agent auth/status(AuthStatusRequest) -> AuthStatusResponse
    Agent session/archive(ArchiveSessionRequest) -> ArchiveSessionResponse
    Agent session/unarchive(UnarchiveSessionRequest) -> UnarchiveSessionResponse
    Agent session/set_title(SetSessionTitleRequest) -> SetSessionTitleResponse
    Agent session/status(SessionStatusRequest) -> SessionStatusResponse
    Agent session/options(SessionOptionsRequest) -> SessionOptionsResponse
    Agent providers/list(ListProvidersRequest) -> ListProvidersResponse
    Agent providers/set(SetProviderRequest) -> SetProviderResponse
    Agent providers/disable(DisableProviderRequest) -> DisableProviderResponse
    Agent session/cancel(CancelSessionNotification)
    Agent mcp/message(MessageMcpNotification)
    Client session/request_permission(RequestPermissionRequest) -> RequestPermissionResponse
    Client elicitation/create(CreateElicitationRequest) -> CreateElicitationResponse
    Client mcp/message(MessageMcpRequest) -> MessageMcpResponse
    Client session/update(UpdateSessionNotification)
    Client elicitation/complete(CompleteElicitationNotification)
    Client auth/status_update(AuthStatusUpdateNotification)
    Protocol $/cancel_request(CancelRequestNotification)
    Protocol proxy/initialize(InitializeProxyRequest) -> InitializeProxyResponse
    Protocol proxy/successor(ProxySuccessorRequest) -> ProxySuccessorResponse
    Protocol proxy/successor(ProxySuccessorNotification)
    ");
    let decoded = v2::ClientRequest::decode("tool_call/cancel", None).unwrap().unwrap_err();
    assert_eq!(decoded.message, "tool_call/cancel: missing field `sessionId`");
    assert!(v2::ClientRequest::decode("session/load", None).is_none());
}

#[test]
fn a_known_kind_with_a_bad_payload_is_an_error() {
    for (name, value) in [
        (
            "SessionUpdate",
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "a" } }),
        ),
        ("SessionUpdate", json!({ "sessionUpdate": "state_update" })),
        ("AuthMethod", json!({ "type": "agent", "id": "a", "name": "A" })),
        ("McpServer", json!({ "name": "a", "command": "/a", "args": [], "env": [] })),
        ("InitializeRequest", json!({ "protocolVersion": 2 })),
    ] {
        let definition =
            Surface::V2.definitions().into_iter().find(|definition| definition.name == name).unwrap();
        assert!((definition.round_trip)(&value.to_string()).is_err(), "{name}: {value}");
    }
}

#[test]
fn unknown_kinds_survive_both_conversions() {
    let update = json!({ "sessionUpdate": "later", "x": [1.50] });
    let converted = SessionUpdate::from(read::<v2::SessionUpdate>(update.clone()));
    assert_eq!(write(v2::SessionUpdate::try_from(converted).unwrap()), update.to_string());

    let method = json!({ "type": "later", "methodId": "m", "name": "M", "x": 1 });
    let converted = AuthMethod::from(read::<v2::AuthMethod>(method.clone()));
    assert_eq!(converted.id(), Some("m".into()));
    assert_eq!(write(v2::AuthMethod::from(converted)), method.to_string());
}

/// Random updates of version 2 become ones of the domain and again the same ones, except for documented losses.
#[test]
fn updates_survive_the_conversions() {
    let document = Surface::V2Unstable.document();
    let mut count = 0;
    for seed in 0..2000 {
        let mut value = RandomValues::new(&document, seed).definition("SessionUpdate");
        if let Some(title) = value.get_mut("title").filter(|title| title.is_null()) {
            *title = "cleared titles become the id".into();
        }
        // A compaction with a cleared status is in progress.
        if value["sessionUpdate"] == "compaction_update" && value.get("status").is_some_and(Value::is_null) {
            value["status"] = "in_progress".into();
        }
        let Ok(update) = serde_json::from_str::<v2::SessionUpdate>(&value.to_string()) else { continue };
        let losses = ["available_commands_update"];
        if losses.contains(&update.tag()) {
            continue;
        }
        let before = serde_json::to_value(&update).unwrap();
        let converted = SessionUpdate::from(update);
        let after = serde_json::to_value(v2::SessionUpdate::try_from(converted).unwrap()).unwrap();
        assert!(same_upsert(&before, &after), "{before}\n{after}");
        count += 1;
    }
    assert!(count > 1000, "{count}");
}

/// Returns true if a random value of the definition becomes one of the domain and again the same one, or cannot.
fn survives<V, D>(name: &str, seed: u64, document: &Value) -> Option<()>
where
    V: Serialize + DeserializeOwned + TryFrom<D>,
    D: TryFrom<V>,
{
    let mut value = RandomValues::new(document, seed).definition(name);
    // Documented losses: the metadata of a subject, and the clears of its tool call.
    if let Some(subject) = value.get_mut("subject").and_then(Value::as_object_mut) {
        subject.remove("_meta");
        if let Some(call) = subject.get_mut("toolCall").and_then(Value::as_object_mut) {
            call.retain(|_, value| !value.is_null());
        }
    }
    // Commands of an unknown kind, and their input.
    if let Some(commands) = value.get_mut("availableCommands").and_then(Value::as_array_mut) {
        commands.retain(|command| command["type"] == "command");
        for command in commands.iter_mut().filter_map(Value::as_object_mut) {
            if command.get("input").is_some_and(|input| input["type"] != "text") {
                command.remove("input");
            }
        }
    }
    // First values of an unknown type.
    if let Some(options) = value.get_mut("configOptions").and_then(Value::as_array_mut) {
        options.retain(|option| {
            option["name"].is_string() || option["type"] == "id" || option["type"] == "boolean"
        });
    }
    let read: V = serde_json::from_str(&value.to_string()).ok()?;
    let before = serde_json::to_value(&read).unwrap();
    let converted = D::try_from(read).ok()?;
    let after = serde_json::to_value(V::try_from(converted).ok()?).unwrap();
    assert!(same(&before, &after), "{name}\n{before}\n{after}");
    Some(())
}

#[test]
fn requests_and_responses_survive_the_conversions() {
    let document = Surface::V2Unstable.document();
    macro_rules! survive {
        ($($name:ident <=> $domain:ident,)*) => {$({
            let survived = (0..300).filter_map(|seed| {
                survives::<v2::$name, duologue_schema::$domain>(stringify!($name), seed, &document)
            });
            let survived = survived.count();
            assert!(survived > 100, "{}: {survived}", stringify!($name));
        })*};
    }
    survive! {
        LoginAuthRequest <=> AuthenticateRequest,
        LoginAuthResponse <=> AuthenticateResponse,
        LogoutAuthRequest <=> LogoutRequest,
        LogoutAuthResponse <=> LogoutResponse,
        NewSessionRequest <=> NewSessionRequest,
        NewSessionResponse <=> NewSessionResponse,
        ResumeSessionResponse <=> ResumeSessionResponse,
        ResumeSessionResponse <=> LoadSessionResponse,
        AvailableCommandsUpdate <=> AvailableCommandsUpdate,
        ForkSessionRequest <=> ForkSessionRequest,
        ForkSessionResponse <=> ForkSessionResponse,
        PromptRequest <=> PromptRequest,
        CancelSessionNotification <=> CancelNotification,
        SetSessionConfigOptionRequest <=> SetSessionConfigOptionRequest,
        SetSessionConfigOptionResponse <=> SetSessionConfigOptionResponse,
        RequestPermissionRequest <=> RequestPermissionRequest,
        McpServer <=> McpServer,
        SessionConfigOption <=> SessionConfigOption,
        ToolCallContent <=> ToolCallContent,
    }
}

/// Clears of a kind, a status and lists become their defaults.
fn same_upsert(before: &Value, after: &Value) -> bool {
    let mut before = before.clone();
    if before["sessionUpdate"] == "tool_call_update" {
        for (key, default) in [
            ("kind", json!("other")),
            ("status", json!("pending")),
            ("content", json!([])),
            ("locations", json!([])),
        ] {
            if let Some(value) = before.get_mut(key).filter(|value| value.is_null()) {
                *value = default;
            }
        }
    }
    same(&before, after)
}

#[test]
fn a_tool_call_update_keeps_its_three_states() {
    let update = json!({
        "toolCallId": "c", "name": null, "rawInput": null, "rawOutput": { "a": null }, "capabilities": null, "_meta": null,
    });
    let converted = ToolCallUpdate::from(read::<v2::ToolCallUpdate>(update));
    assert!(converted.cleared.name && converted.cleared.raw_input && converted.cleared.meta);
    // On the wire of version 1 nothing is added.
    assert_snapshot!(write(&converted), @r#"{"toolCallId":"c","rawOutput":{"a":null}}"#);
    assert_snapshot!(
        write(v2::ToolCallUpdate::from(converted)),
        @r#"{"toolCallId":"c","name":null,"rawInput":null,"rawOutput":{"a":null},"capabilities":null,"_meta":null}"#
    );
}

#[test]
fn a_cleared_message_is_one_without_content() {
    let clear = |id: Option<&str>| {
        v2::SessionUpdate::try_from(SessionUpdate::agent_message_clear(id.map(Into::into)))
    };
    assert_snapshot!(write(clear(Some("m")).unwrap()), @r#"{"sessionUpdate":"agent_message","messageId":"m","content":null}"#);
    assert_snapshot!(clear(None).unwrap_err(), @"in version 2 every message has an id");
}

#[test]
fn the_texts_of_a_diff_become_a_patch() {
    let patch = |old: Option<&str>, new: &str| {
        let content = ToolCallContent::diff("/a/b.rs", old.map(str::to_owned), new);
        let v2::ToolCallContent::Diff(diff) = v2::ToolCallContent::from(content) else { unreachable!() };
        diff.patch.unwrap().text
    };
    assert_snapshot!(patch(None, "one\ntwo"), @r"
    diff --git /a/b.rs /a/b.rs
    new file mode 100644
    --- /dev/null
    +++ /a/b.rs
    @@ -0,0 +1,2 @@
    +one
    +two
    \ No newline at end of file
    ");
    assert_snapshot!(patch(Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"), @r"
    diff --git /a/b.rs /a/b.rs
    --- /a/b.rs
    +++ /a/b.rs
    @@ -2,7 +2,7 @@
     2
     3
     4
    -5
    +five
     6
     7
     8
    ");
    assert_snapshot!(patch(Some("a\na\n"), "a\n"), @r"
    diff --git /a/b.rs /a/b.rs
    --- /a/b.rs
    +++ /a/b.rs
    @@ -1,2 +1,1 @@
     a
    -a
    ");
    assert_snapshot!(patch(Some("a\n"), "a\n"), @"diff --git /a/b.rs /a/b.rs");
}

#[test]
fn the_name_of_a_file_cannot_add_lines_to_its_patch() {
    let content = ToolCallContent::diff("/a\n--- \"b\"\u{7}", None, "");
    let v2::ToolCallContent::Diff(diff) = v2::ToolCallContent::from(content) else { unreachable!() };
    assert_snapshot!(diff.patch.unwrap().text, @r#"
    diff --git "/a\n--- \"b\"\007" "/a\n--- \"b\"\007"
    new file mode 100644
    "#);
}

#[test]
fn servers_with_server_sent_events_do_not_exist_in_version_2() {
    let request = json!({ "cwd": "/a", "mcpServers": [{ "type": "sse", "name": "a", "url": "http://a", "headers": [] }] });
    let request: duologue_schema::NewSessionRequest = read(request);
    let error = v2::NewSessionRequest::try_from(request).unwrap_err();
    assert_eq!(error.clone().into_error().code, duologue_schema::ErrorCode::INVALID_PARAMS);
    assert_snapshot!(error, @"version 2 has no MCP servers with server-sent events; use HTTP");
}

#[test]
fn modes_are_an_option() {
    let modes =
        SessionModeState::new("ask", [SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")]);
    let own = vec![SessionConfigOption::boolean("mode", "Mode", true)];
    let options = options_with_modes(Some(&modes), own.clone());
    assert_snapshot!(
        write(&options[0]),
        @r#"{"configId":"mode_","name":"Mode","category":"mode","type":"select","currentValue":"ask","options":[{"value":"ask","name":"Ask"},{"value":"code","name":"Code"}]}"#
    );
    let chosen = json!({ "sessionId": "s", "configId": "mode_", "type": "id", "value": "code" });
    let request = read::<v2::SetSessionConfigOptionRequest>(chosen).try_into().unwrap();
    assert_eq!(mode_request(&request, Some(&modes), &own).unwrap().mode_id, "code");
    assert_eq!(mode_request(&request, None, &own), None);

    // An agent with modes and such an option has one option.
    let mut mode = SessionConfigOption::select(
        "m",
        "Mode",
        "ask",
        Vec::<duologue_schema::SessionConfigSelectOption>::new(),
    );
    mode.category = Some(duologue_schema::SessionConfigOptionCategory::Mode);
    assert_eq!(options_with_modes(Some(&modes), vec![mode.clone()]).len(), 1);
    assert_eq!(mode_request(&request, Some(&modes), &[mode]), None);

    let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "code" });
    let error = v2::SessionUpdate::try_from(read::<SessionUpdate>(update)).unwrap_err();
    assert_snapshot!(error, @"version 2 has no modes; send all config options");
}

#[test]
fn replay_decides_between_load_and_resume() {
    let request = |replay: Value| {
        let request = json!({ "sessionId": "s", "cwd": "/a", "replayFrom": replay });
        SessionOpening::try_from(read::<v2::ResumeSessionRequest>(request))
    };
    assert!(matches!(request(Value::Null), Ok(SessionOpening::Resume(_))));
    let Ok(SessionOpening::Load(load)) = request(json!({ "type": "start" })) else { panic!("no load") };
    assert_snapshot!(
        write(v2::ResumeSessionRequest::try_from(load).unwrap()),
        @r#"{"sessionId":"s","cwd":"/a","replayFrom":{"type":"start"}}"#
    );
    assert_snapshot!(
        request(json!({ "type": "last" })).unwrap_err(),
        @"`replayFrom` must have the type `start`, not `last`"
    );
}

#[test]
fn the_end_of_a_turn_is_a_state() {
    let idle = StateUpdate::from(PromptResponse::new(StopReason::MaxTokens));
    assert_snapshot!(
        write(v2::SessionUpdate::from(idle)),
        @r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"max_tokens"}"#
    );
    let state = |value: Value| {
        let StateUpdate::Idle(idle) = read::<StateUpdate>(value) else { panic!("not idle") };
        PromptResponse::try_from(*idle)
    };
    let failed =
        json!({ "state": "idle", "stopReason": "error", "error": { "code": -32603, "message": "no" } });
    assert_eq!(state(failed.clone()).unwrap().stop_reason, StopReason::Error);
    assert_eq!(serde_json::to_value(read::<StateUpdate>(failed.clone())).unwrap(), failed);
    assert_snapshot!(state(json!({ "state": "idle" })).unwrap_err(), @"the state `idle` has no `stopReason`");
    // A malformed reason is no reason, and the fields of an unknown one survive.
    assert!(state(json!({ "state": "idle", "stopReason": 7 })).is_err());
    let unknown = json!({ "state": "idle", "stopReason": "paused", "until": 9 });
    assert_eq!(serde_json::to_value(read::<StateUpdate>(unknown.clone())).unwrap(), unknown);
    assert_eq!(state(unknown).unwrap().stop_reason.as_str(), "paused");
}

#[test]
fn a_permission_keeps_its_question() {
    let command = json!({
        "sessionId": "s", "title": "Run it?", "description": "It is safe.",
        "subject": { "type": "command", "command": "rm -r /", "cwd": "/", "toolCallId": "c" },
        "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }],
    });
    let request = RequestPermissionRequest::from(read::<v2::RequestPermissionRequest>(command.clone()));
    assert!(request.question.as_ref().unwrap().is_stand_in);
    assert_snapshot!(
        write(&request.tool_call),
        @r#"{"toolCallId":"c","title":"rm -r /","kind":"execute","rawInput":{"command":"rm -r /","cwd":"/"}}"#
    );
    let back: Value = serde_json::from_str(&write(v2::RequestPermissionRequest::from(request))).unwrap();
    assert_eq!(back, command);

    let call = json!({
        "sessionId": "s", "title": "Read?", "subject": { "type": "tool_call", "toolCall": { "toolCallId": "c" } },
        "options": [],
    });
    let request = RequestPermissionRequest::from(read::<v2::RequestPermissionRequest>(call.clone()));
    assert!(!request.question.as_ref().unwrap().is_stand_in);
    assert_eq!(serde_json::to_value(v2::RequestPermissionRequest::from(request)).unwrap(), call);

    // The title says what the agent chooses, so the user sees the whole subject.
    let own = json!({
        "sessionId": "s", "title": "Go on?", "subject": { "type": "_own", "disk": "all" }, "options": [],
    });
    let request = RequestPermissionRequest::from(read::<v2::RequestPermissionRequest>(own.clone()));
    assert_eq!(request.tool_call.raw_input.as_ref().unwrap().to_string(), r#"{"disk":"all","type":"_own"}"#);
    assert_eq!(serde_json::to_value(v2::RequestPermissionRequest::from(request)).unwrap(), own);

    let bare = json!({ "sessionId": "s", "title": "Really?", "options": [] });
    let request = RequestPermissionRequest::from(read::<v2::RequestPermissionRequest>(bare.clone()));
    assert_eq!(serde_json::to_value(v2::RequestPermissionRequest::from(request)).unwrap(), bare);

    let of_version_1 = RequestPermissionRequest::new("s", ToolCallUpdate::new("c").title("Read"), []);
    assert_eq!(v2::RequestPermissionRequest::from(of_version_1).title, "Read");
}

#[test]
fn capabilities_become_those_of_the_other_version() {
    let client =
        ClientCapabilities::from(read::<v2::ClientCapabilities>(json!({ "auth": { "terminal": {} } })));
    assert!(client.auth.terminal && !client.terminal && client.subagents.is_some());
    assert!(client.has_notices() && client.has_compaction() && client.has_boolean_options());
    assert!(DuologueCapabilities::of(client.meta.as_ref()).message_clear && client.has_message_clear());
    assert_snapshot!(
        write(v2::ClientCapabilities::from(client)),
        @r#"{"auth":{"terminal":{}},"_meta":{"duologue":{"messageClear":true}}}"#
    );
    let session = r#"{"session":{"_meta":{"a":1}}}"#;
    let client = ClientCapabilities::from(serde_json::from_str::<v2::ClientCapabilities>(session).unwrap());
    assert!(write(v2::ClientCapabilities::from(client)).contains(r#""session":{"_meta":{"a":1}}"#));

    let agent = json!({
        "protocolVersion": 2, "info": { "name": "a", "version": "1" }, "authMethods": [{ "type": "agent", "methodId": "m", "name": "M" }],
        "capabilities": { "session": { "prompt": { "image": {} }, "mcp": { "stdio": {}, "http": {} }, "fork": {} } },
    });
    let response = InitializeResponse::from(read::<v2::InitializeResponse>(agent.clone()));
    let capabilities = &response.agent_capabilities;
    assert!(
        capabilities.load_session && capabilities.auth.logout.is_some() && capabilities.mcp_capabilities.http
    );
    assert!(capabilities.prompt_capabilities.image && capabilities.session_capabilities.list.is_some());
    assert_eq!(serde_json::to_value(v2::InitializeResponse::from(response)).unwrap(), agent);
}
