//! What two Duologue peers tell each other in `initialize`.

use serde_json::{Map, Value};

use crate::Meta;

/// What a side can do beyond ACP: the key `duologue` in the `_meta` of its capabilities.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DuologueCapabilities {
    /// Of a client: it understands `agent_message_clear` and `agent_thought_clear`.
    pub message_clear: bool,
}

impl DuologueCapabilities {
    /// The key in `_meta` that everything else is under.
    pub const KEY: &str = "duologue";
    /// The key of [`message_clear`](Self::message_clear).
    pub const MESSAGE_CLEAR: &str = "messageClear";

    /// No capability.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the side understands messages being cleared.
    #[must_use]
    pub fn message_clear(mut self, message_clear: bool) -> Self {
        self.message_clear = message_clear;
        self
    }

    /// What `meta` says; what it does not say, or says in no known form, is not there.
    #[must_use]
    pub fn of(meta: Option<&Meta>) -> Self {
        let said = said(meta);
        let has = |key| said.get(key) == Some(&Value::Bool(true));
        Self { message_clear: has(Self::MESSAGE_CLEAR) }
    }

    /// Writes the capabilities into `meta` and leaves alone what else is there.
    pub fn write_to(&self, meta: &mut Option<Meta>) {
        let mut said = said(meta.as_ref());
        if self.message_clear {
            said.insert(Self::MESSAGE_CLEAR.to_owned(), true.into());
        } else if said.remove(Self::MESSAGE_CLEAR).is_none() {
            // Nothing was said and nothing is to be: no empty object either.
            return;
        }
        meta.get_or_insert_default().insert(Self::KEY, Value::Object(said));
    }
}

fn said(meta: Option<&Meta>) -> Map<String, Value> {
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
