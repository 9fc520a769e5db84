//! The capabilities that two Duologue peers exchange in `initialize`.

use serde_json::{Map, Value, json};

use crate::Meta;
use crate::envelope::{self, AgentId};

/// The capabilities of a side beyond ACP: the key `duologue` in the `_meta` of its capabilities.
///
/// ```
/// use duologue_schema::{ClientCapabilities, DuologueCapabilities};
///
/// let mut capabilities = ClientCapabilities::new();
/// DuologueCapabilities::new().message_clear(true).write_to(&mut capabilities.meta);
/// assert_eq!(
///     serde_json::to_string(&capabilities.meta)?,
///     r#"{"duologue":{"messageClear":true}}"#,
/// );
/// assert!(DuologueCapabilities::of(capabilities.meta.as_ref()).message_clear);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DuologueCapabilities {
    /// True for a client that handles `agent_message_clear` and `agent_thought_clear`.
    pub message_clear: bool,
    /// The id of the side in envelopes.
    pub agent_id: Option<AgentId>,
    /// The supported versions of [envelopes](crate::envelope). Send no envelopes if it is empty.
    pub envelope: Vec<u32>,
    /// True for a side that handles [dialogue messages](crate::dialogue).
    pub dialogue: bool,
    /// True for a side that handles [work orders](crate::work).
    pub work: bool,
}

impl DuologueCapabilities {
    /// The key in `_meta` that contains the other keys.
    pub const KEY: &str = "duologue";
    /// The key of [`message_clear`](Self::message_clear).
    pub const MESSAGE_CLEAR: &str = "messageClear";
    /// The key of [`agent_id`](Self::agent_id).
    pub const AGENT_ID: &str = "agentId";
    /// The key of [`envelope`](Self::envelope), an object whose `v` lists the versions.
    pub const ENVELOPE: &str = "envelope";
    /// The key of [`dialogue`](Self::dialogue), an object.
    pub const DIALOGUE: &str = "dialogue";
    /// The key of [`work`](Self::work), an object.
    pub const WORK: &str = "work";

    /// Creates an empty set of capabilities.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`message_clear`](Self::message_clear).
    #[must_use]
    pub fn message_clear(mut self, message_clear: bool) -> Self {
        self.message_clear = message_clear;
        self
    }

    /// Sets [`agent_id`](Self::agent_id).
    #[must_use]
    pub fn agent_id(mut self, agent_id: impl Into<AgentId>) -> Self {
        self.agent_id = Some(agent_id.into());
        self
    }

    /// Sets [`envelope`](Self::envelope).
    #[must_use]
    pub fn envelope(mut self, versions: impl Into<Vec<u32>>) -> Self {
        self.envelope = versions.into();
        self
    }

    /// Sets [`dialogue`](Self::dialogue).
    #[must_use]
    pub fn dialogue(mut self, dialogue: bool) -> Self {
        self.dialogue = dialogue;
        self
    }

    /// Sets [`work`](Self::work).
    #[must_use]
    pub fn work(mut self, work: bool) -> Self {
        self.work = work;
        self
    }

    /// Returns true if the side supports our version of envelopes.
    #[must_use]
    pub fn speaks_envelopes(&self) -> bool {
        self.envelope.contains(&envelope::VERSION)
    }

    /// Reads the capabilities in `meta`. Absent and malformed capabilities count as not supported.
    #[must_use]
    pub fn of(meta: Option<&Meta>) -> Self {
        let members = members(meta);
        let object = |key| members.get(key).and_then(Value::as_object);
        let versions = object(Self::ENVELOPE).and_then(|envelope| envelope.get("v")?.as_array());
        let version = |v: &Value| v.as_u64().and_then(|v| u32::try_from(v).ok());
        Self {
            message_clear: members.get(Self::MESSAGE_CLEAR) == Some(&Value::Bool(true)),
            agent_id: members.get(Self::AGENT_ID).and_then(Value::as_str).map(AgentId::from),
            envelope: versions.into_iter().flatten().filter_map(version).collect(),
            dialogue: object(Self::DIALOGUE).is_some(),
            work: object(Self::WORK).is_some(),
        }
    }

