//! The registry of agents.

use serde::Serialize;

use super::values::JsonText;

/// The origin of an entry of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RegistrySource {
    /// The configuration of the server.
    Config,
    /// A program that has connected to the server.
    Attached,
    /// A request to the registry.
    Rest,
}

/// The state of an agent in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RegistryStatus {
    /// It accepts work.
    Online,
    /// It is there and accepts no more work now.
    Busy,
    /// It is not there, or has sent no heartbeat for too long.
    Offline,
}

/// An entry of the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RegisteredAgent {
    /// The id.
    pub id: String,
    /// The principal that has registered it. It alone may replace the entry.
    pub owner: String,
    /// The origin of the entry.
    pub source: RegistrySource,
    /// The address.
    pub endpoint: String,
    /// The card: version, provider, MIME types, the most concurrent tasks, pricing and others.
    pub card: JsonText,
    /// The names of its capabilities.
    pub capabilities: Vec<String>,
    /// The names of its domains.
    pub domains: Vec<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The name of its provider.
    pub provider: Option<String>,
    /// The state.
    pub status: RegistryStatus,
    /// The time of the last sign of life, in milliseconds since 1970.
    pub last_seen: Option<u64>,
    /// The time of the first registration, in milliseconds since 1970. The store sets it.
    pub created: u64,
    /// The time of the last registration, in milliseconds since 1970. The store sets it.
    pub updated: u64,
}

impl RegisteredAgent {
    /// Creates an entry that is offline, with an empty card and without names.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        owner: impl Into<String>,
        source: RegistrySource,
        endpoint: impl Into<String>,
    ) -> Self {
        RegisteredAgent {
            id: id.into(),
            owner: owner.into(),
            source,
            endpoint: endpoint.into(),
            card: JsonText::trusted("{}".into()),
            capabilities: Vec::new(),
            domains: Vec::new(),
            tags: Vec::new(),
            provider: None,
            status: RegistryStatus::Offline,
            last_seen: None,
            created: 0,
            updated: 0,
        }
    }
}

/// Filters of the registry, all of which have to match, and the place of a page. Agents are ordered by their id.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AgentQuery {
    /// A capability.
    pub capability: Option<String>,
    /// A domain.
    pub domain: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// A provider.
    pub provider: Option<String>,
    /// A state.
    pub status: Option<RegistryStatus>,
    /// An owner.
    pub owner: Option<String>,
    /// An origin.
    pub source: Option<RegistrySource>,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page. Zero counts as 100, and
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) is the most.
    pub limit: u64,
}
