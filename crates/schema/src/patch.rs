//! Fields of an update with three states.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A field of an update: left out, `null`, or a value.
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
    /// Left out: the receiver keeps what it has.
    #[default]
    Keep,
    /// `null`: the receiver forgets what it has.
    Clear,
    /// The receiver takes this value.
    Set(T),
}

impl<T> Patch<T> {
    /// The new value, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Patch::Set(value) => Some(value),
            Patch::Keep | Patch::Clear => None,
        }
    }

    /// Does to `current` what the field asks for.
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

/// A field that is `Keep` must be left out by the struct it is in; by itself it writes `null`.
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
