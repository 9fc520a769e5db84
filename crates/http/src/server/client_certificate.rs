//! The certificate of a client, which a server knows before the first request of its connection.

use axum::http::Extensions;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A socket whose peer may be known.
pub(super) trait KnownPeer {
    /// Adds what is known of the peer to the extensions of its requests.
    fn introduce(&self, requests: &mut Extensions) {
        let _ = requests;
    }
}

impl KnownPeer for TcpStream {}

#[cfg(unix)]
impl KnownPeer for UnixStream {}

#[cfg(feature = "tls")]
mod tls {
    use std::sync::Arc;

    use axum::http::Extensions;
    use tokio::net::TcpStream;
    use tokio_rustls::server::TlsStream;
    use webpki::EndEntityCert;

    use super::KnownPeer;

    /// The names in the certificate of a client, as an extension of its requests. An authority of
    /// [`ServerTls::accept_clients_of`](crate::ServerTls::accept_clients_of) has signed it, and it was valid when the
    /// connection was opened.
    #[derive(Clone, Debug)]
    pub struct ClientCertificate(Arc<[Box<str>]>);

    impl ClientCertificate {
        /// Returns true for a name in the certificate: a DNS name or a URI among its subject alternative names.
        ///
        /// A wildcard is the name of nobody. Case counts in a URI alone.
        #[must_use]
        pub fn is_for(&self, name: &str) -> bool {
            let is_uri = name.contains(':');
            let is_name = |own: &str| own == name || (!is_uri && own.eq_ignore_ascii_case(name));
            !name.contains('*') && self.0.iter().any(|own| is_name(own))
        }

        /// Returns the names in the certificate.
        pub fn names(&self) -> impl Iterator<Item = &str> {
            self.0.iter().map(|name| &**name)
        }
    }

    impl KnownPeer for TlsStream<TcpStream> {
        fn introduce(&self, requests: &mut Extensions) {
            let chain = self.get_ref().1.peer_certificates().unwrap_or_default();
            let Some(Ok(certificate)) = chain.first().map(EndEntityCert::try_from) else { return };
            let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
            requests.insert(ClientCertificate(names.map(Box::from).collect()));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn case_counts_in_uris_alone() {
            let names = ["Alice.example.org", "spiffe://x/Team/carol", "*.example.com"];
            let certificate = ClientCertificate(names.map(Box::from).into());
            assert!(certificate.is_for("alice.example.org") && certificate.is_for("spiffe://x/Team/carol"));
            for other in ["spiffe://x/team/carol", "example.org", "*.example.com", "a.example.com", ""] {
                assert!(!certificate.is_for(other), "{other}");
            }
        }
    }
}

#[cfg(feature = "tls")]
pub use tls::ClientCertificate;
