//! The errors that clients of a gateway receive.

use std::borrow::Cow;

use duologue_store::Error as StoreError;

use crate::gateway::routing::OPERATOR;

/// Declares the codes, each with its text, its status and whether the same request can succeed later.
macro_rules! refusal_codes {
    ($($(#[$doc:meta])* $code:ident = ($text:literal, $status:literal, $is_retryable:literal);)*) => {
        /// The kind of a [`Refusal`]. Programs switch on its text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RefusalCode {
            $($(#[$doc])* $code,)*
        }

        impl RefusalCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(RefusalCode::$code,)*];

            const fn row(self) -> (&'static str, u16, bool) {
                match self {
                    $(RefusalCode::$code => ($text, $status, $is_retryable),)*
                }
            }
        }
    };
}

refusal_codes! {
    /// A part of the request is missing or has a wrong form.
    InvalidParameter = ("invalid_parameter", 400, false);
    /// The version of the interface is not supported.
    UnsupportedVersion = ("unsupported_version", 400, false);
    /// The request has no valid key or token.
    Unauthenticated = ("unauthenticated", 401, false);
    /// The principal may not do this.
    NotAuthorized = ("not_authorized", 403, false);
    /// It does not exist, or the principal may not know of it.
    NotFound = ("not_found", 404, false);
    /// The path has no such method.
    MethodNotAllowed = ("method_not_allowed", 405, false);
    /// The same id was used with another content, or the record has changed in between.
    Conflict = ("conflict", 409, false);
    /// A request with the idempotency key still runs.
    KeyInUse = ("key_in_use", 409, true);
    /// The idempotency key belongs to a request with another content.
    KeyReused = ("key_reused", 422, false);
    /// It has ended already in another way.
    AlreadyFinished = ("already_finished", 409, false);
    /// The records of a log are not there any more.
    Expired = ("expired", 410, false);
    /// The body is too large.
    TooLarge = ("too_large", 413, false);
    /// The body has a type that the route does not accept.
    UnsupportedMediaType = ("unsupported_media_type", 415, false);
    /// The configuration of the server has no setting that the work needs.
    NotConfigured = ("not_configured", 409, false);
    /// A limit is reached.
    Overloaded = ("overloaded", 429, true);
    /// Nobody is there to take it now.
    Unreachable = ("unreachable", 503, true);
    /// It took too long.
    Timeout = ("timeout", 504, true);
    /// The server has failed.
    Internal = ("internal", 500, true);
}

impl RefusalCode {
    /// Returns the text of the code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the status of the HTTP response.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().1
    }

    /// Returns true if the same request can succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        self.row().2
    }
}

/// The refusal of a request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Refusal {
    /// The kind.
    pub code: RefusalCode,
    /// The failure, the value, the limit and the remedy.
    pub message: Cow<'static, str>,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(code: RefusalCode, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal { code, message: message.into() }
    }

    /// Creates the refusal of something that does not exist or belongs to somebody else.
    pub(crate) fn not_found(kind: &'static str) -> Self {
        Refusal::new(
            RefusalCode::NotFound,
            format!("no such {kind}, or it is not yours; check its id and your permissions"),
        )
    }

    /// Creates the refusal of a task that no worker would ever take.
    pub(crate) fn no_tasks(agent: &str) -> Self {
        let why = format!(
            "the agent {agent:?} takes messages alone: it is neither in the configuration of the server nor attached; send a message, or attach it"
        );
        Refusal::new(RefusalCode::Conflict, why)
    }

    /// Creates the refusal of a task for the inbox of an administrator.
    pub(crate) fn no_tasks_of_operator() -> Self {
        let why = format!(
            "the agent {OPERATOR:?} takes messages alone: it is the inbox of an administrator; send a message, or name another agent"
        );
        Refusal::new(RefusalCode::Conflict, why)
    }

    /// Creates the refusal of work for an agent of the configuration without a folder.
    pub(crate) fn no_folder(agent: &str) -> Self {
        let why = format!(
            "the agent {agent:?} has no folder for messages and tasks; set `agents.cwd` in the configuration of the server"
        );
        Refusal::new(RefusalCode::NotConfigured, why)
    }

    /// Creates the refusal of a part of a request.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(RefusalCode::InvalidParameter, message)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::TooLong { .. } | StoreError::InvalidJson { .. } => RefusalCode::InvalidParameter,
            StoreError::LimitReached { .. }
            | StoreError::BytesReached { .. }
            | StoreError::DiskReserve { .. } => RefusalCode::Overloaded,
            StoreError::VersionLost { .. }
            | StoreError::LeaseLost { .. }
            | StoreError::RecordConflict { .. }
            | StoreError::WrongState { .. } => RefusalCode::Conflict,
            StoreError::KeyReused { .. } => RefusalCode::KeyReused,
            StoreError::NoRecord { .. } => RefusalCode::NotFound,
            _ => {
                // Paths and the texts of the database are for the operator alone.
                tracing::error!(%error, "the store failed");
                return Refusal::new(
                    RefusalCode::Internal,
                    "the store of the server failed; retry later, the log of the server has the reason",
                );
            }
        };
        Refusal::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_remedy() {
        let record = || "the task \"t\"".to_owned();
        let refusals = [
            Refusal::not_found("task"),
            Refusal::no_tasks("writer"),
            Refusal::no_tasks_of_operator(),
            Refusal::no_folder("writer"),
            StoreError::TooLong { field: "task id", size: 200, limit: 128, setting: "StoreSettings::a" }
                .into(),
            StoreError::LimitReached { list: record(), limit: 1, setting: "StoreSettings::a" }.into(),
            StoreError::VersionLost { record: record(), expected: 1, found: 2 }.into(),
            StoreError::LeaseLost { record: record() }.into(),
            StoreError::RecordConflict { record: record() }.into(),
            StoreError::WrongState { record: record(), state: "failed".to_owned() }.into(),
            StoreError::KeyReused { key: "k".to_owned() }.into(),
            StoreError::NoRecord { record: record() }.into(),
            StoreError::BadIndexCursor { cursor: "c".to_owned() }.into(),
            StoreError::BytesReached { principal: "alice".to_owned(), limit: 1 }.into(),
            StoreError::DiskReserve { free: 1, reserved: 2, setting: "`StoreSettings::a`" }.into(),
        ];
        for refusal in refusals {
            let remedies = ["check", "send", "set", "see", "retry", "read", "claim", "use", "remove"];
            let has_remedy = remedies.iter().any(|verb| refusal.message.contains(&format!("; {verb} ")));
            assert!(has_remedy, "{refusal}");
            let has_limit = matches!(refusal.code, RefusalCode::Overloaded);
            assert!(!has_limit || refusal.message.contains("`StoreSettings::"), "{refusal}");
        }
    }
}
