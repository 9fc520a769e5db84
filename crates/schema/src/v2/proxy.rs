//! The start of a chain of proxies.

use serde::{Deserialize, Serialize};

use super::{InitializeRequest, InitializeResponse};
use crate::wire::schema_of;

/// The params of `proxy/initialize`, which replaces `initialize` for a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InitializeProxyRequest(pub InitializeRequest);

/// The answer to `proxy/initialize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InitializeProxyResponse(pub InitializeResponse);

schema_of!(InitializeProxyRequest, "InitializeProxyRequest", |generator| {
    crate::export::any_of(
        "The params of `proxy/initialize`, which replaces `initialize` for a proxy.",
        [generator.subschema_for::<InitializeRequest>()],
    )
});

schema_of!(InitializeProxyResponse, "InitializeProxyResponse", |generator| {
    crate::export::any_of(
        "The answer to `proxy/initialize`.",
        [generator.subschema_for::<InitializeResponse>()],
    )
});
