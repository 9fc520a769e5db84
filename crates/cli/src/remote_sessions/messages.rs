//! Parts of messages, as the relay reads and writes them.

use std::collections::HashSet;

use duologue_http::root_session;
use duologue_rpc::raw_message::{call_frame, member, member_text, response_frame, text};
use duologue_schema::{
    CreateElicitationRequest, Error as RpcError, LoadSessionRequest, NewSessionRequest, Request as _,
    RequestId, RequestPermissionRequest, ResumeSessionRequest,
};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::ID_BYTES;

pub(super) fn opens_session(method: &str) -> bool {
    [NewSessionRequest::METHOD, LoadSessionRequest::METHOD, ResumeSessionRequest::METHOD].contains(&method)
}

pub(super) fn is_question(method: &str) -> bool {
    [RequestPermissionRequest::METHOD, CreateElicitationRequest::METHOD].contains(&method)
}

/// The members of an object in their order, each with its text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The members of the params of a question and of their `_meta`. Their values are text, because numbers of different texts can
/// be equal as `f64`.
#[derive(Default, Hash)]
pub(super) struct QuestionContent {
    params: Vec<(String, String)>,
    meta: Vec<(String, String)>,
}

impl QuestionContent {
    /// Reads params without the cursor of the transport, and without the empty `_meta` that it may have added.
    ///
    /// Returns `None` for params that another program may read in another way.
    pub(super) fn read(params: &RawValue) -> Option<Self> {
        serde_json::from_str::<Value>(params.get()).ok()?;
        let mut content = QuestionContent { params: members(params.get())?, meta: Vec::new() };
        let meta = content.params.iter().position(|(name, _)| name == "_meta");
        if let Some(meta) = meta.map(|index| content.params.remove(index).1).filter(|meta| meta != "null") {
            content.meta = members(&meta)?;
            content.meta.retain(|(name, _)| name != "acp/cursor");
        }
        Some(content)
    }
}

/// Returns the members of an object in their order, or `None` if a name occurs twice.
fn members(object: &str) -> Option<Vec<(String, String)>> {
    let members = serde_json::from_str::<Members<'_>>(object).ok()?.0;
    let names: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
    let is_unique = names.len() == members.len();
    is_unique.then(|| members.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect())
}

/// Checks the id of a request of the server. An answer under another id would answer another request.
///
/// # Errors
///
/// If the id is longer than [`ID_BYTES`], or some programs would answer under another one: programs in JavaScript round numbers.
pub(super) fn check_id(id: &RequestId) -> Result<(), RpcError> {
    let id = id.token();
    let is_exact = match serde_json::from_str(id) {
        Ok(Value::Number(number)) => number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 53),
        // An error for a line that cannot be read has the id null.
        Ok(Value::Null) | Err(_) => false,
        Ok(_) => true,
    };
    if id.len() > ID_BYTES {
        return Err(RpcError::invalid_request(format!("the id of a request has more than {ID_BYTES} bytes")));
    }
    if !is_exact {
        let reason =
            "some programs cannot write the id of the request; use a text, or a whole number below 2^53";
        return Err(RpcError::invalid_request(reason));
    }
    Ok(())
}

/// Answers a request of the server with an error. One with a longer id than [`ID_BYTES`] has no answer, because the answers
/// that wait have a limit.
pub(super) fn refuse(id: &RequestId, error: &RpcError, answers: &mpsc::Sender<Vec<u8>>) {
    if id.token().len() <= ID_BYTES
        && let Ok(line) = response_frame(id.token(), Err(error))
    {
        // A server that does not read gets no answer.
        let _ = answers.try_send(line);
    }
}

/// Returns an id in one form, whichever way its sender writes its text. Numbers keep theirs: different ones can be equal as
/// `f64`.
pub(super) fn key(id: &str) -> String {
    let text = text(id.as_bytes()).filter(|_| id.starts_with('"'));
    text.map_or_else(|| id.to_owned(), |text| Value::from(text).to_string())
}

/// Returns the id of the request that is cancelled, as its sender writes it.
pub(super) fn request_id_of(params: &RawValue) -> Option<&str> {
    let params = params.get();
    params.get(member(params.as_bytes(), "requestId")?)
}

pub(super) fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Returns the position of the server in the result that opens a session.
pub(super) fn position(result: &Value) -> Option<String> {
    let position = result["_meta"]["duologue"]["position"].as_str();
    position.filter(|position| position.len() <= ID_BYTES).map(str::to_owned)
}

/// Returns the session that a message of the server is counted for: the one that its params name, or the root of a child.
pub(super) fn root_session_of(params: &RawValue) -> Option<String> {
    session_of(params).map(|id| root_session(&id).to_owned())
}

pub(super) fn session_of(params: &RawValue) -> Option<String> {
    Some(member_text(params.get().as_bytes(), "sessionId")?.into_owned())
}

/// Sets a member of `_meta.duologue`. A member that is null counts as absent. Returns false if one of them is no object.
pub(super) fn set_meta(params: &mut Value, name: &str, value: Value) -> bool {
    let mut object = params;
    for name in ["_meta", "duologue"] {
        let Some(members) = object.as_object_mut() else { return false };
        object = members.entry(name).or_insert(Value::Null);
        if object.is_null() {
            *object = json!({});
        }
    }
    let Some(members) = object.as_object_mut() else { return false };
    members.insert(name.to_owned(), value);
    true
}

/// Returns a prompt that the server may begin without the conversation so far, or `None` if its params cannot be read.
pub(super) fn with_fresh(id: &RawValue, method: &str, params: Option<&RawValue>) -> Option<Vec<u8>> {
    let mut params: Value = serde_json::from_str(params?.get()).ok()?;
    if !set_meta(&mut params, "fresh", json!(true)) {
        return None;
    }
    call_frame(Some(id), method, &params).ok()
}

/// Returns the error for a conversation that the agent has lost or may have lost, with the option of `connect` that goes on
/// without it.
pub(super) fn with_fresh_option(error: &RpcError) -> Option<RpcError> {
    let code = error.data_member::<String>("code");
    let is_lost = code.is_some_and(|code| matches!(&*code, "context_lost" | "restore_failed"));
    let option = "; or start `duologue connect` with `--fresh`, which continues without the conversation";
    let mut named = error.clone();
    named.message = format!("{}{option}", error.message).into();
    is_lost.then_some(named)
}
