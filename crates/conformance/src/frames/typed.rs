//! Decodes params, results and errors by their types and encodes them again.

use duologue_schema::{
    AgentNotification, AgentRequest, AgentResponse, CancelRequestNotification, ClientNotification,
    ClientRequest, ClientResponse, Error, SessionUpdate,
};
use duologue_transcript::Side;
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::de::StrRead;
use serde_path_to_error::{Path, Segment, Track};

use super::path::member;
use super::problems::Problems;
use super::{between_agents, compare, row};

/// Validates the params of a method. Returns true if encoding restores them.
pub(super) fn params(method: &str, params: &Value, problems: &mut Problems) -> bool {
    let path = "$.params";
    if between_agents::row(method).is_some() {
        return between_agents::params(method, params, problems);
    }
    let Some(row) = row(method) else { return true };
    match (row.side, row.result.is_some()) {
        (duologue_schema::MethodSide::Agent, true) => {
            round_trip(params, path, problems, |json| ClientRequest::read(method, json))
        }
        (duologue_schema::MethodSide::Agent, false) => {
            round_trip(params, path, problems, |json| ClientNotification::read(method, json))
        }
        (duologue_schema::MethodSide::Client, true) => {
            round_trip(params, path, problems, |json| AgentRequest::read(method, json))
        }
        (duologue_schema::MethodSide::Client, false) => {
            unknown_update(params, problems);
            round_trip(params, path, problems, |json| AgentNotification::read(method, json))
        }
        (duologue_schema::MethodSide::Protocol, _) => {
            round_trip(params, path, problems, |json| Some(CancelRequestNotification::deserialize(json)))
        }
    }
}

/// Validates the result of a request that `asker` sent. Returns true if encoding restores it.
pub(super) fn result(method: &str, requester: Side, result: &Value, problems: &mut Problems) -> bool {
    if between_agents::row(method).is_some() {
        return between_agents::result(method, result, problems);
    }
    match requester {
        Side::Client => round_trip(result, "$.result", problems, |json| AgentResponse::read(method, json)),
        Side::Agent => round_trip(result, "$.result", problems, |json| ClientResponse::read(method, json)),
    }
}

/// Warns of an update of an unknown kind, which is kept unchanged.
fn unknown_update(params: &Value, problems: &mut Problems) {
    let update = params.get("update").and_then(|update| serde_json::from_value(update.clone()).ok());
    if let Some(SessionUpdate::Unknown(unknown)) = update {
        let problem = format!("is {:?}, which is unknown and kept as it is", unknown.tag());
        problems.warning("$.params.update.sessionUpdate", problem);
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

const TAGS: [&str; 5] = ["sessionUpdate", "type", "outcome", "mode", "action"];

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
