//! The params that an agent accepts and its responses, for every method of the table.

use std::sync::LazyLock;

use duologue_schema::{
    AgentResponse, CancelRequestNotification, ClientNotification, ClientRequest, METHODS, MethodSide,
};

use crate::kept::{method_and_json, survives};

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    METHODS.concat().iter().filter(|row| row.side != MethodSide::Client).map(|row| row.method).collect()
});

/// The name of a method and JSON, see [`method_and_json`]: read as its params and as its result.
pub fn check(input: &[u8]) {
    let Some((method, json)) = method_and_json(input, &NAMES) else { return };
    survives(json, |json| ClientRequest::decode(method, Some(json))?.ok());
    survives(json, |json| ClientNotification::decode(method, Some(json))?.ok());
    survives(json, |json| AgentResponse::read(method, json)?.ok());
    survives(json, |json| serde_json::from_str::<CancelRequestNotification>(json.get()).ok());
}
