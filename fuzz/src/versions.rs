//! The messages of protocol version 2, and their way through the types of the programs.

use std::sync::LazyLock;

use duologue_schema::{
    AuthenticateRequest, CreateElicitationRequest, ForkSessionRequest, ForkSessionResponse,
    InitializeRequest, InitializeResponse, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    PromptRequest, RequestPermissionRequest, RequestPermissionResponse, ResumeSessionResponse,
    SessionNotification, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, v2,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::kept::{method_and_json, survives};

static NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| v2::METHODS.concat().iter().map(|row| row.method).collect());

/// The name of a method and JSON, see [`method_and_json`]: read as its params and as its result.
pub fn check(input: &[u8]) {
    let Some((method, json)) = method_and_json(input, &NAMES) else { return };
    survives(json, |json| v2::ClientRequest::decode(method, Some(json))?.ok());
    survives(json, |json| v2::ClientNotification::decode(method, Some(json))?.ok());
    survives(json, |json| v2::AgentRequest::decode(method, Some(json))?.ok());
    survives(json, |json| v2::AgentNotification::decode(method, Some(json))?.ok());
    survives(json, |json| v2::AgentResponse::read(method, json)?.ok());
    survives(json, |json| v2::ClientResponse::read(method, json)?.ok());
    match method {
        "initialize" => {
            settles::<v2::InitializeRequest, InitializeRequest>(json);
            // The first conversion adds the methods that version 2 demands of agents.
            let response = serde_json::from_str::<v2::InitializeResponse>(json.get()).ok();
            let complete =
                response.map(|response| v2::InitializeResponse::from(InitializeResponse::from(response)));
            if let Some(json) = complete.and_then(|complete| serde_json::value::to_raw_value(&complete).ok())
            {
                settles::<v2::InitializeResponse, InitializeResponse>(&json);
            }
        }
        "auth/login" => settles::<v2::LoginAuthRequest, AuthenticateRequest>(json),
        "session/new" => {
            settles::<v2::NewSessionRequest, NewSessionRequest>(json);
            settles::<v2::NewSessionResponse, NewSessionResponse>(json);
        }
        "session/resume" => {
            settles::<v2::ResumeSessionResponse, ResumeSessionResponse>(json);
            settles::<v2::ResumeSessionResponse, LoadSessionResponse>(json);
        }
        "session/fork" => {
            settles::<v2::ForkSessionRequest, ForkSessionRequest>(json);
            settles::<v2::ForkSessionResponse, ForkSessionResponse>(json);
        }
        "session/prompt" => settles::<v2::PromptRequest, PromptRequest>(json),
        "session/set_config_option" => {
            settles::<v2::SetSessionConfigOptionRequest, SetSessionConfigOptionRequest>(json);
            settles::<v2::SetSessionConfigOptionResponse, SetSessionConfigOptionResponse>(json);
        }
        "session/request_permission" => {
            settles::<v2::RequestPermissionRequest, RequestPermissionRequest>(json);
            settles::<v2::RequestPermissionResponse, RequestPermissionResponse>(json);
        }
        "elicitation/create" => settles::<v2::CreateElicitationRequest, CreateElicitationRequest>(json),
        "session/update" => settles::<v2::UpdateSessionNotification, SessionNotification>(json),
        _ => {}
    }
}

/// Checks that a message loses something at its first conversion only: converted back and again, it is the same.
fn settles<Wire, Domain>(json: &RawValue)
where
    Wire: DeserializeOwned + Serialize + TryFrom<Domain>,
    Domain: TryFrom<Wire> + Clone + Serialize,
{
    let read = |json: &str| Domain::try_from(serde_json::from_str::<Wire>(json).ok()?).ok();
    let Some(first) = read(json.get()) else { return };
    // A message of the domain may have no form in version 2.
    let Ok(back) = Wire::try_from(first.clone()) else { return };
    let back = serde_json::to_string(&back).expect("what was converted can be written");
    let second = read(&back).unwrap_or_else(|| panic!("{back} cannot be read again"));
    let again = Wire::try_from(second.clone()).ok().expect("it was converted before");
    assert_eq!(serde_json::to_string(&again).expect("it can be written again"), back);
    // The form of version 1 is what programs see.
    assert_eq!(serde_json::to_string(&first).ok(), serde_json::to_string(&second).ok(), "{back}");
}
