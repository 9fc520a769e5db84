//! The params that a client accepts and its responses, for every method of the table.

use std::sync::LazyLock;

use duologue_schema::{AgentNotification, AgentRequest, ClientResponse, METHODS, MethodSide, SessionUpdate};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kept::{method_and_json, survives};

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    METHODS.concat().iter().filter(|row| row.side == MethodSide::Client).map(|row| row.method).collect()
});

/// The name of a method and JSON, see [`method_and_json`]: read as its params and as its result.
pub fn check(input: &[u8]) {
    let Some((method, json)) = method_and_json(input, &NAMES) else { return };
    survives(json, |json| AgentRequest::decode(method, Some(json))?.ok());
    survives(json, |json| AgentNotification::decode(method, Some(json))?.ok());
    survives(json, |json| ClientResponse::read(method, json)?.ok());
    unknown_updates_are_kept(json);
}

/// An update of an unknown kind is written back as it came, every member of it.
fn unknown_updates_are_kept(json: &RawValue) {
    let update = serde_json::from_str::<SessionUpdate>(json.get());
    if let (Ok(update @ SessionUpdate::Unknown(_)), Ok(before)) =
        (update, serde_json::from_str::<Value>(json.get()))
    {
        assert_eq!(serde_json::to_value(&update).ok(), Some(before));
    }
}
