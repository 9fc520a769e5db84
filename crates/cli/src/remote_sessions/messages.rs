//! Parts of messages, as the relay reads and writes them.

use duologue_rpc::raw_message::{member_text, response_line};
use duologue_schema::{
    CreateElicitationRequest, Error as RpcError, LoadSessionRequest, NewSessionRequest, Request as _,
    RequestId, RequestPermissionRequest, ResumeSessionRequest,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(super) fn opens_session(method: &str) -> bool {
    [NewSessionRequest::METHOD, LoadSessionRequest::METHOD, ResumeSessionRequest::METHOD].contains(&method)
}

pub(super) fn is_question(method: &str) -> bool {
    [RequestPermissionRequest::METHOD, CreateElicitationRequest::METHOD].contains(&method)
}

/// Removes the cursor of the transport, and the `_meta` that it may have added for it.
pub(super) fn remove_cursor(params: &mut Value) {
    let Some(params) = params.as_object_mut() else { return };
    let is_empty = match params.get_mut("_meta") {
        Some(Value::Object(meta)) => {
            meta.remove("acp/cursor");
            meta.is_empty()
        }
        meta => meta.is_some_and(|meta| meta.is_null()),
    };
    if is_empty {
        params.remove("_meta");
    }
}

/// Answers a request of the server with an error.
pub(super) fn refuse(id: &RequestId, error: &RpcError, answers: &mpsc::Sender<Vec<u8>>) {
    if let Ok(line) = response_line(id.token(), Err(error)) {
        // A server that does not read gets no answer.
        let _ = answers.try_send(without_end(line));
    }
}

/// Returns an id in one form, whichever way its sender writes it.
pub(super) fn key(id: &str) -> String {
    serde_json::from_str::<Value>(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

pub(super) fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

pub(super) fn session_of(params: &RawValue) -> Option<String> {
    Some(member_text(params.get().as_bytes(), "sessionId")?.into_owned())
}

/// Sets a member of `_meta.duologue`.
pub(super) fn set_meta(params: &mut Value, name: &str, value: Value) {
    let mut object = params;
    for name in ["_meta", "duologue"] {
        let Some(members) = object.as_object_mut() else { return };
        object = members.entry(name).or_insert_with(|| json!({}));
    }
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

pub(super) fn without_end(mut line: Vec<u8>) -> Vec<u8> {
    line.pop();
    line
}
