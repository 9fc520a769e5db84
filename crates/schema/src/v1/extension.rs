//! The params and results of methods outside the protocol.
//!
//! See [Extensibility](https://agentclientprotocol.com/protocol/v1/extensibility).

use serde::{Deserialize, Serialize};

use crate::Json;

macro_rules! extensions {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Json);

        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                crate::export::anything(concat!($($doc),+))
            }
        }
    )*};
}

extensions! {
    /// The params of a request whose method starts with `_`.
    ExtRequest,
    /// The result of such a request.
    ExtResponse,
    /// The params of a notification whose method starts with `_`.
    ExtNotification,
}
