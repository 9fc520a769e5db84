//! The arguments of commands that connect to a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use duologue_http::{ConnectOptions, RemoteTransport, SecretText};

#[cfg(feature = "tls")]
use crate::error::Error;
use crate::error::Result;
use crate::state_folder;

/// The credentials of a connection to a server.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The file with the token of the server. It is not needed for the running server of this user, at the address that it has printed
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: TlsArgs,
}

/// The files of an encrypted connection.
#[cfg(feature = "tls")]
#[derive(clap::Args)]
pub(crate) struct TlsArgs {
    /// The file with the certificates to trust for https and wss, instead of those of the system
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The file with the certificate of this client, followed by those of its issuers, for a server that knows it
    #[arg(long, global = true, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The file with the private key of that certificate, which no other user can read
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

#[cfg(feature = "tls")]
impl TlsArgs {
    fn apply(&self, url: Option<&str>, options: &mut ConnectOptions) -> Result<()> {
        if url.is_none() && (self.ca_file.is_some() || self.client_cert.is_some()) {
            return Err(Error::Usage("`--ca-file` and `--client-cert` need the address of a server".into()));
        }
        let invalid = |error: duologue_http::Error| Error::Usage(error.to_string());
        if let Some(path) = &self.ca_file {
            options.trust_pem_file(path).map_err(invalid)?;
        }
        if let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) {
            state_folder::check_own_key(key)?;
            options.identify_pem_files(certificate, key).map_err(invalid)?;
        }
        Ok(())
    }
}

impl ServerArgs {
    /// Creates the credentials from those of another command line.
    #[cfg(feature = "serve")]
    pub(crate) fn new(token_file: Option<PathBuf>, #[cfg(feature = "tls")] tls: TlsArgs) -> Self {
        ServerArgs {
            token_file,
            #[cfg(feature = "tls")]
            tls,
        }
    }

    /// Returns true if the command line names the token.
    pub(crate) fn has_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// Returns the address of the server and the options for a connection. Without an address it is the server of `data`,
    /// or of this user.
    pub(crate) fn target(
        &self,
        url: Option<&str>,
        data: Option<&Path>,
        transport: TransportName,
    ) -> Result<(String, ConnectOptions)> {
        let mut options = ConnectOptions::default();
        options.transport = transport.into();
        #[cfg(feature = "tls")]
        self.tls.apply(url, &mut options)?;
        let folder = data.map_or_else(state_folder::of_user, |folder| Ok(folder.to_owned()));
        let url = match url {
            Some(url) => {
                options.bearer_token = match &self.token_file {
                    Some(path) => Some(state_folder::read_token(path)?),
                    // Only a server of this user may receive its token.
                    None => folder.ok().and_then(|folder| own_token(&folder, url, &mut options)),
                };
                url.to_owned()
            }
            #[cfg(unix)]
            None => {
                options.socket = Some(state_folder::socket_path(&folder?));
                // A key is that of another principal than the user of the socket.
                options.bearer_token =
                    self.token_file.as_deref().map(state_folder::read_token).transpose()?;
                LOCAL_URL.to_owned()
            }
            #[cfg(not(unix))]
            None => {
                let folder = folder?;
                let url = state_folder::server_url(&folder)?;
                options.bearer_token = own_token(&folder, &url, &mut options);
                url
            }
        };
        Ok((url, options))
    }
}

/// Returns the token of the server of `folder`, if it runs and is at this address. A server that is started later gets it
/// too. A server that had it has to run at each connection: after it was killed another program may listen there.
fn own_token(folder: &Path, url: &str, options: &mut ConnectOptions) -> Option<SecretText> {
    let token = state_folder::token_for(folder, url).ok();
    let (folder, url, was_own) = (folder.to_owned(), url.to_owned(), AtomicBool::new(token.is_some()));
    options.check_server = Some(Arc::new(move || match state_folder::token_for(&folder, &url) {
        Ok(token) => {
            was_own.store(true, Relaxed);
            Ok(Some(token))
        }
        Err(error) if was_own.load(Relaxed) => Err(error),
        Err(_) => Ok(None),
    }));
    token
}

/// Returns the address of an agent of a hub. An address without a path is that of the hub.
pub(crate) fn agent_url(url: &str, agent: &str) -> String {
    let url = url.trim_end_matches('/');
    let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    format!("{url}{}/{agent}", if has_path { "" } else { "/acp" })
}

