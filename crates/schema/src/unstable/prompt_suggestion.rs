//! Prompts that the agent expects the user to send next.

use duologue_schema_derive::wire;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::ContentBlock;
use crate::wire::schema_of;

/// The capability to offer prompt suggestions of text and resource links.
#[wire]
pub struct PromptSuggestionsCapabilities {
    /// Present if a suggestion may have images.
    #[wire(lenient)]
    pub image: Option<PromptSuggestionsImageCapabilities>,
    /// Present if a suggestion may have audio.
    #[wire(lenient)]
    pub audio: Option<PromptSuggestionsAudioCapabilities>,
    /// Present if a suggestion may have resources with their contents.
    #[wire(lenient)]
    pub embedded_context: Option<PromptSuggestionsEmbeddedContextCapabilities>,
}

/// The capability to offer suggestions with images.
#[wire]
pub struct PromptSuggestionsImageCapabilities {}

/// The capability to offer suggestions with audio.
#[wire]
pub struct PromptSuggestionsAudioCapabilities {}

/// The capability to offer suggestions with resources and their contents.
#[wire]
pub struct PromptSuggestionsEmbeddedContextCapabilities {}

/// All prompt suggestions of a session. They replace the previous ones, and an empty list withdraws them. They are
/// never replayed. Only for clients with `session.promptSuggestions`.
#[wire]
pub struct PromptSuggestionsUpdate {
    /// The suggestions, the most likely first. One with a malformed prompt is skipped.
    #[wire(skip_items)]
    pub suggestions: Vec<PromptSuggestion>,
}

/// A prompt that the agent expects.
#[wire]
pub struct PromptSuggestion {
    /// The prompt.
    pub prompt: SuggestedPrompt,
}

/// The blocks of a suggested prompt, at least one.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct SuggestedPrompt(Vec<ContentBlock>);

impl SuggestedPrompt {
    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[ContentBlock] {
        &self.0
    }
}

impl<T: Into<ContentBlock>> From<T> for SuggestedPrompt {
    fn from(block: T) -> Self {
        Self(vec![block.into()])
    }
}

impl From<SuggestedPrompt> for Vec<ContentBlock> {
    fn from(prompt: SuggestedPrompt) -> Self {
        prompt.0
    }
}

/// Fails for a prompt without blocks.
impl TryFrom<Vec<ContentBlock>> for SuggestedPrompt {
    type Error = crate::Error;

    fn try_from(blocks: Vec<ContentBlock>) -> Result<Self, crate::Error> {
        if blocks.is_empty() {
            return Err(crate::Error::invalid_params(NO_BLOCKS));
        }
        Ok(Self(blocks))
    }
}

impl<'de> Deserialize<'de> for SuggestedPrompt {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::try_from(Vec::deserialize(d)?).map_err(|_| D::Error::custom(NO_BLOCKS))
    }
}

const NO_BLOCKS: &str = "a suggested prompt has no blocks; leave the suggestion out";

schema_of!(inline SuggestedPrompt, "SuggestedPrompt", |generator| {
    let mut schema = generator.subschema_for::<Vec<ContentBlock>>();
    schema.insert("minItems".to_owned(), 1.into());
    schema
});
