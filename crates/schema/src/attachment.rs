//! Multimodal content of messages between agents.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use duologue_schema_derive::wire;

use crate::Members;

/// An image, a sound or another document that a message between agents carries.
///
/// The content is text in `text`, or bytes in `data` as base64.
///
/// ```
/// use duologue_schema::Attachment;
///
/// let table = Attachment::with_text("text/csv", "day,free\nFriday,both").name("days.csv");
/// assert_eq!(table.as_text(), Some("day,free\nFriday,both"));
///
/// let image = Attachment::with_bytes("image/png", b"\x89PNG").metadata([("width", 64)]);
/// assert_eq!(
///     serde_json::to_string(&image)?,
///     r#"{"mime_type":"image/png","data":"iVBORw==","metadata":{"width":64}}"#,
/// );
/// assert_eq!(&*image.bytes()?, b"\x89PNG");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[wire(snake)]
pub struct Attachment {
    /// The MIME type of the content, such as `image/png`.
    pub mime_type: String,
    /// The content as text.
    pub text: Option<String>,
    /// The content as base64; see [`bytes`](Self::bytes).
    pub data: Option<String>,
    /// The name of the content, such as a file name. It is no path.
    pub name: Option<String>,
    /// Data about the content, such as the width of an image.
    #[wire(default)]
    pub metadata: Members,
}

impl Attachment {
    /// Creates an attachment from a text.
    #[must_use]
    pub fn with_text(mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        Attachment::new(mime_type).text(text)
    }

    /// Creates an attachment from bytes, which are encoded as base64.
    #[must_use]
    pub fn with_bytes(mime_type: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Attachment::new(mime_type).data(engine(false).encode(bytes))
    }

    /// Returns the content if it is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns the content: the bytes of the text, or the decoded base64. The base64 may have the URL-safe
    /// alphabet, and no padding. Without a content it is empty.
    ///
    /// # Errors
    ///
    /// If `data` is not base64.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, AttachmentError> {
        match (&self.text, &self.data) {
            (Some(text), _) => Ok(Cow::Borrowed(text.as_bytes())),
            (None, Some(data)) => {
                let url_safe = data.contains(['-', '_']);
                let decoded = engine(url_safe).decode(data);
                decoded.map(Cow::Owned).map_err(|error| AttachmentError(error.to_string()))
            }
            (None, None) => Ok(Cow::Borrowed(&[])),
        }
    }

    /// Returns the number of bytes of the attachment: its content as text or base64, its name and its
    /// metadata. The escapes of JSON are not counted, so a text may take more in a message.
    #[must_use]
    pub fn wire_size(&self) -> usize {
        let members =
            |members: &Members| members.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let texts = [Some(&self.mime_type), self.text.as_ref(), self.data.as_ref(), self.name.as_ref()];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        texts + members(&self.metadata) + members(&self.extra)
    }
}

fn engine(url_safe: bool) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(if url_safe { &URL_SAFE } else { &STANDARD }, config)
}

/// The `data` of an [`Attachment`] is not base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentError(String);

impl std::fmt::Display for AttachmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the data of the attachment is not base64: {}", self.0)
    }
}

impl std::error::Error for AttachmentError {}
