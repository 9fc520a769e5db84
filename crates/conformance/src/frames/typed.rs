//! Decodes params, results and errors by their types and encodes them again.

use duologue_schema::{
    AgentNotification, AgentRequest, AgentResponse, CancelRequestNotification, ClientNotification,
    ClientRequest, ClientResponse, Error, InitializeRequest, MethodSide, Request as _, SessionUpdate,
    UNSTABLE_METHODS, UnstableAgentNotification, UnstableAgentRequest, UnstableAgentResponse,
    UnstableClientNotification, UnstableClientRequest, UnstableClientResponse, v2,
};
use duologue_transcript::{Side, TranscriptEntry};
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::de::StrRead;
use serde_path_to_error::{Path, Segment, Track};

use super::path::member;
use super::problems::Problems;
use super::{between_agents, compare, row};

/// Validates the params of a request or notification. Returns true if encoding restores them.
pub(super) fn params(entry: &TranscriptEntry<'_>, params: &Value, problems: &mut Problems) -> bool {
    let path = "$.params";
    let Some(method) = entry.method() else { return true };
    if between_agents::row(method).is_some() {
        return between_agents::params(method, params, problems);
    }
    let Some(row) = row(entry) else { return true };
    let is_request = row.result.is_some();
    if method == InitializeRequest::METHOD {
        return initialize(params, problems);
    }
    if row.side == MethodSide::Protocol {
        return round_trip(params, path, problems, |json| Some(CancelRequestNotification::deserialize(json)));
    }
    if (row.side, is_request) == (MethodSide::Client, false) {
        unknown_update(params, entry.is_v2(), problems);
    }
    let is_unstable = UNSTABLE_METHODS.into_iter().flatten().any(|row| row.method == method);
    /// Reads the params by the table of this version.
    macro_rules! read {
        ($stable:ident, $unstable:ident) => {
            match (entry.is_v2(), is_unstable) {
                (true, _) => round_trip(params, path, problems, |json| v2::$stable::read(method, json)),
                (false, true) => round_trip(params, path, problems, |json| $unstable::read(method, json)),
                (false, false) => round_trip(params, path, problems, |json| $stable::read(method, json)),
            }
        };
    }
    match (row.side, is_request) {
        (MethodSide::Agent, true) => read!(ClientRequest, UnstableClientRequest),
        (MethodSide::Agent, false) => read!(ClientNotification, UnstableClientNotification),
        (_, true) => read!(AgentRequest, UnstableAgentRequest),
        (_, false) => read!(AgentNotification, UnstableAgentNotification),
    }
}

/// Validates the params of `initialize`. A client that offers version 2 may send the members of both versions.
fn initialize(params: &Value, problems: &mut Problems) -> bool {
    const OF_V1: [&str; 2] = ["clientCapabilities", "clientInfo"];
    const OF_V2: [&str; 2] = ["capabilities", "info"];
    let has = |names: [&str; 2]| names.iter().any(|name| params.get(name).is_some());
    let offers = params.get("protocolVersion").and_then(Value::as_u64).unwrap_or_default();
    let without = |names: [&str; 2]| {
        let mut params = params.clone();
        names.iter().for_each(|name| _ = params.as_object_mut().and_then(|params| params.remove(*name)));
        params
    };
    let is_v2 = offers >= 2 && has(OF_V2);
    let mut lossless = true;
    if is_v2 {
        let params = without(OF_V1);
        lossless &=
            round_trip(&params, "$.params", problems, |json| Some(v2::InitializeRequest::deserialize(json)));
    }
    if !is_v2 || has(OF_V1) {
        let params = if is_v2 { without(OF_V2) } else { params.clone() };
        lossless &=
            round_trip(&params, "$.params", problems, |json| Some(InitializeRequest::deserialize(json)));
    }
    lossless
}

