//! The state of authentication: `auth/status` and `auth/status_update`.

use duologue_schema_derive::wire;

/// The capability to handle `auth/status`, and to send `auth/status_update`.
#[wire]
pub struct AuthStatusCapabilities {}

/// The params of `auth/status`, which returns the state of authentication.
#[wire]
pub struct AuthStatusRequest {}

/// The answer to `auth/status`.
#[wire]
pub struct AuthStatusResponse {
    /// The state.
    pub state: AuthState,
    /// The accounts that the agent has configured.
    #[wire(default, skip_invalid)]
    pub accounts: Vec<AuthAccount>,
}

/// The params of `auth/status_update`: the state of authentication has changed.
#[wire]
pub struct AuthStatusUpdateNotification {
    /// The state.
    pub state: AuthState,
    /// The accounts that the agent has configured.
    #[wire(default, skip_invalid)]
    pub accounts: Vec<AuthAccount>,
}

/// The state of authentication.
#[wire(open)]
pub enum AuthState {
    /// The agent has what it needs.
    Authenticated,
    /// The user has to log in.
    Unauthenticated,
    /// The agent needs no authentication.
    NotRequired,
    /// The agent cannot tell.
    #[wire(rename = "unknown")]
    Undetermined,
}

/// An account or key of the user, to show. No field identifies the account.
#[wire]
pub struct AuthAccount {
    /// The name of the account.
    pub label: String,
    /// A short text to show beside the label, such as the source of a key. It has no secrets.
    #[wire(lenient)]
    pub description: Option<String>,
    /// True if the agent uses the account. Several can be active.
    #[wire(lenient)]
    pub active: Option<bool>,
    /// The name of the user.
    #[wire(lenient)]
    pub name: Option<String>,
    /// The e-mail address of the user.
    #[wire(lenient)]
    pub email: Option<String>,
    /// The organization of the account.
    #[wire(lenient)]
    pub organization: Option<String>,
}
