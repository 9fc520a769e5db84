//! The files and terminals of the client, which a server reaches only with `--allow-files`.

use duologue_schema::{Error as RpcError, ErrorCode};
use serde_json::Value;

/// The beginnings of the methods with which an agent uses them. Version 2 has no such methods.
const METHODS: [&str; 2] = ["fs/", "terminal/"];

/// Returns true for a method that uses files or terminals.
pub(super) fn is_method(method: &str) -> bool {
    METHODS.iter().any(|beginning| method.starts_with(beginning))
}

/// Returns the error for a request with such a method.
pub(super) fn refusal() -> RpcError {
    let reason =
        "`duologue connect` passes on no request for files or terminals; start it with `--allow-files`";
    RpcError::new(ErrorCode::METHOD_NOT_FOUND, reason)
}

/// Removes the capabilities for files and terminals from the params of `initialize`. Returns true if there were some.
pub(super) fn remove_capabilities(params: &mut Value) -> bool {
    let mut has_changed = false;
    // Version 2 has the second name.
    for capabilities in ["clientCapabilities", "capabilities"] {
        let Some(capabilities) = params.get_mut(capabilities).and_then(Value::as_object_mut) else {
            continue;
        };
        for name in ["fs", "terminal"] {
            has_changed |= capabilities.remove(name).is_some();
        }
    }
    has_changed
}
