//! JSON Web Tokens of a provider, in the place of keys: RFC 7519, signed as in RFC 7515.
//!
//! Only signatures with public keys are accepted: `RS256`, `ES256` and `EdDSA` (Ed25519). The keys are those that the provider
//! publishes (RFC 7517). A key counts for its own algorithm alone, whatever a token says.

mod keys;
mod provider;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use self::provider::KeyReader;
use self::provider::Provider;
use crate::gateway::RefusalCode;
use crate::gateway::access::{ADMIN, Authenticated, Principal};
use crate::gateway::config::{TokenProvider, is_principal_id};

/// The longest token, in bytes.
const TOKEN_BYTES: usize = 8 * 1024;
/// The difference between the clocks of the provider and the gateway that is accepted, in seconds.
const LEEWAY: f64 = 60.0;
/// The most roles that a token gives.
const ROLES: usize = 32;

/// The reason for which a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenFault {
    pub(crate) code: RefusalCode,
    pub(crate) reason: &'static str,
}

impl From<&'static str> for TokenFault {
    fn from(reason: &'static str) -> Self {
        TokenFault { code: RefusalCode::Unauthenticated, reason }
    }
}

/// The providers whose tokens a gateway accepts.
#[derive(Debug, Default)]
pub(crate) struct TokenProviders(Vec<Arc<Provider>>);

/// The header of a token.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that the reader has to know. None is known.
    #[serde(default)]
    crit: Option<Value>,
}

/// The claims of a token.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    /// Seconds since 1970.
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl TokenProviders {
    pub(crate) fn new(providers: &[TokenProvider]) -> Self {
        TokenProviders(providers.iter().map(|provider| Arc::new(Provider::new(provider.clone()))).collect())
    }

    /// Returns a task for each provider that keeps its keys. It never ends.
    pub(crate) fn readers(&self) -> impl Iterator<Item = KeyReader> {
        self.0.iter().map(|provider| KeyReader::new(provider.clone()))
    }

    /// Returns true if a credential has the form of a token and there is a provider.
    pub(crate) fn is_token(&self, credential: &[u8]) -> bool {
        !self.0.is_empty() && credential.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// Returns the principal of a token. `now` is in milliseconds since 1970.
    pub(crate) fn verify(&self, token: &[u8], now: u64) -> Result<Authenticated, TokenFault> {
        if token.len() > TOKEN_BYTES {
            return Err("the token is longer than 8 KiB".into());
        }
        let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(place, _)| place);
        let (Some(first), Some(second), None) = (dots.next(), dots.next(), dots.next()) else {
            return Err("the token does not have three parts".into());
        };
        let (signed, signature) = (&token[..second], &token[second + 1..]);
        let header: Header = part(&token[..first])?;
        let claims: Claims = part(&token[first + 1..second])?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the signature is not base64url")?;
        if header.crit.is_some() {
            return Err("the token has `crit`, whose extensions are not supported".into());
        }
        // Until the signature is checked, this is what the sender says.
        let provider = self.0.iter().find(|provider| provider.settings.issuer == claims.iss);
        let provider = provider.ok_or("the issuer of the token is not known here")?;
        provider.verify(&header.alg, header.kid.as_deref(), signed, &signature)?;
        // A number of seconds that does not fit is far away.
        let expires = Some((claims.exp.max(0.0) * 1000.0) as u64);
        Ok(Authenticated { principal: claims.principal(&provider.settings, now)?, expires })
    }
}

impl Claims {
    fn principal(self, provider: &TokenProvider, now: u64) -> Result<Principal, &'static str> {
        let now = now as f64 / 1000.0;
        // JSON has no numbers that are not comparable.
        if self.exp + LEEWAY <= now {
            return Err("the token has expired");
        }
        if self.nbf.is_some_and(|from| from - LEEWAY > now) {
            return Err("the token is not valid yet");
        }
        let is_for_us = match &self.aud {
            Audience::One(one) => *one == provider.audience,
            Audience::Several(several) => several.contains(&provider.audience),
        };
        if !is_for_us {
            return Err("the token is for another audience");
        }
        let id = format!("{}/{}", provider.name, self.sub);
        if self.sub.is_empty() || !is_principal_id(&id) {
            return Err(
                "the subject of the token is empty, has control or invisible characters, or is too long (128 bytes with the name of the provider)",
            );
        }
        let mut roles = provider.roles.clone();
        if let Some(claim) = provider.roles_claim.as_ref().and_then(|name| self.others.get(name)) {
            // A provider gives names to groups for many purposes. It makes nobody an administrator by chance.
            roles.extend(names(claim).filter(|role| *role != ADMIN).take(ROLES).map(str::to_owned));
        }
        Ok(Principal { id: id.into(), roles, agent: None })
    }
}

