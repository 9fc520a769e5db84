//! Principals, and the keys of requests that run once.

use std::fmt;

use duologue_rpc::SecretText;
use serde::Serialize;

use super::values::JsonText;

/// A user or program that may use the server.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredPrincipal {
    /// The id.
    pub id: String,
    /// The names of its roles.
    pub roles: Vec<String>,
    /// The SHA-256 of its API key, if it has one. Two principals cannot have the same.
    #[serde(skip)]
    pub key_hash: Option<[u8; 32]>,
    /// The secret that signs posts to its addresses.
    #[serde(skip)]
    pub webhook_secret: Option<SecretText>,
    /// True if it may not use the server now. Nothing of it is sent.
    pub disabled: bool,
    /// The time of its creation, in milliseconds since 1970. The store sets it.
    pub created: u64,
    /// The time at which its key ends, in milliseconds since 1970. The caller checks it.
    pub expires: Option<u64>,
}

impl StoredPrincipal {
    /// Creates a principal without roles, key and secret.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        StoredPrincipal {
            id: id.into(),
            roles: Vec::new(),
            key_hash: None,
            webhook_secret: None,
            disabled: false,
            created: 0,
            expires: None,
        }
    }
}

/// Without the hash and the secret.
impl fmt::Debug for StoredPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredPrincipal")
            .field("id", &self.id)
            .field("roles", &self.roles)
            .field("disabled", &self.disabled)
            .field("created", &self.created)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The key of a request that runs once: an idempotency key, or the id of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenKey {
    /// The principal that has sent the request.
    pub principal: String,
    /// The kind of request, such as a route. Keys of different scopes are independent.
    pub scope: String,
    /// The key, which the sender has chosen.
    pub key: String,
}

impl SeenKey {
    /// Creates a key.
    #[must_use]
    pub fn new(principal: impl Into<String>, scope: impl Into<String>, key: impl Into<String>) -> Self {
        SeenKey { principal: principal.into(), scope: scope.into(), key: key.into() }
    }
}

/// A key with the digest of its request. A later request with the same key and another digest is a conflict.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenId {
    /// The key.
    pub key: SeenKey,
    /// A digest of the request, such as its SHA-256.
    pub digest: Vec<u8>,
    /// The response, if it is known already.
    pub response: Option<JsonText>,
    /// The time until which the key is kept, in milliseconds since 1970.
    pub expires: u64,
}

impl SeenId {
    /// Creates a key whose response is not known yet.
    #[must_use]
    pub fn new(key: SeenKey, digest: impl Into<Vec<u8>>, expires: u64) -> Self {
        SeenId { key, digest: digest.into(), response: None, expires }
    }

    /// Sets the response.
    #[must_use]
    pub fn response(mut self, response: JsonText) -> Self {
        self.response = Some(response);
        self
    }
}

/// A key that was remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SeenAnswer {
    /// The key.
    pub key: SeenKey,
    /// The digest of the request.
    #[serde(skip)]
    pub digest: Vec<u8>,
    /// The response. It is absent while the first request still runs.
    pub response: Option<JsonText>,
    /// The time until which the key is kept, in milliseconds since 1970.
    pub expires: u64,
}
