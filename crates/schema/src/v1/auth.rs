//! Authentication.
//!
//! See [Authentication](https://agentclientprotocol.com/protocol/v1/authentication).

use std::collections::BTreeMap;

use duologue_schema_derive::wire;

use crate::AuthMethodId;

/// A way to authenticate that an agent offers.
#[wire(tag = "type")]
pub enum AuthMethod {
    /// Run the agent's own program in a terminal, where the person logs in.
    Terminal(Box<AuthMethodTerminal>),
    /// Call `authenticate`; the agent does the rest.
    #[wire(untagged, alias = "agent")]
    Agent(AuthMethodAgent),
}

impl AuthMethod {
    /// The method as one to call `authenticate` with. A kind this crate does not know is taken for
    /// such a one if it has an id and a name; a terminal is not.
    ///
    /// ```
    /// use duologue_schema::AuthMethod;
    ///
    /// let old = r#"{"type":"env_var","id":"key","name":"API key","vars":["KEY"]}"#;
    /// let method: AuthMethod = serde_json::from_str(old)?;
    /// assert_eq!(method.as_agent().unwrap().id, "key");
    /// assert_eq!(serde_json::to_string(&method)?, old);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn as_agent(&self) -> Option<AuthMethodAgent> {
        match self {
            AuthMethod::Terminal(_) => None,
            AuthMethod::Agent(agent) => Some(agent.clone()),
            AuthMethod::Unknown(unknown) => unknown.json().parse().ok(),
        }
    }
}

/// Authentication by the agent itself.
#[wire]
pub struct AuthMethodAgent {
    /// Which method.
    pub id: AuthMethodId,
    /// Its name, for a person.
    pub name: String,
    /// What it is.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// Authentication in a terminal: the client runs the agent's program again, with a person at the
/// keyboard, and connects anew once it exits with 0. Only for clients with `auth.terminal`.
#[wire]
pub struct AuthMethodTerminal {
    /// Which method; never passed to `authenticate`.
    pub id: AuthMethodId,
    /// Its name, for a person.
    pub name: String,
    /// What it is.
    #[wire(lenient)]
    pub description: Option<String>,
    /// Arguments to add to the agent's own.
    #[wire(default, null_default)]
    pub args: Vec<String>,
    /// Variables to set on top of the agent's own.
    #[wire(default, null_default)]
    pub env: BTreeMap<String, String>,
}

/// `authenticate`: authenticates by one of the methods the agent offered.
#[wire]
pub struct AuthenticateRequest {
    /// Which method.
    pub method_id: AuthMethodId,
}

/// The answer to `authenticate`.
#[wire]
pub struct AuthenticateResponse {}

/// `logout`: ends the authenticated state. Needs `auth.logout` of the agent.
#[wire]
pub struct LogoutRequest {}

/// The answer to `logout`.
#[wire]
pub struct LogoutResponse {}
