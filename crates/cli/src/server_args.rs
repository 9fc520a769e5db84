//! The arguments of commands that connect to a server.

use std::path::{Path, PathBuf};

use duologue_http::{ConnectOptions, RemoteTransport};

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
    /// The file with the certificates to trust for https and wss, instead of those of the system
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Creates the credentials from the files of another command line.
    #[cfg(feature = "serve")]
    pub(crate) fn new(token_file: Option<PathBuf>, #[cfg(feature = "tls")] ca_file: Option<PathBuf>) -> Self {
        ServerArgs {
            token_file,
            #[cfg(feature = "tls")]
            ca_file,
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
        let folder = data.map_or_else(state_folder::of_user, |folder| Ok(folder.to_owned()));
        let url = match url {
            Some(url) => {
                options.bearer_token = match &self.token_file {
                    Some(path) => Some(state_folder::read_token(path)?),
                    // Only a server of this user may receive its token.
                    None => folder.ok().and_then(|folder| state_folder::token_for(&folder, url)),
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
                options.bearer_token = state_folder::token_for(&folder, &url);
                url
            }
        };
        #[cfg(feature = "tls")]
        if let Some(path) = &self.ca_file {
            let trusted = options.trust_pem_file(path);
            trusted.map_err(|error| Error::Usage(error.to_string()))?;
        }
        Ok((url, options))
    }
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
        #[cfg(unix)]
        duologue_http::Error::Unreachable { .. } if options.socket.is_some() => {
            "; start a server with `duologue serve`, or name the address of one"
        }
        duologue_http::Error::Tls(reason) if reason.contains("CaUsedAsEndEntity") => {
            "; the certificate is one of an authority: create that of the server with basicConstraints=CA:FALSE"
        }
        _ => "",
    };
    format!("{error}{remedy}")
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
