//! Messages between agents: envelopes, messages of a dialogue, work orders.

use duologue_schema::dialogue::{self, DialogueMessage, DialogueRequest, DialogueResponse};
use duologue_schema::envelope::{
    self, EnvelopeKind, EnvelopeParams, EnvelopeResult, Payload, PayloadVisitor, VERSION,
};
use duologue_schema::work::{self, WorkParams, WorkResult};
use duologue_schema::{MethodRow, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::path::member;
use super::problems::Problems;
use super::typed::round_trip;

/// Returns the row of a method between agents.
pub(super) fn row(method: &str) -> Option<&'static MethodRow> {
    [envelope::METHODS, dialogue::METHODS, work::METHODS]
        .into_iter()
        .flatten()
        .find(|row| row.method == method)
}

/// Validates the params of a method between agents. Returns true if encoding restores them.
pub(super) fn params(method: &str, params: &Value, problems: &mut Problems) -> bool {
    let path = "$.params";
    match method {
        DialogueRequest::METHOD => {
            typed::<DialogueRequest>(params, path, problems) && message(params, "message", path, problems)
        }
        WorkParams::METHOD => typed::<WorkParams>(params, path, problems),
        _ => {
            let kind = kind_of(method);
            let lossless = carried::<EnvelopeParams>(params, &kind, path, problems);
            required_members(params, &kind, path, problems);
            lossless
        }
    }
}

/// Validates the result of a method between agents. Returns true if encoding restores it.
pub(super) fn result(method: &str, result: &Value, problems: &mut Problems) -> bool {
    let path = "$.result";
    match method {
        DialogueRequest::METHOD => {
            let lossless = typed::<DialogueResponse>(result, path, problems);
            let says = |key| result.get(key).is_some_and(|value| !value.is_null());
            if says("receipt") == says("error") {
                problems.error(path, "holds either a receipt or an error");
            }
            message(result, "error", path, problems) && lossless
        }
        WorkParams::METHOD => typed::<WorkResult>(result, path, problems),
        _ => {
            let kind = kind_of(method);
            let answer = kind.response().unwrap_or(kind);
            carried::<EnvelopeResult>(result, &answer, path, problems)
        }
    }
}

/// Validates the envelope in the data of an error, if there is one.
pub(super) fn error(error: &Value, problems: &mut Problems) -> bool {
    match error.get("data") {
        Some(data) if data.get("envelope").is_some() => {
            carried::<EnvelopeResult>(data, &EnvelopeKind::Error, "$.error.data", problems)
        }
        _ => true,
    }
}

/// Returns the kind of envelope that a method carries.
fn kind_of(method: &str) -> EnvelopeKind {
    EnvelopeKind::from(method.trim_start_matches("_session/"))
}

/// Validates params or a result that carry an envelope, and the envelope, which has to be of the kind `expected`.
fn carried<C: Serialize + DeserializeOwned>(
    carrier: &Value,
    expected: &EnvelopeKind,
    path: &str,
    problems: &mut Problems,
) -> bool {
    let mut shell = carrier.clone();
    let mut sent = Value::Null;
    if let Some(envelope) = shell.get_mut("envelope").and_then(Value::as_object_mut) {
        // Leaving these out means the same.
        envelope.entry("v").or_insert(VERSION.into());
        envelope.entry("ref").or_insert(Value::Null);
        sent = envelope.insert("payload".into(), Value::Null).unwrap_or_default();
    }
    let lossless = typed::<C>(&shell, path, problems);
    let Some(envelope) = shell.get("envelope").filter(|envelope| envelope.is_object()) else { return false };
    let path = member(path, "envelope");
    let before = problems.len();
    if envelope.get("v").and_then(Value::as_u64).is_some_and(|v| v != u64::from(VERSION)) {
        problems.error(member(&path, "v"), format!("must be {VERSION}, the version that is spoken"));
    }
    let kind = envelope.get("kind").and_then(Value::as_str);
    if kind.is_some_and(|kind| *expected != *kind) {
        problems.error(member(&path, "kind"), format!("must be {:?} here", expected.as_str()));
    }
    // The payload of another kind has an unknown type.
    if problems.len() > before {
        return lossless;
    }
    let nothing = json!({});
    let payload = if sent.is_null() { &nothing } else { &sent };
    payload_of(expected, payload, &member(&path, "payload"), problems) && lossless
}

/// Reports members that the params must have and a result may leave out.
fn required_members(params: &Value, kind: &EnvelopeKind, path: &str, problems: &mut Problems) {
    let lacks = |value: &Value, key| value.is_object() && value.get(key).is_none_or(Value::is_null);
    if kind.needs_session() && lacks(params, "sessionId") {
        problems.error(path, "missing field `sessionId`");
    }
    if kind.needs_ref() && params.get("envelope").is_some_and(|envelope| lacks(envelope, "ref")) {
        problems.error(member(path, "envelope"), "missing field `ref`");
    }
}

fn payload_of(kind: &EnvelopeKind, payload: &Value, path: &str, problems: &mut Problems) -> bool {
    kind.visit(PayloadCheck { payload, path, problems }).unwrap_or(true)
}

/// Reads a payload as the type of its kind.
struct PayloadCheck<'a> {
    payload: &'a Value,
    path: &'a str,
    problems: &'a mut Problems,
}

impl PayloadVisitor for PayloadCheck<'_> {
    type Output = bool;

    fn visit<P: Payload>(self) -> bool {
        typed::<P>(self.payload, self.path, self.problems)
    }
}

/// Validates the message of a dialogue in the member `key` of `carrier`.
fn message(carrier: &Value, key: &str, path: &str, problems: &mut Problems) -> bool {
    let Some(sent) = carrier.get(key).filter(|message| !message.is_null()) else { return true };
    let path = member(path, key);
    let lossless = typed::<DialogueMessage>(sent, &path, problems);
    if let Ok(message) = serde_json::from_value::<DialogueMessage>(sent.clone())
        && let Err(fault) = message.check()
    {
        problems.error(member(&path, fault.field), fault.reason);
    }
    lossless
}

/// Decodes and encodes a value. These types write members that agents may leave out, which loses nothing and is
/// no problem.
fn typed<T: Serialize + DeserializeOwned>(value: &Value, path: &str, problems: &mut Problems) -> bool {
    let mut found = Problems::without_additions();
    round_trip(value, path, &mut found, |json| Some(T::deserialize(json)));
    let lossless = found.is_empty();
    problems.extend(found);
    lossless
}
