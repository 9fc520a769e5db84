//! Authentication.
//!
//! See [Authentication](https://agentclientprotocol.com/protocol/v1/authentication).

use std::borrow::Cow;
use std::collections::BTreeMap;

use duologue_schema_derive::wire;

use crate::AuthMethodId;

/// A way to authenticate that an agent offers.
#[wire(tag = "type")]
pub enum AuthMethod {
    /// The client runs the agent's program in a terminal, and the user logs in there.
    Terminal(Box<AuthMethodTerminal>),
    /// The client calls `authenticate`, and the agent does the rest.
    #[wire(untagged, alias = "agent")]
    Agent(AuthMethodAgent),
}

impl AuthMethod {
    /// The member of `_meta` with which older agents name the command of a login in a terminal, and clients say that they run it.
    pub const TERMINAL_META: &str = "terminal-auth";

    /// Returns the id of the method. Only a method of an unknown kind can lack one.
    #[must_use]
    pub fn id(&self) -> Option<AuthMethodId> {
        match self {
            AuthMethod::Terminal(method) => Some(method.id.clone()),
            AuthMethod::Agent(method) => Some(method.id.clone()),
            AuthMethod::Unknown(unknown) => unknown.text("id").map(AuthMethodId::new),
        }
    }

    /// Returns the name to show to the user. Only a method of an unknown kind can lack one.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match self {
            AuthMethod::Terminal(method) => Some(Cow::Borrowed(&method.name)),
            AuthMethod::Agent(method) => Some(Cow::Borrowed(&method.name)),
            AuthMethod::Unknown(unknown) => unknown.text("name").map(Cow::Owned),
        }
    }

    /// Returns the description to show to the user.
    #[must_use]
    pub fn description(&self) -> Option<Cow<'_, str>> {
        match self {
            AuthMethod::Terminal(method) => method.description.as_deref().map(Cow::Borrowed),
            AuthMethod::Agent(method) => method.description.as_deref().map(Cow::Borrowed),
            AuthMethod::Unknown(unknown) => unknown.text("description").map(Cow::Owned),
        }
    }

    /// Returns the method in the form that `authenticate` accepts.
    ///
    /// A method of an unknown kind counts as such if it has an id and a name. A terminal login does
    /// not, so the result is `None`.
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
    /// The id of the method.
    pub id: AuthMethodId,
    /// The name to show to the user.
    pub name: String,
    /// A description to show to the user.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// Authentication in a terminal.
///
/// The client runs the agent's program again for the user to log in, and reconnects once that
/// exits with 0. Only for clients with `auth.terminal`.
#[wire]
pub struct AuthMethodTerminal {
    /// The id of the method. It is never passed to `authenticate`.
    pub id: AuthMethodId,
    /// The name to show to the user.
    pub name: String,
    /// A description to show to the user.
    #[wire(lenient)]
    pub description: Option<String>,
    /// Arguments to append to those of the agent.
    #[wire(default, null_default)]
    pub args: Vec<String>,
    /// Environment variables to add to those of the agent.
    #[wire(default, null_default)]
    pub env: BTreeMap<String, String>,
}

/// `authenticate`: authenticates by one of the methods the agent offered.
#[wire]
pub struct AuthenticateRequest {
    /// The id of the method.
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
