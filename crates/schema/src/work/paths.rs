//! The paths of a work order, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::wire::schema_of;

/// Paths by name: `{name: path}` on the wire. They are relative to the root of the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkPaths(BTreeMap<String, String>);

impl WorkPaths {
    /// The name of the folder that artifacts are written to.
    pub const FEATURE_ROOT: &str = "feature_root";

    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        WorkPaths::default()
    }

    /// Returns the path with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the only folder that artifacts are written to. An order without artifacts needs none.
    #[must_use]
    pub fn feature_root(&self) -> Option<&str> {
        self.get(WorkPaths::FEATURE_ROOT)
    }

    /// Sets the path of `name` and replaces a previous one.
    pub fn insert(&mut self, name: impl Into<String>, path: impl Into<String>) -> &mut Self {
        self.0.insert(name.into(), path.into());
        self
    }

    /// Iterates over the names and paths, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, path)| (name.as_str(), path.as_str()))
    }
}

impl<N: Into<String>, P: Into<String>> FromIterator<(N, P)> for WorkPaths {
    fn from_iter<I: IntoIterator<Item = (N, P)>>(paths: I) -> Self {
        WorkPaths(paths.into_iter().map(|(name, path)| (name.into(), path.into())).collect())
    }
}

impl<N: Into<String>, P: Into<String>, const LEN: usize> From<[(N, P); LEN]> for WorkPaths {
    fn from(paths: [(N, P); LEN]) -> Self {
        paths.into_iter().collect()
    }
}

schema_of!(inline WorkPaths, "Paths", |_| schemars::json_schema!({ "type": "object", "additionalProperties": { "type": "string" } }));
