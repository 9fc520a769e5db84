//! Chains of proxies between a client and an agent: `proxy/initialize` and `proxy/successor`.

use duologue_schema_derive::wire;
use serde::{Deserialize, Serialize};

use crate::wire::schema_of;
use crate::{InitializeRequest, InitializeResponse, Json};

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

/// The params of the request `proxy/successor`, which carries a request to or from the next program of the chain.
#[wire]
pub struct ProxySuccessorRequest {
    /// The method of the request.
    pub method: String,
    /// The params of the request.
    pub params: Option<Json>,
}

/// The params of the notification `proxy/successor`, which carries a notification to or from the next program of the chain.
#[wire]
pub struct ProxySuccessorNotification {
    /// The method of the notification.
    pub method: String,
    /// The params of the notification.
    pub params: Option<Json>,
}

/// The answer to `proxy/successor`: the result of the request that it carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxySuccessorResponse(pub Json);

schema_of!(ProxySuccessorResponse, "ProxySuccessorResponse", |_| {
    crate::export::anything("The answer to `proxy/successor`: the result of the request that it carried.")
});
