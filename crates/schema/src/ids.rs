//! The ids peers give things.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;

/// The id a thread made last, of one kind.
type Last = LocalKey<Cell<Option<Arc<str>>>>;

/// A longer id, in bytes, is not remembered: it would stay as long as the thread.
const REMEMBERED: usize = 128;

/// The text of an id, shared with the one before if they are equal: the chunks of a message follow each other.
pub(crate) fn shared(last: &'static Last, text: &str) -> Arc<str> {
    let before = last.try_with(Cell::take).unwrap_or_default();
    let id = before.filter(|before| **before == *text).unwrap_or_else(|| text.into());
    if text.len() <= REMEMBERED {
        // A thread that ends remembers nothing any more.
        let _ = last.try_with(|last| last.set(Some(id.clone())));
    }
    id
}

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {$(
        $(#[doc = $doc])+
        ///
        /// Opaque text, compared as text; cloning it copies no text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// An id with this text.
            #[must_use]
            pub fn new(text: impl Into<std::sync::Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                std::thread_local! {
                    static LAST: std::cell::Cell<Option<std::sync::Arc<str>>> =
                        const { std::cell::Cell::new(None) };
                }
                Self(crate::ids::shared(&LAST, text))
            }
        }

        impl From<&$name> for $name {
            fn from(id: &$name) -> Self {
                id.clone()
            }
        }

        impl From<std::sync::Arc<str>> for $name {
            fn from(text: std::sync::Arc<str>) -> Self {
                Self(text)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        crate::wire::string_type!($name);

        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                crate::export::id(concat!($($doc),+))
            }
        }
    )*};
}

pub(crate) use ids;

ids! {
    /// Names a session; the agent picks it.
    SessionId,
    /// Names one message, so that its chunks belong together; the agent picks it.
    MessageId,
    /// Names a tool call within a session; the agent picks it.
    ToolCallId,
    /// Names a terminal the client runs for the agent.
    TerminalId,
    /// Names one of the answers a permission request offers.
    PermissionOptionId,
    /// Names a way to authenticate.
    AuthMethodId,
    /// Names a session mode.
    SessionModeId,
    /// Names a session config option.
    SessionConfigId,
    /// Names one of the values a config option can take.
    SessionConfigValueId,
    /// Names a group of such values.
    SessionConfigGroupId,
    /// Names an elicitation that goes on outside the protocol, at a URL.
    ElicitationId,
    /// Names one compaction of a session's context.
    CompactionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_in_a_row_share_their_text() {
        let (first, second) = (MessageId::from("a"), MessageId::from("a"));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        // Another kind of id has nothing to do with it.
        let session = SessionId::from("a");
        assert!(!Arc::ptr_eq(&first.0, &session.0));
        let other = MessageId::from("b");
        assert_eq!((first.as_str(), other.as_str()), ("a", "b"));
        let long = "x".repeat(REMEMBERED + 1);
        let (first, second) = (MessageId::from(long.as_str()), MessageId::from(long.as_str()));
        assert!(first == second && !Arc::ptr_eq(&first.0, &second.0));
    }
}
