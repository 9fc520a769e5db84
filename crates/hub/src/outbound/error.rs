//! The failures of a request to an address from outside.

use std::io;
use std::time::Duration;

use crate::outbound::RefusedAddress;

/// A failure of a request to an address that came from outside.
///
/// The text shows scheme, host and port, and neither the rest of the address nor the addresses of the name nor anything
/// that the server sent. It can be shown to the client that named the address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundError {
    /// The address is invalid.
    #[error("invalid address: {reason}")]
    Url {
        /// The reason.
        reason: String,
    },
    /// An address of the host is refused, and so the host is.
    #[error("{url} is refused: it has an address that is {reason}; name a host of the public network{}", .reason.setting())]
    Refused {
        /// Scheme, host and port.
        url: String,
        /// The reason.
        reason: RefusedAddress,
    },
    /// The name has more addresses than are checked.
    #[error("{url} has {count} addresses, and the limit is {limit} (`OutboundSettings::addresses`)")]
    Addresses {
        /// Scheme, host and port.
        url: String,
        /// The number of addresses.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The name has no address.
    #[error("{url} has no address; check the name")]
    Resolve {
        /// Scheme, host and port.
        url: String,
        /// The error of the resolver, if there is one.
        #[source]
        error: Option<io::Error>,
    },
    /// No connection could be opened.
    #[error("{url} could not be reached: {}", .error.kind())]
    Connect {
        /// Scheme, host and port.
        url: String,
        /// The error of the last attempt.
        #[source]
        error: io::Error,
    },
    /// TLS failed.
    #[error("TLS with {url} failed; check its certificate")]
    Tls {
        /// Scheme, host and port.
        url: String,
        /// The error of TLS.
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A limit in time was reached.
    #[error("{url} did not answer within {limit:?} (`OutboundSettings::{setting}`)")]
    Timeout {
        /// Scheme, host and port.
        url: String,
        /// The limit.
        limit: Duration,
        /// The name of the setting.
        setting: &'static str,
    },
    /// The head of the response is too large.
    #[error(
        "the head of the response of {url} is over the limit of {limit} bytes or 100 headers (`OutboundSettings::response_head_bytes`)"
    )]
    HeadTooLarge {
        /// Scheme, host and port.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// The status is not that of a body.
    #[error("{url} answered with the status {status}")]
    Status {
        /// Scheme, host and port.
        url: String,
        /// The status.
        status: u16,
    },
    /// The body of the response is too large.
    #[error("the body of the response of {url} is over the limit of {limit} bytes")]
    BodyTooLarge {
        /// Scheme, host and port.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// The connection broke, or the server does not speak HTTP.
    #[error("{url} sent no valid response")]
    Protocol {
        /// Scheme, host and port.
        url: String,
        /// The error of HTTP.
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OutboundError {
    /// Returns true if a repetition cannot succeed, because the address itself is refused.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            OutboundError::Url { .. } | OutboundError::Refused { .. } | OutboundError::Addresses { .. }
        )
    }
}
