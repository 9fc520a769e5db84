//! Icons of resources.

use duologue_schema_derive::wire;

use super::MediaType;

/// An icon of a resource.
#[wire]
pub struct Icon {
    /// The URI of the image.
    pub src: String,
    /// The media type of the image.
    #[wire(lenient)]
    pub mime_type: Option<MediaType>,
    /// The sizes of the image, such as `48x48`.
    #[wire(skip_invalid)]
    pub sizes: Option<Vec<String>>,
    /// The theme that the image fits.
    #[wire(lenient)]
    pub theme: Option<IconTheme>,
}

/// The theme that an icon fits.
#[wire(open)]
pub enum IconTheme {
    /// A light background.
    Light,
    /// A dark background.
    Dark,
}
