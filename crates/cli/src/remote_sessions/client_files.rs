//! The files, terminals and terminal logins of the client, which a server reaches only with `--allow-files`.

use duologue_rpc::Limits;
use duologue_rpc::raw_message::is_similar_name;
use duologue_schema::{AuthMethod, Error as RpcError, ErrorCode};
use serde_json::{Map, Value, json};

/// Returns the error for a request with a method of files or terminals.
pub(super) fn refusal() -> RpcError {
    let reason = "`duologue connect` passes on no request for files or terminals; start it with `--allow-files`, and the server with `--client-files`";
    RpcError::new(ErrorCode::METHOD_NOT_FOUND, reason)
}

/// Removes the capabilities for files and terminals from the params of `initialize`. Those that are no object are removed as
/// a whole, because some programs read the members of an array by their order.
pub(super) fn remove_capabilities(params: &mut Value) {
    let Some(params) = params.as_object_mut() else { return };
    // Version 2 has the second name.
    for name in ["clientCapabilities", "capabilities"] {
        remove_similar(params, name);
        let Some(capabilities) = params.get_mut(name) else { continue };
        let Some(capabilities) = capabilities.as_object_mut() else {
            params.remove(name);
            continue;
        };
        for name in ["fs", "terminal"] {
            remove_similar(capabilities, name);
            capabilities.remove(name);
        }
        for (object, name) in [("auth", "terminal"), ("_meta", AuthMethod::TERMINAL_META)] {
            remove_similar(capabilities, object);
            match capabilities.get_mut(object) {
                Some(Value::Object(members)) => {
                    remove_similar(members, name);
                    members.remove(name);
                }
                Some(_) => _ = capabilities.remove(object),
                None => {}
            }
        }
    }
}

/// Removes the members that some programs take for `name`. In the official Python SDK `_meta` has another name too.
fn remove_similar(object: &mut Map<String, Value>, name: &str) {
    let is_meta = |key: &str| name == "_meta" && is_similar_name(key, "field_meta");
    object.retain(|key, _| key == name || !(is_similar_name(key, name) || is_meta(key)));
}

/// Returns true for a login whose kind is `terminal`, or cannot be read.
fn is_terminal_login(login: &Map<String, Value>) -> bool {
    let mut kinds = login.iter().filter(|(name, _)| is_similar_name(name, "type"));
    kinds.any(|(_, kind)| {
        !kind.is_null() && kind.as_str().is_none_or(|kind| is_similar_name(kind, "terminal"))
    })
}

/// Returns a response without the logins in a terminal: the client would run a program with arguments and variables of the
/// server. It is written anew, so that the client reads what was read here.
///
/// # Errors
///
/// If the line cannot be read here, although the client may be able to, or is too long when it is written anew.
pub(super) fn without_terminal_logins(line: &[u8]) -> Result<Vec<u8>, RpcError> {
    let unreadable =
        |error| RpcError::internal(format!("the response of the server cannot be read: {error}"));
    let mut response: Value = serde_json::from_slice(line).map_err(unreadable)?;
    // Some programs read the members of an array by their order.
    if ["result", "error"].iter().any(|name| response.get(name).is_some_and(Value::is_array)) {
        return Err(RpcError::internal("the result or error of the server is an array and no object"));
    }
    if let Some(Value::Object(error)) = response.get_mut("error") {
        remove_similar(error, "data");
        if let Some(data) = error.get_mut("data").filter(|data| data.is_array()) {
            *data = Value::Null;
        }
    }
    for place in ["/result", "/error/data"] {
        let Some(Value::Object(answer)) = response.pointer_mut(place) else { continue };
        remove_similar(answer, "authMethods");
        let Some(logins) = answer.get_mut("authMethods") else { continue };
        let Value::Array(logins) = logins else {
            *logins = json!([]);
            continue;
        };
        logins.retain(|login| login.as_object().is_some_and(|login| !is_terminal_login(login)));
        for login in logins.iter_mut().filter_map(Value::as_object_mut) {
            remove_similar(login, "_meta");
            match login.get_mut("_meta") {
                Some(Value::Object(meta)) => {
                    remove_similar(meta, AuthMethod::TERMINAL_META);
                    meta.remove(AuthMethod::TERMINAL_META);
                }
                Some(meta) => *meta = Value::Null,
                None => {}
            }
        }
    }
    let (line, limit) = (response.to_string().into_bytes(), Limits::default().frame_bytes);
    if line.len() > limit {
        let reason =
            format!("the response of the server is longer than {limit} bytes in the form for the client");
        return Err(RpcError::internal(reason));
    }
    Ok(line)
}
