//! The ids of sessions, messages, tool calls and other objects.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;

/// The id that a thread created last, for one type of ids.
type Last = LocalKey<Cell<Option<Arc<str>>>>;

/// The greatest length of a cached id in bytes. A longer id would occupy memory until the thread ends.
const CACHED_BYTES: usize = 128;

/// Returns the text of an id. Equal ids in a row share one allocation, as in the chunks of a message.
pub(crate) fn shared(last: &'static Last, text: &str) -> Arc<str> {
    let before = last.try_with(Cell::take).unwrap_or_default();
    let id = before.filter(|before| **before == *text).unwrap_or_else(|| text.into());
    if text.len() <= CACHED_BYTES {
        // The access fails while the thread ends. Then nothing is cached.
        let _ = last.try_with(|last| last.set(Some(id.clone())));
    }
    id
}

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {$(
        $(#[doc = $doc])+
        ///
        /// Opaque text. A clone shares the text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Creates an id from its text.
            #[must_use]
            pub fn new(text: impl Into<std::sync::Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
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

        crate::wire::schema_of!($name, stringify!($name), |_| crate::export::id(concat!($($doc),+)));
    )*};
}

pub(crate) use ids;

ids! {
    /// The id of a session. The agent creates it.
    SessionId,
    /// The id of a message, shared by its chunks. The agent creates it.
    MessageId,
    /// The id of a tool call within a session. The agent creates it.
    ToolCallId,
    /// The id of a terminal that the client runs for the agent.
    TerminalId,
    /// The id of an option of a permission request.
    PermissionOptionId,
    /// The id of a way to authenticate.
    AuthMethodId,
    /// The id of a session mode.
    SessionModeId,
    /// The id of a session config option.
    SessionConfigId,
    /// The id of a value of a config option.
    SessionConfigValueId,
    /// The id of a group of values of a config option.
    SessionConfigGroupId,
    /// The id of an elicitation that continues at a URL.
    ElicitationId,
    /// The id of a compaction of the context of a session.
    CompactionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_in_a_row_share_their_text() {
        let (first, second) = (MessageId::from("a"), MessageId::from("a"));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        // Ids of another type have a cache of their own.
        let session = SessionId::from("a");
        assert!(!Arc::ptr_eq(&first.0, &session.0));
        let other = MessageId::from("b");
        assert_eq!((first.as_str(), other.as_str()), ("a", "b"));
        let long = "x".repeat(CACHED_BYTES + 1);
        let (first, second) = (MessageId::from(long.as_str()), MessageId::from(long.as_str()));
        assert!(first == second && !Arc::ptr_eq(&first.0, &second.0));
    }
}
