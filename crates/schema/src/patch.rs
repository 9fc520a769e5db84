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

    /// Returns true if the change sets a value for which `test` is true, and `None` if it is no change.
    pub fn changes_to(&self, test: impl FnOnce(&T) -> bool) -> Option<bool> {
        match self {
            Patch::Keep => None,
            Patch::Clear => Some(false),
            Patch::Set(value) => Some(test(value)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_clears_and_a_value_sets() {
        let read = |text| serde_json::from_str::<Patch<u8>>(text).unwrap();
        assert_eq!((read("null"), read("7")), (Patch::Clear, Patch::Set(7)));
        let write = |patch: Patch<u8>| serde_json::to_string(&patch).unwrap();
        assert_eq!([Patch::Keep, Patch::Clear, 7.into()].map(write), ["null", "null", "7"]);
        let is_seven = |patch: Patch<u8>| patch.changes_to(|value| *value == 7);
        let expected = [None, Some(false), Some(true), Some(false)];
        assert_eq!([Patch::Keep, Patch::Clear, 7.into(), 8.into()].map(is_seven), expected);
    }
}
