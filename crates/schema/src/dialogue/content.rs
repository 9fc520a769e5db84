//! The content of a dialogue message.

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize};

use super::{DialogueMessageId, ErrorContent};
use crate::wire::schema_of;
use crate::{Attachment, Json, Members};

/// The content of a message. `error` and `termination` messages leave most of it out.
#[wire(snake, definition = "Content")]
pub struct DialogueContent {
    /// The messages that are needed to understand this one.
    #[wire(default, always, null_default)]
    pub previous_context: Vec<DialogueMessageId>,
    /// The subject, such as `automotive.sales`.
    pub domain: Option<String>,
    /// The task, such as `negotiatePrice`.
    pub task: Option<String>,
    /// The parameters of the task. Domain and task determine them.
    #[wire(default, always, null_default)]
    pub parameters: Members,
    /// The content in natural language.
    pub natural_language: Option<String>,
    /// Changes to the beliefs of the sender.
    #[wire(default, null_default)]
    pub belief_updates: Vec<BeliefUpdate>,
    /// Images, sounds and documents that belong to the content. The signature covers them. A list of another
    /// form is kept under the same name in `extra`.
    #[wire(default, null_default, keep_invalid)]
    pub attachments: Vec<Attachment>,
}

impl DialogueContent {
    /// Sets one of the `parameters`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.parameters.insert(name, value);
        self
    }

    /// Adds an image, a sound or a document. Attachments of another form are replaced.
    #[must_use]
    pub fn attachment(mut self, attachment: Attachment) -> Self {
        // Otherwise the key would be written twice.
        self.extra.remove("attachments");
        self.attachments.push(attachment);
        self
    }

    /// Returns the belief updates of the known form.
    pub fn beliefs(&self) -> impl Iterator<Item = &Belief> {
        self.belief_updates.iter().filter_map(BeliefUpdate::belief)
    }

    /// Reads the content of an `error` message. Returns `None` if it is of another form.
    #[must_use]
    pub fn error(&self) -> Option<ErrorContent> {
        Json::new(&self.extra).ok()?.parse().ok()
    }
}

/// Creates content from natural language.
impl From<&str> for DialogueContent {
    fn from(words: &str) -> Self {
        DialogueContent::new().natural_language(words)
    }
}

/// Creates the content of an `error` message.
impl From<ErrorContent> for DialogueContent {
    fn from(error: ErrorContent) -> Self {
        let members: Option<Members> = Json::new(&error).ok().and_then(|json| json.parse().ok());
        // An `ErrorContent` always is an object, so nothing is lost here.
        DialogueContent::new().extra(members.unwrap_or_default())
    }
}

/// One of the `belief_updates`: a [`Belief`], or a value of another form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum BeliefUpdate {
    /// A belief.
    Belief(Belief),
    /// A value of another form. It is written back unchanged.
    Other(Json),
}

impl BeliefUpdate {
    /// Returns the belief, if its form is known.
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

impl<'de> Deserialize<'de> for BeliefUpdate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Ok(json.parse().map_or(Self::Other(json), Self::Belief))
    }
}

schema_of!(BeliefUpdate, "BeliefUpdate", |generator| {
    let belief = generator.subschema_for::<Belief>();
    crate::export::any_of(
        "A belief, or a value of another form.",
        [belief, crate::export::anything("A value of another form.")],
    )
});

/// The belief of the sender that an attribute of an entity has a value.
#[wire(snake)]
pub struct Belief {
    /// The entity, such as `vehicle:12345ABCDEFG67890`.
    pub entity: String,
    /// The attribute, such as `price`.
    pub attribute: String,
    /// The value of the attribute.
    pub value: Json,
    /// The confidence of the sender, from 0 to 1.
    pub confidence: f64,
}