/// Validates the result of a request. Returns true if encoding restores it.
pub(super) fn result(entry: &TranscriptEntry<'_>, result: &Value, problems: &mut Problems) -> bool {
    let method = entry.method().unwrap_or_default();
    if between_agents::row(method).is_some() {
        return between_agents::result(method, result, problems);
    }
    let path = "$.result";
    let is_unstable = UNSTABLE_METHODS.into_iter().flatten().any(|row| row.method == method);
    match (entry.from(), entry.is_v2(), is_unstable) {
        (Side::Agent, true, _) => {
            round_trip(result, path, problems, |json| v2::AgentResponse::read(method, json))
        }
        (Side::Agent, _, true) => {
            round_trip(result, path, problems, |json| UnstableAgentResponse::read(method, json))
        }
        (Side::Agent, ..) => round_trip(result, path, problems, |json| AgentResponse::read(method, json)),
        (_, true, _) => round_trip(result, path, problems, |json| v2::ClientResponse::read(method, json)),
        (_, _, true) => round_trip(result, path, problems, |json| UnstableClientResponse::read(method, json)),
        _ => round_trip(result, path, problems, |json| ClientResponse::read(method, json)),
    }
}

/// Warns of an update of an unknown kind, which is kept unchanged.
fn unknown_update(params: &Value, is_v2: bool, problems: &mut Problems) {
    let Some(update) = params.get("update") else { return };
    let path = "$.params.update.sessionUpdate";
    let unknown = |tag: &str| format!("is {tag:?}, which is unknown and kept as it is");
    if is_v2 {
        if let Ok(v2::SessionUpdate::Unknown(update)) = serde_json::from_value(update.clone()) {
            problems.warning(path, unknown(update.tag()));
        }
        return;
    }
    let update: Option<SessionUpdate> = serde_json::from_value(update.clone()).ok();
    let Some(update) = update else { return };
    if let Some(tag) = update.tag_outside_v1() {
        problems.warning(path, unknown(tag));
    }
}

/// Validates an error response to `method`. Returns true if encoding restores it.
pub(super) fn error(method: &str, error: &Value, problems: &mut Problems) -> bool {
    let lossless = round_trip(error, "$.error", problems, |json| Some(Error::deserialize(json)));
    if between_agents::row(method).is_some() {
        between_agents::error(error, problems) && lossless
    } else {
        lossless
    }
}

/// A deserializer that tracks its path.
type Json<'a> = serde_path_to_error::Deserializer<'a, 'a, &'a mut serde_json::Deserializer<StrRead<'a>>>;

/// Decodes and encodes a value. `read` returns `None` if the value has no type, and then it stays
/// unchanged.
pub(super) fn round_trip<T: Serialize>(
    value: &Value,
    path: &str,
    problems: &mut Problems,
    read: impl for<'a> FnOnce(Json<'a>) -> Option<Result<T, serde_json::Error>>,
) -> bool {
    // An error has a path only behind the tag of a union, so the tags come first.
    let text = serde_json::to_string(&TagsFirst(value)).unwrap_or_default();
    let mut json = serde_json::Deserializer::from_str(&text);
    let mut track = Track::new();
    match read(serde_path_to_error::Deserializer::new(&mut json, &mut track)) {
        None => true,
        Some(Ok(typed)) => {
            let written = serde_json::to_value(&typed).unwrap_or_default();
            compare::same(value, &written, path, problems)
        }
        Some(Err(error)) => {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            problems.error(below(path, &track.path()), reason);
            false
        }
    }
}

/// Appends the path of an error to another path.
pub(super) fn below(path: &str, error: &Path) -> String {
    error.iter().fold(path.to_owned(), |path, segment| match segment {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } | Segment::Enum { variant: key } => member(&path, key),
        Segment::Unknown => path,
    })
}

/// A value whose objects begin with the tags of their unions.
struct TagsFirst<'a>(&'a Value);

const TAGS: [&str; 7] = ["sessionUpdate", "type", "outcome", "mode", "action", "state", "operation"];

impl Serialize for TagsFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(TagsFirst)),
            Value::Object(members) => {
                let is_tag = |(key, _): &(&String, &Value)| TAGS.contains(&key.as_str());
                let (tags, rest): (Vec<_>, Vec<_>) = members.iter().partition(is_tag);
                serializer
                    .collect_map(tags.into_iter().chain(rest).map(|(key, value)| (key, TagsFirst(value))))
            }
            leaf => leaf.serialize(serializer),
        }
    }
}