/// Reads a part of a token: JSON in base64url.
fn part<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, &'static str> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| "a part of the token is not base64url")?;
    serde_json::from_slice(&json).map_err(|_| "the header or the claims of the token have a wrong form; `iss`, `sub`, `aud` and `exp` are needed")
}

/// Returns the names of a claim: an array of strings, or one string with spaces between them.
fn names(claim: &Value) -> impl Iterator<Item = &str> {
    let array = claim.as_array().map(Vec::as_slice).unwrap_or_default();
    let words = claim.as_str().unwrap_or_default().split_ascii_whitespace();
    array.iter().filter_map(Value::as_str).chain(words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn provider() -> TokenProvider {
        toml::from_str(
            r#"
            name = "corp"
            issuer = "https://login.example"
            audience = "hub"
            keys_url = "https://login.example/keys"
            roles = ["user"]
            roles_claim = "groups"
            "#,
        )
        .unwrap()
    }

    fn principal(change: Value) -> Result<Principal, &'static str> {
        let mut claims = json!({
            "iss": "https://login.example", "sub": "ada", "aud": ["other", "hub"], "exp": 1_800_000_100,
            "groups": ["writers", "admin"],
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let claims: Claims = serde_json::from_value(claims).map_err(|_| "form")?;
        claims.principal(&provider(), NOW)
    }

    #[test]
    fn claims_name_the_principal_and_its_roles() {
        let ada = principal(json!({})).unwrap();
        assert_eq!(&*ada.id, "corp/ada");
        assert_eq!(ada.roles, ["user", "writers"], "no token makes an administrator");
        let ada = principal(json!({"aud": "hub", "groups": "a b"})).unwrap();
        assert_eq!(ada.roles, ["user", "a", "b"]);
    }

    #[test]
    fn claims_of_others_and_of_another_time_are_refused() {
        let refused = |change| principal(change).unwrap_err();
        assert_eq!(refused(json!({"exp": 1_799_999_000})), "the token has expired");
        assert_eq!(refused(json!({"exp": null})), "form");
        assert_eq!(refused(json!({"exp": "1800000100"})), "form");
        assert_eq!(refused(json!({"nbf": 1_800_000_100})), "the token is not valid yet");
        assert_eq!(refused(json!({"aud": "hub2"})), "the token is for another audience");
        assert_eq!(refused(json!({"aud": []})), "the token is for another audience");
        for subject in ["", "a\nb", &"a".repeat(124)] {
            assert!(refused(json!({"sub": subject})).starts_with("the subject of the token"));
        }
        // A clock may be a little behind.
        assert!(principal(json!({"exp": 1_799_999_970, "nbf": 1_800_000_030})).is_ok());
    }

    #[test]
    fn a_token_without_a_known_issuer_or_a_signature_is_refused() {
        let providers = TokenProviders::new(&[provider()]);
        let text = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let token = |header: Value, issuer: &str| {
            let claims = json!({"iss": issuer, "sub": "ada", "aud": "hub", "exp": 1_800_000_100});
            format!("{}.{}.", text(header), text(claims))
        };
        let refused = |token: &str| providers.verify(token.as_bytes(), NOW).unwrap_err().reason;
        let ours = "https://login.example";
        assert_eq!(
            refused(&token(json!({"alg": "EdDSA"}), "https://evil.example")),
            "the issuer of the token is not known here"
        );
        for alg in ["none", "None", "HS256", "ES384"] {
            assert_eq!(
                refused(&token(json!({"alg": alg}), ours)),
                "the algorithm of the token is not RS256, ES256 or EdDSA",
                "{alg}"
            );
        }
        assert!(refused(&token(json!({"alg": "EdDSA", "crit": ["b64"]}), ours)).contains("`crit`"));
        assert_eq!(refused("a.b.c.d"), "the token does not have three parts");
        assert_eq!(refused(&"x".repeat(TOKEN_BYTES + 1)), "the token is longer than 8 KiB");
        // The same member twice has no meaning.
        let twice = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","alg":"none"}"#);
        assert!(refused(&format!("{twice}.e30.")).contains("wrong form"));
        assert!(!providers.is_token(b"a-key") && providers.is_token(b"a.b.c"));
        assert!(!TokenProviders::default().is_token(b"a.b.c"));
    }
}
