//! The arguments of commands that connect to a server.

use std::path::PathBuf;

use duologue_http::raw::is_loopback;
use duologue_http::{ConnectOptions, RemoteTransport};

use crate::error::Result;
use crate::state_folder;

/// The credentials of a connection to a server.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The file with the token, if not that of the server of this user: `~/.local/state/duologue/token`
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

    /// Returns the options for a connection to this address.
    pub(crate) fn options(&self, url: &str, transport: TransportName) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::default();
        options.transport = transport.into();
        options.bearer_token = match &self.token_file {
            Some(path) => Some(state_folder::read_token(path)?),
            // The server of this user listens on loopback addresses. Others must not receive its token.
            None if !is_loopback(url) => None,
            None => state_folder::of_user()
                .and_then(|folder| state_folder::read_token(&state_folder::token_path(&folder)))
                .ok(),
        };
        #[cfg(feature = "tls")]
        if let Some(path) = &self.ca_file {
            let trusted = options.trust_pem_file(path);
            trusted.map_err(|error| crate::error::Error::Usage(error.to_string()))?;
        }
        Ok(options)
    }
}

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
