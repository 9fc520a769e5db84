//! The published schemas: each version of the protocol, with and without its unstable part.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::registry::{self, Definition};
use super::{Sides, document_of, meta_of};
use crate::{METHODS, MethodRow, ProtocolVersion};

/// One of the published schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Surface {
    /// The stable version 1.
    V1,
    /// Version 1 with its unstable part.
    #[cfg(feature = "unstable")]
    V1Unstable,
    /// The draft of version 2.
    #[cfg(feature = "protocol-v2")]
    V2,
    /// The draft of version 2 with its unstable part.
    #[cfg(feature = "protocol-v2")]
    V2Unstable,
}

thread_local! {
    /// The schema that this thread exports.
    static EXPORTED: Cell<Option<Surface>> = const { Cell::new(None) };
}

/// Returns true if the schema that this thread exports has the members of a Cargo feature. Outside of an export
/// every schema has all members.
pub(crate) fn has_feature(feature: &str) -> bool {
    match EXPORTED.get() {
        Some(surface) => surface.features().contains(&feature),
        None => true,
    }
}

impl Surface {
    /// Every published schema.
    pub const ALL: &[Surface] = &[
        Surface::V1,
        #[cfg(feature = "unstable")]
        Surface::V1Unstable,
        #[cfg(feature = "protocol-v2")]
        Surface::V2,
        #[cfg(feature = "protocol-v2")]
        Surface::V2Unstable,
    ];

    /// Returns the path of the schema without its ending, such as `v1/schema.unstable`.
    #[must_use]
    pub fn path(self) -> String {
        self.file("schema")
    }

    pub(super) fn file(self, name: &str) -> String {
        let suffix = if self.is_unstable() { ".unstable" } else { "" };
        format!("v{}/{name}{suffix}", self.version())
    }

    /// Returns the version of the protocol.
    #[must_use]
    pub fn version(self) -> ProtocolVersion {
        match self {
            Surface::V1 => ProtocolVersion::V1,
            #[cfg(feature = "unstable")]
            Surface::V1Unstable => ProtocolVersion::V1,
            #[cfg(feature = "protocol-v2")]
            Surface::V2 | Surface::V2Unstable => ProtocolVersion::V2,
        }
    }

    fn is_unstable(self) -> bool {
        self.features().contains(&"unstable")
    }

    fn features(self) -> &'static [&'static str] {
        match self {
            Surface::V1 => &[],
            #[cfg(feature = "unstable")]
            Surface::V1Unstable => &["unstable"],
            #[cfg(feature = "protocol-v2")]
            Surface::V2 => &["protocol-v2"],
            #[cfg(feature = "protocol-v2")]
            Surface::V2Unstable => &["protocol-v2", "unstable"],
        }
    }

    /// Returns every definition of the schema.
    #[must_use]
    pub fn definitions(self) -> Vec<Definition> {
        match self {
            Surface::V1 => registry::definitions(),
            #[cfg(feature = "unstable")]
            Surface::V1Unstable => registry::unstable_definitions(),
            #[cfg(feature = "protocol-v2")]
            Surface::V2 | Surface::V2Unstable => super::registry_v2::definitions(self.is_unstable()),
        }
    }

    /// Returns the methods by the side that handles them.
    #[must_use]
    pub fn methods(self) -> Vec<MethodRow> {
        let Sides { agent, client, protocol, proxy } = self.sides();
        [agent, client, protocol, proxy].concat()
    }

    pub(super) fn sides(self) -> Sides {
        let sides = |[agent, client, protocol]: [&[MethodRow]; 3]| Sides {
            agent: agent.to_vec(),
            client: client.to_vec(),
            protocol: protocol.to_vec(),
            proxy: Vec::new(),
        };
        match self {
            Surface::V1 => sides(METHODS),
            #[cfg(feature = "unstable")]
            Surface::V1Unstable => {
                let mut all = sides(METHODS);
                let [agent, client, proxy] = crate::UNSTABLE_METHODS;
                all.agent.extend(agent);
                all.client.extend(client);
                all.proxy.extend(proxy);
                all
            }
            #[cfg(feature = "protocol-v2")]
            Surface::V2 => {
                let mut all = sides(crate::v2::METHODS);
                let is_stable = |row: &MethodRow| {
                    !crate::UNSTABLE_METHODS.into_iter().flatten().any(|other| other.method == row.method)
                };
                for rows in [&mut all.agent, &mut all.client] {
                    rows.retain(is_stable);
                }
                all
            }
            #[cfg(feature = "protocol-v2")]
            Surface::V2Unstable => {
                let mut all = sides(crate::v2::METHODS);
                all.proxy.extend(crate::v2::PROXY_METHODS);
                all
            }
        }
    }

    /// Returns the whole schema. Its root accepts the messages of both sides.
    #[must_use]
    pub fn document(self) -> Value {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                EXPORTED.set(None);
            }
        }
        EXPORTED.set(Some(self));
        let _reset = Reset;
        document_of(self)
    }

    /// Returns the methods by side and variant name.
    #[must_use]
    pub fn meta(self) -> Value {
        meta_of(self)
    }

    pub(super) fn title(self) -> String {
        let unstable = if self.is_unstable() { " with its unstable part" } else { "" };
        let draft = if self.version() == ProtocolVersion::V1 { "" } else { " (draft)" };
        format!(
            "Agent Client Protocol, version {}{draft}{unstable}, with the additions of Duologue",
            self.version()
        )
    }

    /// Adds the rules of one version that the Rust types, which both versions share, do not express.
    pub(super) fn refine(self, all: &mut Map<String, Value>) {
        // In version 1 a plan has one of the known forms.
        if self.version() == ProtocolVersion::V1
            && let Some(Value::Array(mut forms)) =
                all.get_mut("PlanUpdateContent").map(|plan| plan["anyOf"].take())
        {
            forms.pop();
            all["PlanUpdateContent"]["anyOf"] = forms.into();
        }
        #[cfg(feature = "protocol-v2")]
        if self.version() == ProtocolVersion::V2 {
            super::registry_v2::refine(all);
        }
    }
}
