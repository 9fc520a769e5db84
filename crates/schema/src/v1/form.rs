//! The forms of an elicitation: a subset of JSON Schema, one flat object.
//!
//! See [Elicitation](https://agentclientprotocol.com/protocol/v1/elicitation).

use std::collections::BTreeMap;

use duologue_schema_derive::wire;

/// The fields of a form.
#[wire]
pub struct ElicitationSchema {
    /// The type, always an object.
    #[wire(default, always, lenient)]
    pub r#type: ElicitationSchemaType,
    /// The title of the form.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the form.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The fields by name.
    #[wire(default, always)]
    pub properties: BTreeMap<String, ElicitationPropertySchema>,
    /// The fields that must be filled in.
    pub required: Option<Vec<String>>,
}

/// The type of a form.
#[wire]
#[derive(Default)]
pub enum ElicitationSchemaType {
    /// An object, the only type.
    #[default]
    Object,
}

/// One field of a form.
#[wire(tag = "type", open)]
pub enum ElicitationPropertySchema {
    /// Text, or one of several choices.
    String(Box<StringPropertySchema>),
    /// A number.
    Number(Box<NumberPropertySchema>),
    /// A whole number.
    Integer(Box<IntegerPropertySchema>),
    /// Yes or no.
    Boolean(Box<BooleanPropertySchema>),
    /// Several of the choices.
    Array(Box<MultiSelectPropertySchema>),
}

/// A field for text, or for one of several choices.
#[wire]
pub struct StringPropertySchema {
    /// The label of the field.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the field.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The least number of characters.
    pub min_length: Option<u32>,
    /// The greatest number of characters.
    pub max_length: Option<u32>,
    /// A regular expression. It comes from the peer, so match it with a bounded engine.
    pub pattern: Option<String>,
    /// The format of the text.
    pub format: Option<StringFormat>,
    /// The initial value.
    #[wire(lenient)]
    pub default: Option<String>,
    /// The choices.
    pub r#enum: Option<Vec<String>>,
    /// The choices, each with a title.
    pub one_of: Option<Vec<EnumOption>>,
}

/// The format of the text in a field.
#[wire]
pub enum StringFormat {
    /// An e-mail address.
    Email,
    /// A URI.
    Uri,
    /// A date.
    Date,
    /// A date and time.
    #[wire(rename = "date-time")]
    DateTime,
}

/// A choice with a title.
#[wire]
pub struct EnumOption {
    /// The choice.
    pub r#const: String,
    /// The title to show.
    pub title: String,
    /// Further details.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// A field for a number.
#[wire]
pub struct NumberPropertySchema {
    /// The label of the field.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the field.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The least number.
    pub minimum: Option<f64>,
    /// The greatest number.
    pub maximum: Option<f64>,
    /// The initial value.
    #[wire(lenient)]
    pub default: Option<f64>,
}

/// A field for a whole number.
#[wire]
pub struct IntegerPropertySchema {
    /// The label of the field.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the field.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The least number.
    pub minimum: Option<i64>,
    /// The greatest number.
    pub maximum: Option<i64>,
    /// The initial value.
    #[wire(lenient)]
    pub default: Option<i64>,
}

/// A field for yes or no.
#[wire]
pub struct BooleanPropertySchema {
    /// The label of the field.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the field.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The initial value.
    #[wire(lenient)]
    pub default: Option<bool>,
}

/// A field for several of the choices.
#[wire]
pub struct MultiSelectPropertySchema {
    /// The label of the field.
    #[wire(lenient)]
    pub title: Option<String>,
    /// A description of the field.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The least number of choices.
    pub min_items: Option<u64>,
    /// The greatest number of choices.
    pub max_items: Option<u64>,
    /// The choices.
    pub items: MultiSelectItems,
    /// The initial choices.
    #[wire(skip_invalid)]
    pub default: Option<Vec<String>>,
}

/// The choices of a field.
#[wire(tag = "type", open)]
pub enum MultiSelectItems {
    /// Plain choices.
    String(StringMultiSelectItems),
    /// Choices with titles.
    #[wire(untagged)]
    Titled(TitledMultiSelectItems),
}

/// Plain choices.
#[wire]
pub struct StringMultiSelectItems {
    /// The choices.
    pub r#enum: Vec<String>,
}

/// Choices with titles.
#[wire]
pub struct TitledMultiSelectItems {
    /// The choices.
    pub any_of: Vec<EnumOption>,
}
