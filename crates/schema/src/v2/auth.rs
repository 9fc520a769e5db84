//! Authentication.

use duologue_schema_derive::wire;

use super::EnvVariable;
use crate::AuthMethodId;

/// A way to authenticate that an agent offers.
#[wire(tag = "type", open)]
pub enum AuthMethod {
    /// The client runs the agent's program in a terminal, and the user logs in there.
    Terminal(Box<AuthMethodTerminal>),
    /// The client calls `auth/login`, and the agent does the rest.
    Agent(AuthMethodAgent),
}

/// Authentication by the agent itself.
#[wire]
pub struct AuthMethodAgent {
    /// The id of the method.
    pub method_id: AuthMethodId,
    /// The name to show to the user.
    pub name: String,
    /// A description to show to the user.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// Authentication in a terminal. Only for clients with `auth.terminal`.
#[wire]
pub struct AuthMethodTerminal {
    /// The id of the method. It is never passed to `auth/login`.
    pub method_id: AuthMethodId,
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
    pub env: Vec<EnvVariable>,
}

/// The params of `auth/login`, which authenticates by one of the methods that the agent offered.
#[wire]
pub struct LoginAuthRequest {
    /// The id of the method.
    pub method_id: AuthMethodId,
}

/// The answer to `auth/login`.
#[wire]
pub struct LoginAuthResponse {}

/// The params of `auth/logout`, which ends the authenticated state.
#[wire]
pub struct LogoutAuthRequest {}

/// The answer to `auth/logout`.
#[wire]
pub struct LogoutAuthResponse {}