/// Returns the text of an error of a connection, with the option that may help.
pub(crate) fn explained(error: &duologue_http::Error, options: &ConnectOptions) -> String {
    let remedy = match error {
        duologue_http::Error::Refused { status: 401, .. } if options.bearer_token.is_none() => {
            "; no token was sent: name the file of the server's token with `--token-file`"
        }
        duologue_http::Error::Refused { status: 401, .. } => {
            "; the token is not that of this server: name the file of its token with `--token-file`"
        }
        duologue_http::Error::Refused { status: 403, .. } => {
            "; name the server with an address that it allows, such as 127.0.0.1"
        }
        duologue_http::Error::Refused { status: 404, .. } => {
            "; the path of a server is `/acp`, and that of an agent of a hub `/acp/ID` (`--agent`; `duologue agents` lists them)"
        }
        #[cfg(unix)]
        duologue_http::Error::Unreachable { .. } if options.socket.is_some() => {
            "; start a server with `duologue serve`, or name its folder with `--data` or its address"
        }
        duologue_http::Error::Tls(reason) if reason.contains("CaUsedAsEndEntity") => {
            "; the certificate is one of an authority: create that of the server with basicConstraints=CA:FALSE"
        }
        duologue_http::Error::Tls(reason) if reason.contains("UnknownIssuer") => {
            "; no trusted authority has signed the certificate: name the file of that of the server with `--ca-file`"
        }
        duologue_http::Error::Tls(reason)
            if reason.to_ascii_lowercase().replace(' ', "").contains("notvalidforname") =>
        {
            "; name the server as its certificate does, or create one with this name (subjectAltName)"
        }
        duologue_http::Error::Tls(reason) if reason.contains("InvalidContentType") => {
            "; the server does not encrypt: use an address with http:// or ws://"
        }
        duologue_http::Error::Tls(_) => "; check the certificate of the server, and `--ca-file`",
        _ => "",
    };
    match error {
        duologue_http::Error::GaveUp { elapsed, last, .. } => {
            let seconds = elapsed.as_secs();
            format!("the connection was lost, and the server was not reached within {seconds} s: {last}")
        }
        duologue_http::Error::Timeout { address, after } => {
            format!("no connection to {address} within {} s", after.as_secs())
        }
        _ => format!("{error}{remedy}"),
    }
}

/// The address in requests over the socket in the data folder.
#[cfg(unix)]
const LOCAL_URL: &str = "http://localhost/acp";

/// The name of a transport on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum TransportName {
    Auto,
    Ws,
    Sse,
}

impl From<TransportName> for RemoteTransport {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Auto => RemoteTransport::Auto,
            TransportName::Ws => RemoteTransport::WebSocket,
            TransportName::Sse => RemoteTransport::Events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_below_the_path_of_its_hub() {
        for (url, expected) in [
            ("http://localhost/acp", "http://localhost/acp/writer"),
            ("http://127.0.0.1:8931", "http://127.0.0.1:8931/acp/writer"),
            ("http://127.0.0.1:8931/", "http://127.0.0.1:8931/acp/writer"),
            ("https://[::1]:8931/hub/acp/", "https://[::1]:8931/hub/acp/writer"),
        ] {
            assert_eq!(agent_url(url, "writer"), expected);
        }
    }

    #[cfg(all(unix, feature = "serve"))]
    #[test]
    fn a_server_that_is_started_later_gets_its_token() {
        let base = tempfile::tempdir().unwrap();
        let (url, at) = ("http://127.0.0.1:8931/acp", "127.0.0.1:8931".parse().unwrap());
        let token = state_folder::token(base.path()).unwrap();
        let mut options = ConnectOptions::default();
        assert_eq!(own_token(base.path(), url, &mut options), None);
        let check = options.check_server.expect("a check");
        assert_eq!(check().unwrap(), None);
        let socket = state_folder::socket_path(base.path());
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let published = state_folder::PublishedAddress::write(base.path(), "http", at).unwrap();
        assert_eq!(check().unwrap(), Some(token));
        drop((listener, published));
        check().expect_err("another program may listen there");
    }

    #[test]
    fn an_error_says_what_to_do() {
        let refused = |status| duologue_http::Error::Refused { status, message: "no".into() };
        let tls = |reason: &str| duologue_http::Error::Tls(reason.into());
        for (error, remedy) in [
            (refused(401), "--token-file"),
            (refused(403), "127.0.0.1"),
            (refused(404), "/acp/ID"),
            (tls("invalid peer certificate: UnknownIssuer"), "--ca-file"),
            (tls("invalid peer certificate: NotValidForNameContext"), "subjectAltName"),
            (tls("invalid peer certificate: certificate not valid for name \"a\""), "subjectAltName"),
            (tls("invalid peer certificate: Expired"), "certificate of the server"),
            (tls("received corrupt message of type InvalidContentType"), "http://"),
        ] {
            let text = explained(&error, &ConnectOptions::default());
            assert!(text.contains(remedy), "{text}");
        }
        let minute = std::time::Duration::from_secs(60);
        for error in [
            duologue_http::Error::GaveUp { attempts: 7, elapsed: minute, last: "refused".into() },
            duologue_http::Error::Timeout { address: "host".into(), after: minute },
        ] {
            let text = explained(&error, &ConnectOptions::default());
            assert!(text.contains("within 60 s") && !text.contains("ConnectOptions"), "{text}");
        }
    }
}
