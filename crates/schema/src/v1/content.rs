//! Content blocks, the parts of prompts, messages and tool calls.
//!
//! See [Content](https://agentclientprotocol.com/protocol/v1/content).

use std::fmt;

use duologue_schema_derive::wire;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{Lenient, schema_of};

/// One piece of content.
///
/// ```
/// use duologue_schema::ContentBlock;
///
/// let block = ContentBlock::from("hello");
/// assert_eq!(serde_json::to_string(&block)?, r#"{"type":"text","text":"hello"}"#);
/// assert_eq!(block.as_text(), Some("hello"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[wire(tag = "type")]
pub enum ContentBlock {
    /// Markdown text.
    Text(TextContent),
    /// An image. In a prompt, only for agents with `promptCapabilities.image`.
    Image(Box<ImageContent>),
    /// Audio. In a prompt, only for agents with `promptCapabilities.audio`.
    Audio(Box<AudioContent>),
    /// A link to a resource that the agent can fetch.
    ResourceLink(Box<ResourceLink>),
    /// A resource with its contents. In a prompt, only for agents with
    /// `promptCapabilities.embeddedContext`.
    Resource(Box<EmbeddedResource>),
    /// A skill that the user calls with the prompt. Only for agents of version 2 with `session.prompt.skill`.
    #[cfg(all(feature = "protocol-v2", feature = "unstable"))]
    Skill(crate::v2::SkillReference),
}

impl ContentBlock {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        TextContent::new(text).into()
    }

    /// Creates an image from base64 data and its MIME type.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        ImageContent::new(data, mime_type).into()
    }

    /// Creates audio from base64 data and its MIME type.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        AudioContent::new(data, mime_type).into()
    }

    /// Creates a link to a resource.
    pub fn resource_link(name: impl Into<String>, uri: impl Into<String>) -> Self {
        ResourceLink::new(name, uri).into()
    }

    /// Returns the text of a text block, and `None` for other blocks.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            ContentBlock::Text(text) => Some(&text.text),
            _ => None,
        }
    }
}

impl From<&str> for ContentBlock {
    fn from(text: &str) -> Self {
        ContentBlock::text(text)
    }
}

impl From<String> for ContentBlock {
    fn from(text: String) -> Self {
        ContentBlock::text(text)
    }
}

impl From<ContentBlock> for Vec<ContentBlock> {
    fn from(block: ContentBlock) -> Self {
        vec![block]
    }
}

/// Shows the text of a text block and nothing for any other.
impl fmt::Display for ContentBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text().unwrap_or_default())
    }
}

/// Hints about the audience and the priority of content.
#[wire]
pub struct Annotations {
    /// The roles that the content is for. Absent means everybody.
    #[wire(skip_invalid)]
    pub audience: Option<Vec<Role>>,
    /// The time of the last change, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub last_modified: Option<String>,
    /// The priority from 0 to 1.
    #[wire(lenient)]
    pub priority: Option<f64>,
}

/// A side of the conversation.
#[wire]
pub enum Role {
    /// The model.
    Assistant,
    /// The user.
    User,
}

/// Text in Markdown.
#[wire]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// An image.
#[wire]
pub struct ImageContent {
    /// The image in base64.
    pub data: String,
    /// The MIME type.
    pub mime_type: String,
    /// The URI of the source.
    #[wire(lenient)]
    pub uri: Option<String>,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// Audio.
#[wire]
pub struct AudioContent {
    /// The audio in base64.
    pub data: String,
    /// The MIME type.
    pub mime_type: String,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// A link to a resource.
#[wire]
pub struct ResourceLink {
    /// The name of the resource.
    pub name: String,
    /// The URI of the resource.
    pub uri: String,
    /// A title to show instead of `name`.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the resource.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The MIME type.
    #[wire(lenient)]
    pub mime_type: Option<String>,
    /// The size in bytes.
    #[wire(lenient)]
    pub size: Option<i64>,
    /// Icons of the resource. Only version 2 has them, but they are written in version 1 too.
    #[cfg(feature = "protocol-v2")]
    #[wire(skip_invalid)]
    pub icons: Option<Vec<crate::v2::Icon>>,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// A resource with its contents.
#[wire]
pub struct EmbeddedResource {
    /// The contents.
    pub resource: EmbeddedResourceResource,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// The contents of a resource: text or bytes. The key `text` tells which.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum EmbeddedResourceResource {
    /// Text.
    TextResourceContents(TextResourceContents),
    /// Bytes.
    BlobResourceContents(BlobResourceContents),
}

/// A resource that is text.
#[wire]
pub struct TextResourceContents {
    /// The text.
    pub text: String,
    /// The URI of the source.
    pub uri: String,
    /// The MIME type.
    #[wire(lenient)]
    pub mime_type: Option<String>,
}

/// A resource that is bytes.
#[wire]
pub struct BlobResourceContents {
    /// The bytes, in base64.
    pub blob: String,
    /// The URI of the source.
    pub uri: String,
    /// The MIME type.
    #[wire(lenient)]
    pub mime_type: Option<String>,
}

impl From<TextResourceContents> for EmbeddedResourceResource {
    fn from(contents: TextResourceContents) -> Self {
        Self::TextResourceContents(contents)
    }
}

impl From<BlobResourceContents> for EmbeddedResourceResource {
    fn from(contents: BlobResourceContents) -> Self {
        Self::BlobResourceContents(contents)
    }
}

/// The fields of both kinds of contents, so that one pass reads either.
#[wire]
struct Contents {
    uri: String,
    #[wire(lenient)]
    text: Option<String>,
    #[wire(lenient)]
    blob: Option<String>,
    #[wire(lenient)]
    mime_type: Option<String>,
}

impl<'de> Deserialize<'de> for EmbeddedResourceResource {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Contents { uri, text, blob, mime_type, meta } = Contents::deserialize(d)?;
        match (text, blob) {
            (Some(text), _) => Ok(TextResourceContents { text, uri, mime_type, meta }.into()),
            (None, Some(blob)) => Ok(BlobResourceContents { blob, uri, mime_type, meta }.into()),
            (None, None) => Err(D::Error::missing_field("text")),
        }
    }
}

impl Lenient for EmbeddedResourceResource {}

schema_of!(EmbeddedResourceResource, "EmbeddedResourceResource", |generator| {
    let variants = [
        generator.subschema_for::<TextResourceContents>(),
        generator.subschema_for::<BlobResourceContents>(),
    ];
    crate::export::any_of("The contents of a resource: text or bytes.", variants)
});
