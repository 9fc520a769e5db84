//! The forms of an elicitation: a subset of JSON Schema, one flat object.
//!
//! See [Elicitation](https://agentclientprotocol.com/protocol/v1/elicitation).

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use duologue_schema_derive::wire;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ElicitationContentValue;
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

impl ElicitationSchema {
    /// Checks the values of a form: a field that must be filled in is there, and each value is that of a field and fits it. The
    /// patterns and the formats of texts are not checked, and neither are fields of unknown types.
    ///
    /// ```
    /// use duologue_schema::{ElicitationSchema, IntegerPropertySchema};
    ///
    /// let form = ElicitationSchema::new().properties([("age", IntegerPropertySchema::new().minimum(18).into())]);
    /// assert!(form.check(&[("age".to_owned(), 18_i64.into())].into()).is_ok());
    /// let fault = form.check(&[("age".to_owned(), 17_i64.into())].into()).unwrap_err();
    /// assert_eq!(fault.to_string(), "age: expected a number of at least 18");
    /// ```
    ///
    /// # Errors
    ///
    /// [`FormFault`] for the first value that does not fit.
    pub fn check(&self, content: &BTreeMap<String, ElicitationContentValue>) -> Result<(), FormFault> {
        let fault = |field: &str, reason: String| FormFault { field: field.to_owned(), reason };
        for field in self.required.iter().flatten() {
            if !content.contains_key(field) {
                return Err(fault(field, "it needs a value".to_owned()));
            }
        }
        for (name, value) in content {
            let field = self.properties.get(name);
            let field = field.ok_or_else(|| fault(name, "the form has no such field".to_owned()))?;
            field.check(value).map_err(|reason| fault(name, reason))?;
        }
        Ok(())
    }
}

/// The value of a form that does not fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormFault {
    /// The name of the field.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for FormFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for FormFault {}

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

