//! Fields of an update: absent, `null` or a value.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A field of an update: absent, `null` or a value.
///
/// See [Null versus absent](https://agentclientprotocol.com/protocol/v1/overview).
///
/// ```
/// use duologue_schema::{Patch, SessionInfoUpdate};
///
/// let mut title = Some("old".to_owned());
/// Patch::<String>::Keep.apply(&mut title);
/// assert_eq!(title.as_deref(), Some("old"));
/// SessionInfoUpdate::new().title("new").title.apply(&mut title);
/// assert_eq!(title.as_deref(), Some("new"));
/// SessionInfoUpdate::new().clear_title().title.apply(&mut title);
/// assert_eq!(title, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Patch<T> {
    /// Absent: the receiver keeps its value.
    #[default]
    Keep,
    /// `null`: the receiver removes its value.
    Clear,
    /// A value: the receiver replaces its own.
    Set(T),
}

impl<T> Patch<T> {
    /// Returns the new value, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Patch::Set(value) => Some(value),
            Patch::Keep | Patch::Clear => None,
        }
    }

    /// Applies the change to `current`.
    pub fn apply(self, current: &mut Option<T>) {
        match self {
            Patch::Keep => {}
            Patch::Clear => *current = None,
            Patch::Set(value) => *current = Some(value),
        }
    }
}

impl<T> From<T> for Patch<T> {
    fn from(value: T) -> Self {
        Patch::Set(value)
    }
}

/// Writes `Keep` as `null`. The struct that contains the field has to leave `Keep` out.
impl<T: Serialize> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Patch::Clear, Patch::Set))
    }
}
