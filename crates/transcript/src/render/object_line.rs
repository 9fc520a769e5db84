//! A JSON object that is written on a line, field by field.

use std::fmt;

use serde_json::Value;

use super::fields::Fields;
use super::line::ScriptLine;

/// A line, and the fields of an object that have not been written on it.
pub(super) struct ObjectLine<'l> {
    pub(super) line: &'l mut ScriptLine,
    pub(super) fields: Fields,
}

impl ScriptLine {
    /// Writes an object. The fields that `write` leaves follow as JSON.
    pub(super) fn object(&mut self, fields: Fields, write: impl FnOnce(&mut ObjectLine<'_>)) {
        let mut object = ObjectLine { line: self, fields };
        write(&mut object);
        let rest = object.fields;
        self.rest(rest);
    }

    /// Writes a value that should be an object. Any other value is written as JSON.
    pub(super) fn value(&mut self, value: Value, write: impl FnOnce(&mut ObjectLine<'_>)) {
        match Fields::try_from(value) {
            Ok(fields) => self.object(fields, write),
            Err(value) => _ = self.json(value),
        }
    }
}

impl ObjectLine<'_> {
    /// Adds a fixed word.
    pub(super) fn add(&mut self, word: impl fmt::Display) -> &mut Self {
        self.line.add(word);
        self
    }

    /// Writes fields that are names or ids.
    pub(super) fn words(&mut self, keys: &[&str]) -> &mut Self {
        self.strings(keys, |line, word| _ = line.word(word))
    }

    /// Writes fields that are titles.
    pub(super) fn quoted(&mut self, keys: &[&str]) -> &mut Self {
        self.strings(keys, |line, text| _ = line.quoted(text))
    }

    /// Writes a field that is a text of any length.
    pub(super) fn text(&mut self, key: &str) -> &mut Self {
        self.strings(&[key], |line, text| _ = line.text(text))
    }

    /// Writes a field that is base64.
    pub(super) fn data(&mut self, key: &str) -> &mut Self {
        self.strings(&[key], |line, data| _ = line.data(data))
    }

    fn strings(&mut self, keys: &[&str], write: impl Fn(&mut ScriptLine, &str)) -> &mut Self {
        for key in keys {
            if let Some(text) = self.fields.string(key) {
                write(self.line, &text);
            }
        }
        self
    }

    /// Writes a word after a fixed one.
    pub(super) fn named(&mut self, name: &str, key: &str) -> &mut Self {
        self.strings(&[key], |line, word| _ = line.add(name).word(word))
    }

    /// Writes each word of a list.
    pub(super) fn word_list(&mut self, key: &str) -> &mut Self {
        self.fields.strings(key).unwrap_or_default().iter().for_each(|word| _ = self.line.word(word));
        self
    }

    /// Writes a value of any type after `=`.
    pub(super) fn assigned(&mut self, key: &str) -> &mut Self {
        if let Some(value) = self.fields.take(key) {
            self.line.add("=").word_or_json(value);
        }
        self
    }

    /// Writes a number in place of the `{}` in `form`.
    pub(super) fn number(&mut self, key: &str, form: &str) -> &mut Self {
        if let Some(number) = self.fields.number(key) {
            self.line.add(form.replace("{}", &number.to_string()));
        }
        self
    }

    /// Does the same for a number that is left out if it is 0.
    pub(super) fn amount(&mut self, key: &str, form: &str) -> &mut Self {
        self.forget(key, 0).number(key, form)
    }

    /// Writes a word for `true` and one for `false`. The empty word is left out.
    pub(super) fn flag(&mut self, key: &str, yes: &str, no: &str) -> &mut Self {
        if let Some(Value::Bool(flag)) = self.fields.take_if(key, Value::is_boolean) {
            let word = if flag { yes } else { no };
            if !word.is_empty() {
                self.line.add(word);
            }
        }
        self
    }

    /// Leaves out a field that has this value.
    pub(super) fn forget(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.fields.forget(key, &value.into());
        self
    }

    /// Writes an object in a field on the same line.
    pub(super) fn object(&mut self, key: &str, write: impl FnOnce(&mut ObjectLine<'_>)) -> &mut Self {
        if let Some(fields) = self.fields.object(key) {
            self.line.object(fields, write);
        }
        self
    }

    /// Writes each object of a list on a line below.
    pub(super) fn list(&mut self, key: &str, mut write: impl FnMut(&mut ObjectLine<'_>)) -> &mut Self {
        for fields in self.fields.objects(key).unwrap_or_default() {
            self.line.under(|line| line.object(fields, &mut write));
        }
        self
    }

    /// Writes some of the fields on a line below.
    pub(super) fn below(&mut self, write: impl FnOnce(&mut ObjectLine<'_>)) -> &mut Self {
        let fields = std::mem::take(&mut self.fields);
        self.line.under(|line| {
            let mut below = ObjectLine { line, fields };
            write(&mut below);
            self.fields = below.fields;
        });
        self
    }

    /// Writes a value of any type on a line below.
    pub(super) fn raw(&mut self, key: &str) -> &mut Self {
        if let Some(value) = self.fields.take(key) {
            self.line.under(|line| _ = line.add(key).text_or_json(value));
        }
        self
    }
}
