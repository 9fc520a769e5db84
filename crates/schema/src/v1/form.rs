//! The forms of an elicitation: a subset of JSON Schema, one flat object.
//!
//! See [Elicitation](https://agentclientprotocol.com/protocol/v1/elicitation).

use std::collections::HashMap;
use std::fmt;

use duologue_schema_derive::wire;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::schema_of;

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
    pub properties: FormFields,
    /// The fields that must be filled in.
    pub required: Option<Vec<String>>,
}

/// The fields of a form by name, in the order in which the client shows them.
///
/// ```
/// use duologue_schema::{BooleanPropertySchema, ElicitationSchema, StringPropertySchema};
///
/// let form = ElicitationSchema::new().properties([
///     ("name", StringPropertySchema::new().into()),
///     ("admin", BooleanPropertySchema::new().into()),
/// ]);
/// assert_eq!(form.properties.names().collect::<Vec<_>>(), ["name", "admin"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FormFields(Vec<(String, ElicitationPropertySchema)>);

impl FormFields {
    /// Returns true if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the field with this name. It takes linear time.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ElicitationPropertySchema> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, field)| field)
    }

    /// Returns the fields with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ElicitationPropertySchema)> {
        self.0.iter().map(|(name, field)| (name.as_str(), field))
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// Of fields with the same name, the last one replaces the others, at the place of the first.
impl<K: Into<String>> FromIterator<(K, ElicitationPropertySchema)> for FormFields {
    fn from_iter<I: IntoIterator<Item = (K, ElicitationPropertySchema)>>(fields: I) -> Self {
        let mut all: Vec<(String, ElicitationPropertySchema)> = Vec::new();
        let mut places = HashMap::new();
        for (name, field) in fields {
            let name = name.into();
            match places.get(&name) {
                Some(&place) => all[place] = (name, field),
                None => {
                    places.insert(name.clone(), all.len());
                    all.push((name, field));
                }
            }
        }
        FormFields(all)
    }
}

/// Lets a setter accept `[("name", StringPropertySchema::new().into())]`.
impl<K: Into<String>, const N: usize> From<[(K, ElicitationPropertySchema); N]> for FormFields {
    fn from(fields: [(K, ElicitationPropertySchema); N]) -> Self {
        fields.into_iter().collect()
    }
}

impl IntoIterator for FormFields {
    type Item = (String, ElicitationPropertySchema);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for FormFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for FormFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = FormFields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FormFields, A::Error> {
                std::iter::from_fn(|| map.next_entry::<String, _>().transpose()).collect()
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

schema_of!(inline FormFields, "FormFields", |generator| {
    generator.subschema_for::<std::collections::BTreeMap<String, ElicitationPropertySchema>>()
});

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_form_keep_their_order() {
        let json = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"boolean"},"m":{"type":"number"}}}"#;
        let form: ElicitationSchema = serde_json::from_str(json).unwrap();
        assert_eq!(form.properties.names().collect::<Vec<_>>(), ["z", "a", "m"]);
        assert_eq!(serde_json::to_string(&form).unwrap(), json);

        let repeated = r#"{"z":{"type":"string"},"a":{"type":"boolean"},"z":{"type":"number"}}"#;
        let fields: FormFields = serde_json::from_str(repeated).unwrap();
        assert_eq!(fields.names().collect::<Vec<_>>(), ["z", "a"]);
        assert!(matches!(fields.get("z"), Some(ElicitationPropertySchema::Number(_))));
        let fields = FormFields::from([("za", BooleanPropertySchema::new().into())]);
        assert_eq!((fields.get("z"), fields.get("zab"), fields.get("za").is_some()), (None, None, true));
    }
}
