//! Prompts.

use duologue_schema::{AgentCapabilities, ContentBlock, EmbeddedResource, Meta, ResourceLink};

use crate::error::{Error, Result};

/// Builds a prompt: blocks of content in their order.
///
/// A string converts to a prompt. Links are always allowed. Images, audio and embedded resources need an
/// agent that advertises them.
///
/// ```
/// use duologue_client::PromptBuilder;
///
/// let prompt = PromptBuilder::new("What is wrong here?")
///     .link("main.rs", "file:///home/me/main.rs")
///     .image("aGVsbG8=", "image/png");
/// # let _ = prompt;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptBuilder {
    blocks: Vec<ContentBlock>,
    meta: Option<Meta>,
}

impl PromptBuilder {
    /// Creates a prompt of text.
    pub fn new(text: impl Into<String>) -> Self {
        PromptBuilder::default().text(text)
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(ContentBlock::from(text.into()))
    }

    /// Adds an image: its bytes in base64 and its MIME type.
    #[must_use]
    pub fn image(self, data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        self.block(ContentBlock::image(data, mime_type))
    }

    /// Adds audio: its bytes in base64 and its MIME type.
    #[must_use]
    pub fn audio(self, data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        self.block(ContentBlock::audio(data, mime_type))
    }

    /// Adds a link to a resource that the agent can read itself.
    #[must_use]
    pub fn link(self, name: impl Into<String>, uri: impl Into<String>) -> Self {
        self.block(ContentBlock::from(ResourceLink::new(name.into(), uri.into())))
    }

    /// Adds the content of a file or another resource.
    #[must_use]
    pub fn resource(self, resource: EmbeddedResource) -> Self {
        self.block(ContentBlock::from(resource))
    }

    /// Adds any block.
    #[must_use]
    pub fn block(mut self, block: ContentBlock) -> Self {
        self.blocks.push(block);
        self
    }

    /// Sets the `_meta` of the request, or its trace context.
    #[must_use]
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Returns the content of the request, if the agent accepts all blocks.
    pub(crate) fn for_agent(self, agent: &AgentCapabilities) -> Result<(Vec<ContentBlock>, Option<Meta>)> {
        let offered = &agent.prompt_capabilities;
        for block in &self.blocks {
            let (is_accepted, capability) = match block {
                ContentBlock::Image(_) => (offered.image, "promptCapabilities.image"),
                ContentBlock::Audio(_) => (offered.audio, "promptCapabilities.audio"),
                ContentBlock::Resource(_) => (offered.embedded_context, "promptCapabilities.embeddedContext"),
                #[cfg(feature = "protocol-v2")]
                ContentBlock::Skill(_) => (false, "session.prompt.skill"),
                _ => (true, ""),
            };
            if !is_accepted {
                return Err(Error::NotSupported { capability });
            }
        }
        Ok((self.blocks, self.meta))
    }
}

impl From<&str> for PromptBuilder {
    fn from(text: &str) -> Self {
        PromptBuilder::new(text)
    }
}

impl From<String> for PromptBuilder {
    fn from(text: String) -> Self {
        PromptBuilder::new(text)
    }
}

impl From<Vec<ContentBlock>> for PromptBuilder {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        PromptBuilder { blocks, meta: None }
    }
}
