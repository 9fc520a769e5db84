//! The agent's envelopes: right but for one fault.

use serde_json::{Value, json};

/// Its id.
const OWN: &str = "b0b";

/// Returns the `_meta` value that the agent advertises.
pub(crate) fn advertised(fault: &str) -> Value {
    match fault {
        "no-envelopes" => json!({}),
        "agent-id" => json!({"duologue": {"envelope": {"v": [1]}, "dialogue": {}, "work": {}}}),
        _ => json!({"duologue": {"agentId": OWN, "envelope": {"v": [1]}, "dialogue": {}, "work": {}}}),
    }
}

/// Returns the result or the error for an envelope request. `None` means that it is another method.
pub(crate) fn answer(fault: &str, method: &str, params: &Value) -> Option<Result<Value, Value>> {
    let kind = method.strip_prefix("_session/")?;
    let envelope = &params["envelope"];
    let has = |name: &str| fault == name;
    let reply = |kind: &str, payload: Value| {
        json!({"v": 1, "id": format!("re-{}", envelope["id"].as_str().unwrap_or_default()), "from": OWN,
               "to": envelope["from"], "ts": 1, "kind": kind, "ref": envelope["id"], "payload": payload})
    };
    let refuse = |number: i32, code: &str| {
        let payload = json!({"code": code, "message": "no", "retryable": false});
        Some(Err(json!({"code": number, "message": "no", "data": {"envelope": reply("error", payload)}})))
    };
    if envelope["v"] != 1 && !has("unsupported-version") {
        return refuse(-31002, "unsupported_version");
    }
    if envelope["to"] != OWN && envelope["to"] != "" && !has("wrong-addressee") {
        return refuse(-32002, "not_found");
    }
    if kind == "query" {
        return match has("payload-checked") {
            true => refuse(-32603, "internal_error"),
            false => refuse(-32602, "invalid_parameter"),
        };
    }
    if !["ping", "discover", "cancel"].contains(&kind) {
        return match has("unknown-kind") {
            true => Some(Err(json!({"code": -32601, "message": "Method not found"}))),
            false => refuse(-32601, "unknown_kind"),
        };
    }
    if envelope["kind"] != kind && !has("kind-mismatch") {
        return refuse(-32602, "kind_mismatch");
    }
    if has("ping-answered") && envelope.get("payload").is_none() {
        return refuse(-32602, "invalid_parameter");
    }
    let (kind, payload) = match kind {
        "ping" => {
            ("pong", json!({"status": "idle", "uptime_secs": 1, "active_tasks": 0, "agent_name": "Bob"}))
        }
        "cancel" => ("ack", json!({"accepted": has("cancel-unknown"), "reason": "never heard of it"})),
        _ if has("discover-fits") => ("capabilities", json!({"agent_name": "Bob", "domains": "all"})),
        _ => (
            "capabilities",
            json!({"agent_name": "Bob", "domains": [], "channels": [], "tools": [],
                                     "max_concurrent_tasks": 1, "model": null}),
        ),
    };
    Some(Ok(json!({"envelope": reply(kind, payload)})))
}
