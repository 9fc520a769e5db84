//! TLS for a listener.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::server::listeners::accepted_socket;
use crate::server::options::ServerOptions;

/// The certificate and the private key of a server, for [`ServerOptions::tls`]. Clients need TLS 1.3.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use duologue_http::{ServerOptions, ServerTls};
///
/// let mut options = ServerOptions::default();
/// options.token = Some("secret".into());
/// options.tls = Some(ServerTls::from_pem_files("server.crt", "server.key")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads the certificate, followed by those of its issuers, and the key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, has no certificate or no key, or the key is not that of the certificate.
    pub fn from_pem_files(certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Self> {
        let (certificates, key) = (certificates.as_ref(), key.as_ref());
        let chain = read_certificates(certificates)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| invalid(certificates, &error))?;
        Ok(ServerTls(Arc::new(config)))
    }

    /// Asks clients for a certificate that an authority in this file has signed. Their requests have it as a
    /// [`ClientCertificate`](crate::ClientCertificate).
    ///
    /// The other settings of a [`ServerConfig`] are lost, and sessions are not resumed. A client without one is served as before. One with another certificate has no connection. A certificate is checked
    /// when its connection is opened, and not whether it was revoked.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has no certificate of an authority.
    pub fn accept_clients_of(self, authorities: impl AsRef<Path>) -> io::Result<Self> {
        let path = authorities.as_ref();
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|error| invalid(path, &error))?;
        }
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| invalid(path, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| invalid(path, &error))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.0.cert_resolver.clone());
        // A session that is resumed would bring a certificate that is not checked again.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(ServerTls(Arc::new(config)))
    }
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

/// Reads all certificates of a file.
fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| invalid(path, &error))
}

impl From<Arc<ServerConfig>> for ServerTls {
    fn from(config: Arc<ServerConfig>) -> Self {
        ServerTls(config)
    }
}

/// Leaves out the key.
impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}

/// A listener whose sockets have finished the handshake. A slow one does not hold up the others.
pub(crate) struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    /// Ends with the listener.
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, tls: &ServerTls, options: &ServerOptions) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, accepted) = mpsc::channel(1);
        let mut accepting = JoinSet::new();
        let acceptor = TlsAcceptor::from(tls.0.clone());
        accepting.spawn(accept(listener, acceptor, options.clone(), sender));
        Ok(TlsListener { address, accepted, _accepting: accepting })
    }
}

/// Accepts sockets, with at most [`ServerOptions::strangers`] handshakes at a time. A new one ends the oldest.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    options: ServerOptions,
    accepted: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let ServerOptions { strangers, handshake_timeout, refusals, .. } = options;
    let limit = strangers.max(1);
    let mut handshakes = JoinSet::new();
    let mut order = VecDeque::<(AbortHandle, SocketAddr)>::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        let (socket, address) = accepted_socket(|context| listener.poll_accept(context)).await;
        if order.len() >= limit {
            order.retain(|(handshake, _)| !handshake.is_finished());
        }
        if order.len() >= limit
            && let Some((oldest, peer)) = order.pop_front()
        {
            refusals
                .note_connection(peer, "newer TLS handshakes took its place (`ServerOptions::strangers`)");
            oldest.abort();
        }
        let (acceptor, accepted, refusals) = (acceptor.clone(), accepted.clone(), refusals.clone());
        let handshake = handshakes.spawn(async move {
            let _ = socket.set_nodelay(true);
            match timeout(handshake_timeout, acceptor.accept(socket)).await {
                Ok(Ok(stream)) => _ = accepted.send((stream, address)).await,
                Ok(Err(error)) => {
                    refusals.note_connection(address, &format!("the TLS handshake has failed: {error}"));
                }
                Err(_) => {
                    let reason = "the TLS handshake took too long (`ServerOptions::handshake_timeout`)";
                    refusals.note_connection(address, reason);
                }
            }
        });
        order.push_back((handshake, address));
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task that sends them ends with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
