//! The agent's dialogues and work orders: right but for one fault.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Its name in dialogues.
const OWN: &str = "agent://bob.example";

/// The messages that the agent has accepted, by their ids.
pub(crate) type AcceptedMessages = BTreeMap<String, Value>;

/// Returns the answer to a `_session/dialogue`. `line` is its text, which can have duplicate keys.
pub(crate) fn dialogue(
    fault: &str,
    line: &str,
    message: &Value,
    has_session: bool,
    accepted: &mut AcceptedMessages,
) -> Result<Value, Value> {
    let has = |name: &str| fault == name;
    if !has_session && !has("dialogue-session") {
        return Err(json!({"code": -32002, "message": "no such session"}));
    }
    let refuse = |code: &str, details: Value| {
        let mut content = json!({"error_code": code, "error_message": "no", "details": details});
        if !has("dialogue-refusal") {
            content["failed_message_id"] = message["message_id"].clone();
        }
        Ok(json!({"error": {
            "message_id": "refusal-1", "session_id": message["session_id"], "sender_id": OWN,
            "recipient_id": message["sender_id"], "timestamp": "2026-03-01T12:00:00Z", "interaction_step": 1,
            "message_type": "error", "content": content, "metadata": {},
        }}))
    };
    if line.matches("\"interaction_step\"").count() > 1 && !has("dialogue-strict-json") {
        return refuse("INVALID_PARAMETER", json!({}));
    }
    if message["recipient_id"] != OWN {
        return refuse("NOT_FOUND", json!({}));
    }
    if message["metadata"]["ttl"].is_u64() && !has("dialogue-expired") {
        return refuse("EXPIRED", json!({}));
    }
    if message["message_type"] == "accept" {
        let allowed = if has("dialogue-moves") { json!([]) } else { json!(["request", "inform"]) };
        return refuse("INVALID_PARAMETER", json!({"allowed": allowed}));
    }
    let id = message["message_id"].as_str().unwrap_or_default().to_owned();
    let before = accepted.insert(id.clone(), message.clone());
    let is_repeated = before.as_ref() == Some(message);
    if before.is_some() && !is_repeated && !has("dialogue-conflict") {
        return refuse("CONFLICT", json!({}));
    }
    let id = if has("dialogue-receipt") { "another".to_owned() } else { id };
    let duplicate = is_repeated && !has("dialogue-repetition");
    let session = &message["session_id"];
    Ok(
        json!({"receipt": {"message_id": id, "session_id": session, "duplicate": duplicate, "status": "delivered"}}),
    )
}

/// Returns the answer to a `_session/work`.
pub(crate) fn work(fault: &str, params: &Value, has_session: bool) -> Result<Value, Value> {
    let has = |name: &str| fault == name;
    let refuse = |code: i32, name: &str, text: &str| {
        Err(json!({"code": code, "message": text, "data": {"code": name, "retryable": false}}))
    };
    if !has_session && params.get("sessionId").is_some() && !has("work-session") {
        return refuse(-32002, "not_found", "no such session");
    }
    let required = ["/context", "/paths", "/task", "/context/iteration", "/task/params"];
    let missing = required.iter().find(|path| params["input"].pointer(path).is_none());
    match missing {
        Some(path) if !has("work-missing-member") => {
            refuse(-32602, "invalid_parameter", &format!("{path} is missing"))
        }
        None if has("work-answered") => Ok(json!({"output": {"success": true}})),
        _ => refuse(-32602, "invalid_parameter", "no such action"),
    }
}
