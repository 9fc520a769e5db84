//! Paths to the parts of a frame, as the problems name them.

use std::fmt;

use serde_json::Value;

/// The characters of a member's name that a path shows. A name can have the length of a line.
const MAX_NAME: usize = 64;

/// The path of a part of a frame. It refers to the path of its parent, so that a walk over a frame formats the paths of
/// its problems only.
#[derive(Clone, Copy)]
pub(super) enum JsonPath<'a> {
    /// A path that is formatted already, such as `$.params`.
    Base(&'a str),
    /// A member of an object.
    Member(&'a JsonPath<'a>, &'a str),
    /// An item of an array.
    Item(&'a JsonPath<'a>, usize),
}

impl JsonPath<'_> {
    /// Returns the name of the last member, or the whole path if it is formatted already.
    pub(super) fn name(&self) -> &str {
        match *self {
            JsonPath::Base(name) | JsonPath::Member(_, name) => name,
            JsonPath::Item(parent, _) => parent.name(),
        }
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            JsonPath::Base(path) => f.write_str(path),
            JsonPath::Item(parent, index) => write!(f, "{parent}[{index}]"),
            JsonPath::Member(parent, key) if is_plain(key) => write!(f, "{parent}.{key}"),
            JsonPath::Member(parent, key) => match key.char_indices().nth(MAX_NAME) {
                Some((end, _)) => write!(f, "{parent}[{}…]", Value::from(key.get(..end).unwrap_or_default())),
                None => write!(f, "{parent}[{}]", Value::from(key)),
            },
        }
    }
}

/// Returns true if the name is written behind a dot.
fn is_plain(key: &str) -> bool {
    key.len() <= MAX_NAME
        && key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// Returns the path of a member.
pub(super) fn member(path: &str, key: &str) -> String {
    JsonPath::Member(&JsonPath::Base(path), key).to_string()
}
