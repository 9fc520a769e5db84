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

        crate::wire::schema_of!($name, stringify!($name), |_| crate::export::anything(concat!($($doc),+)));
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
