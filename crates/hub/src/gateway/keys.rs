//! The API keys and certificates of principals.

#[cfg(feature = "tls")]
use duologue_http::ClientCertificate;
use duologue_rpc::is_equal_secret;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::gateway::access::{Authenticated, Principal};
use crate::gateway::config::PrincipalConfig;

/// A key by its SHA-256, and its principal.
struct PrincipalKey {
    digest: [u8; 32],
    /// The time after which it is not valid any more, in milliseconds since 1970.
    expires: Option<u64>,
    principal: Principal,
}

impl PrincipalKey {
    /// Returns the key of a principal, unless it has none or a value cannot be read.
    fn read(config: &PrincipalConfig) -> Option<Self> {
        let digest = key_digest(config.key_sha256.as_ref()?.as_str())?;
        let expires = match &config.key_expires {
            Some(text) => Some(key_expiry(text)?),
            None => None,
        };
        Some(PrincipalKey { digest, expires, principal: Principal::of(config) })
    }

    fn is_valid(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The keys and certificates of the configuration.
pub(crate) struct PrincipalKeys {
    all: Vec<PrincipalKey>,
    /// The principals with certificates, and the names in these.
    certificates: Vec<(String, Principal)>,
}

impl PrincipalKeys {
    /// Reads the keys of principals. A principal whose values cannot be read has none.
    pub(crate) fn new(principals: &[PrincipalConfig]) -> Self {
        let certificates =
            principals.iter().filter_map(|config| Some((config.certificate.clone()?, Principal::of(config))));
        PrincipalKeys {
            all: principals.iter().filter_map(PrincipalKey::read).collect(),
            certificates: certificates.collect(),
        }
    }

    /// Returns the principal with an id, if it has a certificate, or its key is valid at a time.
    pub(crate) fn of(&self, id: &str, now: u64) -> Option<&Principal> {
        let valid = self.all.iter().filter(|key| key.is_valid(now)).map(|key| &key.principal);
        let certified = self.certificates.iter().map(|(_, principal)| principal);
        valid.chain(certified).find(|principal| *principal.id == *id)
    }

    /// Returns the principal of a certificate. One with the names of several principals is that of none.
    #[cfg(feature = "tls")]
    pub(crate) fn certified(&self, certificate: &ClientCertificate) -> Option<&Principal> {
        let mut found = self.certificates.iter().filter(|(name, _)| certificate.is_for(name));
        let (_, principal) = found.next()?;
        found.next().is_none().then_some(principal)
    }

    /// Returns the principal of a key at a time, in milliseconds since 1970.
    ///
    /// It compares all keys without a shortcut, so its duration does not depend on the key that was given. An expired key
    /// is not found.
    pub(crate) fn find(&self, given: &[u8], now: u64) -> Option<Authenticated> {
        let digest: [u8; 32] = Sha256::digest(given).into();
        let mut found = None;
        for key in &self.all {
            if is_equal_secret(key.digest, digest) & key.is_valid(now) {
                found = Some(key);
            }
        }
        found.map(|key| Authenticated { principal: key.principal.clone(), expires: key.expires })
    }
}

/// Parses the SHA-256 of a key.
pub(crate) fn key_digest(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Parses the time at which a key expires, and returns it in milliseconds since 1970.
pub(crate) fn key_expiry(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(id: &str, key: &str, expires: Option<&str>) -> PrincipalConfig {
        let digest = Sha256::digest(key).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        PrincipalConfig {
            id: id.to_owned(),
            key_sha256: Some(digest.into()),
            certificate: None,
            key_expires: expires.map(str::to_owned),
            roles: Vec::new(),
            agent: None,
            webhook_secret: None,
        }
    }

    #[test]
    fn a_key_is_found_until_it_expires() {
        let keys = PrincipalKeys::new(&[
            principal("a", "key-a", None),
            principal("b", "key-b", Some("1970-01-01T00:00:01Z")),
            principal("c", "key-c", Some("soon")),
        ]);
        let find =
            |key: &str, now| keys.find(key.as_bytes(), now).map(|found| found.principal.id.to_string());
        assert_eq!(find("key-a", u64::MAX).as_deref(), Some("a"));
        assert_eq!(find("key-b", 999).as_deref(), Some("b"));
        assert_eq!(find("key-b", 1_000), None);
        assert_eq!(find("key-c", 0), None);
        for unknown in ["", "key", "key-a ", "KEY-A"] {
            assert_eq!(find(unknown, 0), None);
        }
    }

    #[test]
    fn a_time_of_expiry_has_an_offset() {
        assert_eq!(key_expiry("2027-01-01T02:00:00+02:00"), key_expiry("2027-01-01T00:00:00Z"));
        for text in ["", "2027-01-01", "2027-01-01T00:00:00", "tomorrow", "1969-12-31T00:00:00Z"] {
            assert_eq!(key_expiry(text), None, "{text}");
        }
    }
}
