//! The configuration of TLS for a client.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
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
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| invalid(path, &error))?;
    }
    config(roots)
}

/// Returns a configuration that shows the certificate of two files to servers that ask for one.
pub(crate) fn identified(
    config: Arc<ClientConfig>,
    certificates: &Path,
    key: &Path,
) -> Result<Arc<ClientConfig>, Error> {
    let chain = read_certificates(certificates)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(key, &error))?;
    let identity = CertifiedKey::from_der(chain, private, &default_provider())
        .map_err(|error| invalid(certificates, &error))?;
    let mut config = Arc::unwrap_or_clone(config);
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
    Ok(Arc::new(config))
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("{}: {error}", path.display()))
}

/// Reads all certificates of a file that has at least one.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| invalid(path, &error))?;
    if certificates.is_empty() {
        return Err(invalid(path, &"it has no certificate"));
    }
    Ok(certificates)
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
