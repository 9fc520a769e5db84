//! What a dialogue message says.

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{DialogueMessageId, ErrorContent};
use crate::{Json, Members};

/// What a message says. Errors and goodbyes leave most of it out.
#[wire(snake, definition = "Content")]
pub struct DialogueContent {
    /// The messages one has to know to understand this one.
    #[wire(default, always, null_default)]
    pub previous_context: Vec<DialogueMessageId>,
    /// What it is about, such as `automotive.sales`.
    pub domain: Option<String>,
    /// What is to be done, such as `negotiatePrice`.
    pub task: Option<String>,
    /// What the task needs to know. What belongs here depends on domain and task.
    #[wire(default, always, null_default)]
    pub parameters: Members,
    /// The same in words.
    pub natural_language: Option<String>,
    /// What the sender holds for true, or no longer does.
    #[wire(default, null_default)]
    pub belief_updates: Vec<BeliefUpdate>,
}

impl DialogueContent {
    /// Sets one of the `parameters`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.parameters.insert(name, value);
        self
    }

    /// The beliefs of a form this crate knows.
    pub fn beliefs(&self) -> impl Iterator<Item = &Belief> {
        self.belief_updates.iter().filter_map(BeliefUpdate::belief)
    }

    /// What went wrong, in the content of an `error` message; `None` if it does not say so.
    #[must_use]
    pub fn error(&self) -> Option<ErrorContent> {
        Json::new(&self.extra).ok()?.parse().ok()
    }
}

/// A content of words.
impl From<&str> for DialogueContent {
    fn from(words: &str) -> Self {
        DialogueContent::new().natural_language(words)
    }
}

/// A content that says nothing but what went wrong.
impl From<ErrorContent> for DialogueContent {
    fn from(error: ErrorContent) -> Self {
        let members: Option<Members> = Json::new(&error).ok().and_then(|json| json.parse().ok());
        // An `ErrorContent` always is an object, so nothing is lost here.
        DialogueContent::new().extra(members.unwrap_or_default())
    }
}

/// One of the `belief_updates`: a [`Belief`], or whatever else the sender calls one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BeliefUpdate {
    /// A belief.
    Belief(Belief),
    /// Something of another form, written back as it came.
    Other(Json),
}

impl BeliefUpdate {
    /// The belief, if its form is known.
    #[must_use]
    pub fn belief(&self) -> Option<&Belief> {
        match self {
            Self::Belief(belief) => Some(belief),
            Self::Other(_) => None,
        }
    }
}

impl From<Belief> for BeliefUpdate {
    fn from(belief: Belief) -> Self {
        Self::Belief(belief)
    }
}

impl Serialize for BeliefUpdate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Belief(belief) => belief.serialize(serializer),
            Self::Other(json) => json.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BeliefUpdate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Ok(json.parse().map_or(Self::Other(json), Self::Belief))
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for BeliefUpdate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BeliefUpdate".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let belief = generator.subschema_for::<Belief>();
        crate::export::any_of(
            "A belief, or whatever else the sender calls one.",
            [belief, crate::export::anything("Something of another form.")],
        )
    }
}

/// That an attribute of something has a value, as far as the sender knows.
#[wire(snake)]
pub struct Belief {
    /// What it is about, such as `vehicle:12345ABCDEFG67890`.
    pub entity: String,
    /// Which of its attributes, such as `price`.
    pub attribute: String,
    /// The attribute's value.
    pub value: Json,
    /// How sure the sender is, from 0 to 1.
    pub confidence: f64,
}