impl ElicitationPropertySchema {
    /// Checks the value of a field, as [`ElicitationSchema::check`] does.
    ///
    /// # Errors
    ///
    /// The reason for which it does not fit.
    pub fn check(&self, value: &ElicitationContentValue) -> Result<(), String> {
        use ElicitationContentValue as Content;
        match (self, value) {
            (Self::String(field), Content::String(text)) => {
                let titled = field.one_of.as_ref().map(|options| names(options));
                let plain = field.r#enum.as_ref().map(|values| values.iter().map(String::as_str).collect());
                titled.iter().chain(&plain).try_for_each(|choices| is_choice(choices, text))?;
                let length = text.chars().count();
                if let Some(min) = field.min_length.filter(|min| length < *min as usize) {
                    return Err(format!("too short: {length} characters, at least {min} are needed"));
                }
                match field.max_length.filter(|max| length > *max as usize) {
                    Some(max) => Err(format!("too long: {length} characters, at most {max} are allowed")),
                    None => Ok(()),
                }
            }
            (Self::String(_), _) => Err("not a text".to_owned()),
            (Self::Number(field), Content::Number(number)) => {
                within("a number", *number, field.minimum, field.maximum)
            }
            (Self::Number(field), Content::Integer(number)) => {
                within("a number", *number as f64, field.minimum, field.maximum)
            }
            (Self::Number(_), _) => Err("not a number".to_owned()),
            (Self::Integer(field), Content::Integer(number)) => {
                within("a number", *number, field.minimum, field.maximum)
            }
            // JSON Schema counts 1.0 as a whole number.
            (Self::Integer(field), Content::Number(number)) if number.fract() == 0.0 => {
                let limit = |limit: Option<i64>| limit.map(|limit| limit as f64);
                within("a number", *number, limit(field.minimum), limit(field.maximum))
            }
            (Self::Integer(_), _) => Err("not a whole number".to_owned()),
            (Self::Boolean(_), Content::Boolean(_)) => Ok(()),
            (Self::Boolean(_), _) => Err("neither true nor false".to_owned()),
            (Self::Array(field), Content::StringArray(chosen)) => {
                let choices: Option<Vec<&str>> = match &field.items {
                    MultiSelectItems::String(items) => {
                        Some(items.r#enum.iter().map(String::as_str).collect())
                    }
                    MultiSelectItems::Titled(items) => Some(names(&items.any_of)),
                    _ => None,
                };
                let mut all = chosen.iter();
                choices.map_or(Ok(()), |choices| all.try_for_each(|text| is_choice(&choices, text)))?;
                within("a count", chosen.len() as u64, field.min_items, field.max_items)
            }
            (Self::Array(_), _) => Err("not a list of texts".to_owned()),
            _ => Ok(()),
        }
    }
}

fn names(options: &[EnumOption]) -> Vec<&str> {
    options.iter().map(|option| option.r#const.as_str()).collect()
}

fn is_choice(choices: &[&str], text: &str) -> Result<(), String> {
    if choices.contains(&text) { Ok(()) } else { Err(format!("there is no choice {text}")) }
}

fn within<T: PartialOrd + fmt::Display>(
    noun: &str,
    value: T,
    min: Option<T>,
    max: Option<T>,
) -> Result<(), String> {
    if min.as_ref().is_none_or(|min| value >= *min) && max.as_ref().is_none_or(|max| value <= *max) {
        return Ok(());
    }
    Err(match (min, max) {
        (Some(min), Some(max)) => format!("expected {noun} from {min} to {max}"),
        (Some(min), None) => format!("expected {noun} of at least {min}"),
        (None, Some(max)) => format!("expected {noun} of at most {max}"),
        (None, None) => "out of range".to_owned(),
    })
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

    #[test]
    fn values_fit_their_fields() {
        let form: ElicitationSchema = serde_json::from_value(serde_json::json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 3},
                "one": {"type": "string", "enum": ["a", "b"]},
                "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
                "whole": {"type": "integer", "minimum": 1, "maximum": 9},
                "number": {"type": "number", "maximum": 0.5},
                "yes": {"type": "boolean"},
                "some": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
                "titles": {"type": "array", "maxItems": 1, "items": {"anyOf": [{"const": "a", "title": "A"}]}},
                "new": {"type": "colour"},
            },
            "required": ["name"],
        }))
        .unwrap();
        let check = |field: &str, value: serde_json::Value| {
            let mut content = serde_json::json!({"name": "üb"});
            content[field] = value;
            form.check(&serde_json::from_value(content).unwrap()).map_err(|fault| fault.to_string())
        };
        for (field, fitting, others) in [
            ("name", serde_json::json!(["abc"]), serde_json::json!(["a", "abcd", 5, true])),
            ("one", serde_json::json!(["a", "b"]), serde_json::json!(["c", "", 1, ["a"]])),
            ("titled", serde_json::json!(["a"]), serde_json::json!(["A"])),
            ("whole", serde_json::json!([1, 9, 5.0]), serde_json::json!([0, 10, 1.5, 10.0, "5"])),
            ("number", serde_json::json!([0.5, -1]), serde_json::json!([0.6, 1, "0"])),
            ("yes", serde_json::json!([true, false]), serde_json::json!([0, "true"])),
            ("some", serde_json::json!([["a"], ["b", "a"]]), serde_json::json!([[], ["c"], "a"])),
            ("titles", serde_json::json!([[], ["a"]]), serde_json::json!([["a", "a"], ["A"]])),
            ("new", serde_json::json!(["red", 5]), serde_json::json!([])),
            ("other", serde_json::json!([]), serde_json::json!(["a"])),
        ] {
            for value in fitting.as_array().unwrap() {
                assert_eq!(check(field, value.clone()), Ok(()), "{field} {value}");
            }
            for value in others.as_array().unwrap() {
                let why = check(field, value.clone()).expect_err(&value.to_string());
                assert!(why.starts_with(field), "{why}");
            }
        }
        assert_eq!(form.check(&BTreeMap::new()).unwrap_err().to_string(), "name: it needs a value");
    }
}
