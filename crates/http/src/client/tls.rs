//! The configuration of TLS for a client.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::error::Error;
use crate::client::options::ConnectOptions;

/// Returns the connector of the options, or one that trusts the certificates of the system.
pub(crate) fn connector(options: &ConnectOptions) -> Result<TlsConnector, Error> {
    if let Some(config) = &options.tls {
        return Ok(config.clone().into());
    }
    Ok(system_tls()?.into())
}

/// Returns a configuration that trusts the certificates of the system. Reading them takes some milliseconds.
///
/// # Errors
///
/// [`Error::Tls`] if there are none.
pub fn system_tls() -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or("there are none".into(), ToString::to_string);
        return Err(Error::Tls(format!("no certificates of this system can be used: {reason}")));
    }
    config(roots)
}

/// Returns a configuration that trusts the certificates in a file.
pub(crate) fn trusting(path: &Path) -> Result<Arc<ClientConfig>, Error> {
    let invalid = |error: &dyn std::fmt::Display| Error::Tls(format!("{}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| invalid(&error))? {
        let certificate = certificate.map_err(|error| invalid(&error))?;
        roots.add(certificate).map_err(|error| invalid(&error))?;
    }
    if roots.is_empty() {
        return Err(invalid(&"it has no certificate"));
    }
    config(roots)
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
