//! A provider of tokens and its current keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::TokenFault;
use super::keys::{self, TokenKey};
use crate::gateway::RefusalCode;
use crate::gateway::config::TokenProvider;
use crate::outbound::{OutboundClient, OutboundSettings};

/// The time after which keys are read again.
const REFRESH: Duration = Duration::from_secs(3600);
/// The shortest time between two reads, also if tokens name keys that are not known.
const PAUSE: Duration = Duration::from_secs(60);
/// The time for which keys are used if the provider cannot be reached.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The longest set of keys, in bytes.
const SET_BYTES: usize = 256 * 1024;

/// A provider and its keys.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) settings: TokenProvider,
    keys: Mutex<Known>,
    /// Wakes the reader of the keys: a token is signed with one that is not known.
    missing: Notify,
}

#[derive(Debug, Default)]
struct Known {
    keys: Arc<[TokenKey]>,
    read: Option<Instant>,
}

impl Provider {
    pub(super) fn new(settings: TokenProvider) -> Self {
        Provider { settings, keys: Mutex::default(), missing: Notify::new() }
    }

    /// Checks a signature.
    pub(super) fn verify(
        &self,
        algorithm: &str,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenFault> {
        if !["RS256", "ES256", "EdDSA"].contains(&algorithm) {
            return Err("the algorithm of the token is not RS256, ES256 or EdDSA".into());
        }
        let keys = {
            let known = self.keys.lock_unpoisoned();
            match known.read {
                Some(read) if read.elapsed() < KEPT => known.keys.clone(),
                _ => {
                    let reason = "the keys of the provider have not been read; retry later";
                    return Err(TokenFault { code: RefusalCode::Unreachable, reason });
                }
            }
        };
        let mut fitting = keys.iter().filter(|key| key.fits(algorithm, id));
        let Some(key) = fitting.next() else {
            self.missing.notify_one();
            return Err("the key of the token is not known; new keys are read within a minute".into());
        };
        // Trying all keys would cost an attacker's request more than it should.
        if fitting.next().is_some() {
            return Err("several keys of the provider fit; the token has to name one (`kid`)".into());
        }
        if key.verifies(message, signature) {
            return Ok(());
        }
        // A provider can replace a key without another id, or without any.
        self.missing.notify_one();
        Err("the signature of the token is wrong; new keys are read within a minute".into())
    }
}

/// Keeps the keys of a provider.
pub(crate) struct KeyReader {
    provider: Arc<Provider>,
    client: OutboundClient,
}

impl KeyReader {
    pub(super) fn new(provider: Arc<Provider>) -> Self {
        // The address is that of the configuration, and the provider may be a server of the same network.
        let settings = OutboundSettings { allow_all: true, ..OutboundSettings::default() };
        KeyReader { provider, client: OutboundClient::new(settings) }
    }

    /// Reads the keys, again after an hour, and a minute after a failure. A token that is not signed with a known key is a
    /// reason to read them, at most once a minute.
    pub(crate) async fn run(self) {
        loop {
            let begun = Instant::now();
            let next = if self.read().await { REFRESH } else { PAUSE };
            sleep_until(begun + PAUSE).await;
            _ = timeout_at(begun + next, self.provider.missing.notified()).await;
        }
    }

    async fn read(&self) -> bool {
        let settings = &self.provider.settings;
        let read = self.client.get(&settings.keys_url, SET_BYTES).await;
        let read = read.map_err(|error| error.to_string()).and_then(|json| keys::read(&json));
        match read {
            Ok(keys) => {
                if keys.is_empty() {
                    let why = "no token of the provider counts: its set has no key for RS256, ES256 or EdDSA";
                    tracing::warn!(provider = settings.name, "{why}");
                }
                let known = Known { keys: keys.into(), read: Some(Instant::now()) };
                *self.provider.keys.lock_unpoisoned() = known;
                true
            }
            Err(error) => {
                tracing::warn!(provider = settings.name, %error, "the keys of a provider of tokens were not read");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn keys_that_a_provider_replaces_or_takes_back_do_not_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let settings =
            format!("name = \"corp\"\nissuer = \"i\"\naudience = \"a\"\nkeys_url = \"http://{address}/\"");
        let reader = KeyReader::new(Arc::new(Provider::new(toml::from_str(&settings).unwrap())));
        let publish = async |set: &str| {
            let answer = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                _ = socket.read(&mut [0; 4096]).await.unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{set}", set.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            };
            assert!(tokio::join!(reader.read(), answer).0);
            let refused = reader.provider.verify("EdDSA", None, b"message", &[0; 64]).unwrap_err().reason;
            // Either way the keys are read again, because the provider can have others now.
            assert!(reader.provider.missing.notified().now_or_never().is_some(), "{refused}");
            refused
        };
        let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let refused = publish(&format!(r#"{{"keys":[{key}]}}"#)).await;
        assert!(refused.starts_with("the signature of the token is wrong"), "{refused}");
        let refused = publish(r#"{"keys":[]}"#).await;
        assert!(refused.starts_with("the key of the token is not known"), "{refused}");
    }
}
