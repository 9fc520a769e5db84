//! The public keys of a provider: a JSON Web Key Set (RFC 7517, RFC 8037).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// The most keys of a set.
const KEYS: usize = 64;

/// A key.
#[derive(Debug)]
pub(super) struct TokenKey {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Debug)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { point: Vec<u8> },
    Ed25519 { key: Vec<u8> },
}

/// A set as it is published.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// A key as it is published. Members that its kind does not have are absent.
#[derive(Deserialize)]
struct PublishedKey {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

/// Reads a set. Keys of another kind or for another purpose are left out. A set without a key revokes the earlier ones.
pub(super) fn read(json: &[u8]) -> Result<Vec<TokenKey>, String> {
    let set: KeySet = serde_json::from_slice(json).map_err(|error| format!("no set of keys: {error}"))?;
    if set.keys.len() > KEYS {
        return Err(format!("the set has {} keys; at most {KEYS} are read", set.keys.len()));
    }
    let published = set.keys.into_iter().filter_map(|key| PublishedKey::deserialize(key).ok());
    Ok(published.filter_map(PublishedKey::usable).collect())
}

impl PublishedKey {
    fn usable(self) -> Option<TokenKey> {
        if self.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let public = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let number = |text| Some(without_zeros(bytes(text)?));
                PublicKey::Rsa { modulus: number(self.n)?, exponent: number(self.e)? }
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(self.x)?, bytes(self.y)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                // An uncompressed point.
                PublicKey::P256 { point: [&[4], x.as_slice(), y.as_slice()].concat() }
            }
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519 { key: bytes(self.x)? },
            _ => return None,
        };
        if self.alg.is_some_and(|alg| alg != public.algorithm()) {
            return None;
        }
        Some(TokenKey { id: self.kid, public })
    }
}

impl PublicKey {
    /// Returns the only algorithm that the key is used for.
    fn algorithm(&self) -> &'static str {
        match self {
            PublicKey::Rsa { .. } => "RS256",
            PublicKey::P256 { .. } => "ES256",
            PublicKey::Ed25519 { .. } => "EdDSA",
        }
    }
}

impl TokenKey {
    /// Returns true if a token with this algorithm and key id is signed with this key.
    pub(super) fn fits(&self, algorithm: &str, id: Option<&str>) -> bool {
        self.public.algorithm() == algorithm && (id.is_none() || id == self.id.as_deref())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.public {
            PublicKey::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            PublicKey::P256 { point } => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            PublicKey::Ed25519 { key } => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }
}

/// Returns a number without zeros before it.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key and the signature of RFC 8037, appendix A.4.
    const ED25519_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    const ED25519_TOKEN: (&str, &str) = (
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    /// The key and the signature of RFC 7515, appendix A.3.
    const P256: (&str, &str) =
        ("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    const P256_TOKEN: (&str, &str) = (
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );

    /// Made with OpenSSL.
    const RSA_N: &str = "54noT8ofGUo6k7S7eJCnjKAmurfrxpsXPwnq8KBo5lm-mCmgH1V0WprkdT00MjSWL5IPf4EjR07AEgPTMEsehjH4GVBLicE5B5l80k2kal5k2YL7L2Vnu8Mci3MHjMAVN-dNcS8l27Fhl-Rkdx7uS5qxEB2PDEiEEjjEsCP6BNqAfzDTpzEUgwXlIyTF9-dLCgdRAd2E7duhO7qAJb3v2O4OuHGFwnlicBF0pnEv69CHRSXC7YYw3Olh7ldaF0e143yLEkhugKNdeNdbIdw8fg0GNRwRCPlCf1EJCM2H4WyIYogAlrbXfUU4TXC_UY2tpWVSmK-e4gEDJrG-YyN-7Q";
    const RSA_TOKEN: (&str, &str) = (
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UifQ",
        "3j_VOoowzyK5ZqShCVwMJ8mlsnjDIL8DmitLuTkugBACN8C64JdtFqufmLqQzaiw6GKFBeoHqz3J4SRLqJwKOA8in7Aa6XxCcBSwcNnqrO6iOsOIywcx8CXLVnkfGt_ZUQHPN7mlBSoM9QLfgSevD2RiwNOTUJ7wW-3NGhUSUICIE5U1R-haYP3e5OC9bbKkJtE4MfiKSaCh7NsssSyqBQwga-jruihNnWtw-VmShZtcS7-f2prn_zNsWT5-IWYexuIE50qxvh3AixLSw4kfH9nHPAJvMXxwVjayX1AdNT-3WL3cuwzXbC1nHTq3NVoiUcvUsBGReU03QhUutjaQjA",
    );

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    fn keys(keys: Value) -> Result<Vec<TokenKey>, String> {
        read(json!({"keys": keys}).to_string().as_bytes())
    }

    #[test]
    fn published_examples_are_verified() {
        let set = keys(json!([
            {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": ED25519_X},
            {"kty": "EC", "crv": "P-256", "kid": "two", "x": P256.0, "y": P256.1, "use": "sig", "alg": "ES256"},
            // A number may have a zero in front.
            {"kty": "RSA", "n": RSA_N, "e": "AAEAAQ"},
        ]))
        .unwrap();
        for (key, (message, signature)) in set.iter().zip([ED25519_TOKEN, P256_TOKEN, RSA_TOKEN]) {
            let mut signature = bytes(signature);
            assert!(key.verifies(message.as_bytes(), &signature));
            assert!(!key.verifies(&message.as_bytes()[1..], &signature));
            signature[5] ^= 1;
            assert!(!key.verifies(message.as_bytes(), &signature));
            assert!(!key.verifies(message.as_bytes(), &[]));
        }
    }

    #[test]
    fn a_key_is_used_for_its_own_algorithm_and_id() {
        let key = keys(json!([{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": ED25519_X}])).unwrap();
        let key = &key[0];
        assert!(key.fits("EdDSA", Some("one")) && key.fits("EdDSA", None));
        assert!(
            !key.fits("EdDSA", Some("two")) && !key.fits("HS256", Some("one")) && !key.fits("RS256", None)
        );
    }

    #[test]
    fn other_keys_are_left_out() {
        for key in [
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X, "use": "enc"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X, "alg": "HS256"}),
            json!({"kty": "OKP", "crv": "X25519", "x": ED25519_X}),
            json!({"kty": "EC", "crv": "P-256", "x": P256.0, "y": "AA"}),
            json!({"kty": "RSA", "n": "AA"}),
            json!(7),
        ] {
            assert!(keys(json!([key])).unwrap().is_empty(), "{key}");
        }
        assert!(read(b"<html>").unwrap_err().starts_with("no set of keys"));
        let many = vec![json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X}); 65];
        assert_eq!(keys(many.into()).unwrap_err(), "the set has 65 keys; at most 64 are read");
    }
}
