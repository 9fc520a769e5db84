//! Params, results and errors through their types and back.

use duologue_schema::{
    AgentNotification, AgentRequest, AgentResponse, CancelRequestNotification, ClientNotification,
    ClientRequest, ClientResponse, Error, SessionUpdate,
};
use duologue_transcript::Side;
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::de::StrRead;
use serde_path_to_error::{Path, Segment, Track};

use super::{Problem, agents, compare, row};

/// Reads params as what their method takes. Says whether they come back the same.
pub(super) fn params(method: &str, params: &Value, problems: &mut Vec<Problem>) -> bool {
    let path = "$.params";
    if agents::row(method).is_some() {
        return agents::params(method, params, problems);
    }
    let Some(row) = row(method) else { return true };
    match (row.side, row.result.is_some()) {
        (duologue_schema::MethodSide::Agent, true) => {
            through(params, path, problems, |json| ClientRequest::read(method, json))
        }
        (duologue_schema::MethodSide::Agent, false) => {
            through(params, path, problems, |json| ClientNotification::read(method, json))
        }
        (duologue_schema::MethodSide::Client, true) => {
            through(params, path, problems, |json| AgentRequest::read(method, json))
        }
        (duologue_schema::MethodSide::Client, false) => {
            unknown_update(params, problems);
            through(params, path, problems, |json| AgentNotification::read(method, json))
        }
        (duologue_schema::MethodSide::Protocol, _) => {
            through(params, path, problems, |json| Some(CancelRequestNotification::deserialize(json)))
        }
    }
}

/// Reads what answers a method this side has asked for.
pub(super) fn result(method: &str, asker: Side, result: &Value, problems: &mut Vec<Problem>) -> bool {
    if agents::row(method).is_some() {
        return agents::result(method, result, problems);
    }
    match asker {
        Side::Client => through(result, "$.result", problems, |json| AgentResponse::read(method, json)),
        Side::Agent => through(result, "$.result", problems, |json| ClientResponse::read(method, json)),
    }
}

/// Warns of an update of a kind nobody here knows, which is kept as it is.
fn unknown_update(params: &Value, problems: &mut Vec<Problem>) {
    let update = params.get("update").and_then(|update| serde_json::from_value(update.clone()).ok());
    if let Some(SessionUpdate::Unknown(unknown)) = update {
        let problem = format!("is {:?}, which is unknown and kept as it is", unknown.tag());
        problems.push(Problem::warning("$.params.update.sessionUpdate", problem));
    }
}

/// Reads an error that answers `method`.
pub(super) fn error(method: &str, error: &Value, problems: &mut Vec<Problem>) -> bool {
    let lossless = through(error, "$.error", problems, |json| Some(Error::deserialize(json)));
    if agents::row(method).is_some() { agents::error(error, problems) && lossless } else { lossless }
}

/// A reader of JSON that remembers where it is.
type Json<'a> = serde_path_to_error::Deserializer<'a, 'a, &'a mut serde_json::Deserializer<StrRead<'a>>>;

/// Reads a value and writes it again. `read` gives `None` where there is no type to read it as, and then it
/// stays as it is.
pub(super) fn through<T: Serialize>(
    value: &Value,
    path: &str,
    problems: &mut Vec<Problem>,
    read: impl for<'a> FnOnce(Json<'a>) -> Option<Result<T, serde_json::Error>>,
) -> bool {
    // An error knows its place only behind the tag of a union.
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
            problems.push(Problem::error(below(path, &track.path()), reason));
            false
        }
    }
}

/// A member's path.
pub(super) fn member(path: &str, key: &str) -> String {
    let plain = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    if plain { format!("{path}.{key}") } else { format!("{path}[{}]", Value::from(key)) }
}

/// The path of an error below another.
pub(super) fn below(path: &str, error: &Path) -> String {
    error.iter().fold(path.to_owned(), |path, segment| match segment {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } | Segment::Enum { variant: key } => member(&path, key),
        Segment::Unknown => path,
    })
}

/// A value whose objects begin with what tells them apart.
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
