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
    /// Wakes the reader of the keys: a token names one that is not known.
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
            Ok(())
        } else {
            Err("the signature of the token is wrong".into())
        }
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

    /// Reads the keys, again after an hour, and a minute after a failure. A token with an unknown key is a reason to read
    /// them, at most once a minute.
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
