//! Content blocks: what prompts, messages and tool calls are made of.
//!
//! See [Content](https://agentclientprotocol.com/protocol/v1/content).

use std::fmt;

use duologue_schema_derive::wire;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::wire::{Lenient, WriteFields, write_object};

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
    /// A picture. In a prompt, only for agents with `promptCapabilities.image`.
    Image(Box<ImageContent>),
    /// Sound. In a prompt, only for agents with `promptCapabilities.audio`.
    Audio(Box<AudioContent>),
    /// A pointer to a resource the agent can fetch.
    ResourceLink(Box<ResourceLink>),
    /// A resource with its contents. In a prompt, only for agents with
    /// `promptCapabilities.embeddedContext`.
    Resource(Box<EmbeddedResource>),
}

impl ContentBlock {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        TextContent::new(text).into()
    }

    /// A picture: base64 data and its MIME type.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        ImageContent::new(data, mime_type).into()
    }

    /// A sound: base64 data and its MIME type.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        AudioContent::new(data, mime_type).into()
    }

    /// A link to a resource.
    pub fn resource_link(name: impl Into<String>, uri: impl Into<String>) -> Self {
        ResourceLink::new(name, uri).into()
    }

    /// The text of a text block.
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

/// Hints about who content is for and how much it matters.
#[wire]
pub struct Annotations {
    /// Who it is for; everybody if absent.
    #[wire(skip_invalid)]
    pub audience: Option<Vec<Role>>,
    /// When it last changed, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub last_modified: Option<String>,
    /// How much it matters, from 0 to 1.
    #[wire(lenient)]
    pub priority: Option<f64>,
}

/// A side of the conversation.
#[wire]
pub enum Role {
    /// The model.
    Assistant,
    /// The person.
    User,
}

/// Text, to be read as Markdown.
#[wire]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// A picture.
#[wire]
pub struct ImageContent {
    /// The picture, in base64.
    pub data: String,
    /// Its MIME type.
    pub mime_type: String,
    /// Where it comes from.
    #[wire(lenient)]
    pub uri: Option<String>,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// Sound.
#[wire]
pub struct AudioContent {
    /// The sound, in base64.
    pub data: String,
    /// Its MIME type.
    pub mime_type: String,
    /// Hints for the receiver.
    #[wire(lenient)]
    pub annotations: Option<Box<Annotations>>,
}

/// A pointer to a resource.
#[wire]
pub struct ResourceLink {
    /// A name for it.
    pub name: String,
    /// Where it is.
    pub uri: String,
    /// A name to show instead of `name`.
    #[wire(lenient)]
    pub title: Option<String>,
    /// What it is.
    #[wire(lenient)]
    pub description: Option<String>,
    /// Its MIME type.
    #[wire(lenient)]
    pub mime_type: Option<String>,
    /// Its size in bytes.
    #[wire(lenient)]
    pub size: Option<i64>,
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

/// The contents of a resource: text or bytes, told apart by the key `text`.
#[derive(Clone, Debug, PartialEq)]
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
    /// Where it comes from.
    pub uri: String,
    /// Its MIME type.
    #[wire(lenient)]
    pub mime_type: Option<String>,
}

/// A resource that is bytes.
#[wire]
pub struct BlobResourceContents {
    /// The bytes, in base64.
    pub blob: String,
    /// Where it comes from.
    pub uri: String,
    /// Its MIME type.
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

impl WriteFields for EmbeddedResourceResource {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::TextResourceContents(contents) => contents.write(map),
            Self::BlobResourceContents(contents) => contents.write(map),
        }
    }
}

impl Serialize for EmbeddedResourceResource {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        write_object(self, s)
    }
}

/// Both kinds of contents at once, so that they are read in one pass.
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

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for EmbeddedResourceResource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EmbeddedResourceResource".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let variants = [
            generator.subschema_for::<TextResourceContents>(),
            generator.subschema_for::<BlobResourceContents>(),
        ];
        crate::export::any_of("The contents of a resource: text or bytes.", variants)
    }
}