    /// Writes the capabilities into `meta` and keeps its other members.
    pub fn write_to(&self, meta: &mut Option<Meta>) {
        let mut members = members(meta.as_ref());
        let versions = (!self.envelope.is_empty()).then(|| json!({ "v": self.envelope }));
        let all = [
            (Self::MESSAGE_CLEAR, self.message_clear.then(|| true.into())),
            (Self::AGENT_ID, self.agent_id.as_ref().map(|id| id.as_str().into())),
            (Self::ENVELOPE, versions),
            (Self::DIALOGUE, self.dialogue.then(|| json!({}))),
            (Self::WORK, self.work.then(|| json!({}))),
        ];
        let mut changed = false;
        for (key, value) in all {
            changed |= match value {
                Some(value) => {
                    members.insert(key.to_owned(), value);
                    true
                }
                None => members.remove(key).is_some(),
            };
        }
        // Without a change no empty object is added.
        if changed {
            meta.get_or_insert_default().insert(Self::KEY, Value::Object(members));
        }
    }
}

fn members(meta: Option<&Meta>) -> Map<String, Value> {
    meta.and_then(|meta| meta.get(DuologueCapabilities::KEY)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(json: &str) -> Option<Meta> {
        Some(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn only_true_is_true() {
        let of = |json| DuologueCapabilities::of(meta(json).as_ref()).message_clear;
        assert!(of(r#"{"duologue":{"later":[],"messageClear":true}}"#));
        for json in [
            "{}",
            r#"{"messageClear":true}"#,
            r#"{"duologue":null}"#,
            r#"{"duologue":[true]}"#,
            r#"{"duologue":{"messageClear":false}}"#,
            r#"{"duologue":{"messageClear":"true"}}"#,
        ] {
            assert!(!of(json), "{json}");
        }
        assert!(!DuologueCapabilities::of(None).message_clear);
    }

    /// An extension is an object, so that it can have members later.
    #[test]
    fn an_extension_is_an_object() {
        for (json, expected) in [("{}", true), (r#"{"later":1}"#, true), ("true", false), ("null", false)] {
            let meta = meta(&format!(r#"{{"duologue":{{"dialogue":{json},"work":{json}}}}}"#));
            let capabilities = DuologueCapabilities::of(meta.as_ref());
            assert_eq!((capabilities.dialogue, capabilities.work), (expected, expected), "{json}");
        }
        let one = DuologueCapabilities::of(meta(r#"{"duologue":{"work":{}}}"#).as_ref());
        assert_eq!((one.dialogue, one.work), (false, true));
    }

    #[test]
    fn only_our_version_of_envelopes_is_supported() {
        for (versions, expected) in [
            ("[]", false),
            ("[1]", true),
            ("[2]", false),
            ("[2,1]", true),
            (r#"["1",-1,1.5]"#, false),
            ("1", false),
        ] {
            let meta = meta(&format!(r#"{{"duologue":{{"envelope":{{"v":{versions}}}}}}}"#));
            let speaks = DuologueCapabilities::of(meta.as_ref()).speaks_envelopes();
            assert_eq!(speaks, expected, "{versions}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let all =
            DuologueCapabilities::new().message_clear(true).agent_id("a").envelope([1, 2]).dialogue(true);
        for capabilities in [DuologueCapabilities::new().work(true), all] {
            let mut meta = None;
            capabilities.write_to(&mut meta);
            assert_eq!(DuologueCapabilities::of(meta.as_ref()), capabilities);
        }
    }

    #[test]
    fn writing_keeps_the_rest() {
        fn check(before: Option<Meta>, message_clear: bool, after: &str) {
            let mut meta = before;
            DuologueCapabilities::new().message_clear(message_clear).write_to(&mut meta);
            assert_eq!(serde_json::to_string(&meta).unwrap(), after);
        }
        check(None, false, "null");
        check(None, true, r#"{"duologue":{"messageClear":true}}"#);
        check(meta(r#"{"a":1}"#), false, r#"{"a":1}"#);
        check(
            meta(r#"{"duologue":{"later":[1]},"a":1.50}"#),
            true,
            r#"{"a":1.50,"duologue":{"later":[1],"messageClear":true}}"#,
        );
        check(meta(r#"{"duologue":{"messageClear":true}}"#), false, r#"{"duologue":{}}"#);
        check(meta(r#"{"duologue":7}"#), true, r#"{"duologue":{"messageClear":true}}"#);
    }
}
