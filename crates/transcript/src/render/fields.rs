//! A JSON object whose fields are taken one by one. The remaining fields are written as JSON, so that
//! none is lost.

use serde_json::{Map, Number, Value};

/// The fields of an object that have not been taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a string without taking it.
    pub(super) fn peek(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// Returns a value without taking it.
    pub(super) fn peek_value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Adds or replaces a field.
    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.into(), value);
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// Takes a value if it matches. Any other value stays.
    pub(super) fn take_if(&mut self, key: &str, fits: impl FnOnce(&Value) -> bool) -> Option<Value> {
        self.0.get(key).is_some_and(fits).then(|| self.0.remove(key))?
    }

    pub(super) fn string(&mut self, key: &str) -> Option<String> {
        match self.0.get_mut(key)? {
            Value::String(text) => {
                let text = std::mem::take(text);
                self.0.remove(key);
                Some(text)
            }
            _ => None,
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Option<Number> {
        let number = self.0.get(key)?.as_number()?.clone();
        self.0.remove(key);
        Some(number)
    }

    pub(super) fn object(&mut self, key: &str) -> Option<Fields> {
        let map = std::mem::take(self.0.get_mut(key)?.as_object_mut()?);
        self.0.remove(key);
        Some(Fields(map))
    }

    /// Takes a list of objects that is not empty. Any other list stays.
    pub(super) fn objects(&mut self, key: &str) -> Option<Vec<Fields>> {
        let items = self.0.get(key)?.as_array()?;
        if items.is_empty() || !items.iter().all(Value::is_object) {
            return None;
        }
        let Some(Value::Array(items)) = self.0.remove(key) else { return None };
        Some(items.into_iter().map(|item| Fields::try_from(item).unwrap_or_default()).collect())
    }

    /// Takes a list of strings that is not empty. Any other list stays.
    pub(super) fn strings(&mut self, key: &str) -> Option<Vec<String>> {
        let items = self.0.get(key)?.as_array()?;
        let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        let texts = texts.filter(|texts| !texts.is_empty())?;
        self.0.remove(key);
        Some(texts)
    }

    /// Removes a value that equals the default.
    pub(super) fn forget(&mut self, key: &str, value: &Value) {
        if self.0.get(key) == Some(value) {
            self.0.remove(key);
        }
    }
}

impl TryFrom<Value> for Fields {
    type Error = Value;

    fn try_from(value: Value) -> Result<Self, Value> {
        match value {
            Value::Object(map) => Ok(Fields(map)),
            value => Err(value),
        }
    }
}

/// Returns the value with sorted keys. Another crate of the program may have enabled the
/// `preserve_order` feature of `serde_json`.
pub(super) fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut members: Vec<_> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            members.into_iter().collect::<Map<_, _>>().into()
        }
        value => value,
    }
}
