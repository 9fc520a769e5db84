//! Signatures of messages, in the form of a compact JWS with detached payload.
//!
//! The form is `BASE64URL(header)..BASE64URL(signature)`, as in appendix F of RFC 7515. The header is
//! `{"alg":…,"kid":…,"typ":"dialogue"}`, with `HS256` or `EdDSA`. The signature covers the header and the canonical form
//! of the message without `signature`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_schema::Json;
use duologue_schema::dialogue::DialogueMessage;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::canonical::{CanonicalError, Signable};
use super::ed25519;
use super::keys::{Algorithm, Key, KeyMaterial, SECRET_BYTES};
use crate::limits::SIGNATURE_BYTES;

/// The `typ` in the header of every signature, which prevents the reuse of signatures made for
/// another purpose.
const SIGNATURE_TYPE: &str = "dialogue";

/// Signs a message and returns the text to send. An existing signature is replaced.
///
/// ```
/// use duologue_exchange::dialogue::{Key, sign};
/// use duologue_schema::dialogue::{DialogueMessage, MessageType};
///
/// # let secret = [7; 32];
/// let key = Key::new("k1", "agent://buyer.example", secret)?;
/// let message = DialogueMessage::new(
///     "m1", "s1", "agent://buyer.example", "agent://seller.example",
///     "2026-03-01T12:00:00Z", 1, MessageType::Inform,
/// );
/// let signed = sign(&message, &key)?;
/// assert!(signed.parse::<DialogueMessage>()?.signature.unwrap().contains(".."));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if the key belongs to another sender or recipient, or is a public key. Also if the message has no
/// canonical form: it contains a duplicate key, an integer beyond 2^53, or a double that RFC 8785
/// writes as one (`1e18`).
pub fn sign(message: &DialogueMessage, key: &Key) -> Result<Json, SignError> {
    if message.sender_id != *key.owner() {
        return Err(SignError::Owner);
    }
    if !key.is_for(&message.recipient_id) {
        return Err(SignError::Peer);
    }
    let (mut message, canonical) = stripped(message)?;
    message.signature = Some(signature(&canonical, key).ok_or(SignError::Public)?);
    text(&message)
}

/// Returns the text of a message without its signature.
pub(super) fn unsigned(message: &DialogueMessage) -> Result<Json, SignError> {
    text(&stripped(message)?.0)
}

/// Returns a message without its signature, and its canonical form.
fn stripped(message: &DialogueMessage) -> Result<(DialogueMessage, String), SignError> {
    let mut message = message.clone();
    message.signature = None;
    let signable = Signable::read(text(&message)?.get()).map_err(SignError::Message)?;
    Ok((message, signable.canonical))
}

fn text(message: &DialogueMessage) -> Result<Json, SignError> {
    Json::new(message).map_err(|error| SignError::Message(CanonicalError::Json(error.to_string())))
}

/// Errors of signing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The key belongs to another agent.
    #[error("the key is not the sender's; sign with a key whose owner is the sender_id")]
    Owner,
    /// The key is bound to another recipient.
    #[error("the key is for messages to another agent than the recipient_id")]
    Peer,
    /// The key is a public key.
    #[error("a public key does not sign; sign with the private key of the sender")]
    Public,
    /// The sender has no key for this recipient that is valid now.
    #[error("the sender has no key for this recipient that is valid now")]
    NoKey,
    /// The message has no canonical form.
    #[error("the message cannot be signed: {0}")]
    Message(#[source] CanonicalError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

/// Returns the signature of a canonical form, or `None` for a public key.
fn signature(canonical: &str, key: &Key) -> Option<String> {
    let header = serde_json::json!({
        "alg": key.algorithm().as_str(), "kid": key.id(), "typ": SIGNATURE_TYPE,
    });
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let text = signed_text(&header, canonical);
    let bytes = match &key.material {
        KeyMaterial::Hs256(secret) => mac(&text, secret).finalize().into_bytes().to_vec(),
        KeyMaterial::Ed25519 { private, .. } => ed25519::sign(private.as_ref()?, text.as_bytes()),
    };
    Some(format!("{header}..{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Returns the text that is signed.
fn signed_text(header: &str, canonical: &str) -> String {
    format!("{header}.{}", URL_SAFE_NO_PAD.encode(canonical))
}

/// Computes the MAC of [`Algorithm::Hs256`].
fn mac(text: &str, secret: &[u8]) -> Hmac<Sha256> {
    #[cfg(test)]
    tests::MACS.set(tests::MACS.get() + 1);
    let mut mac = hmac_sha256(secret);
    mac.update(text.as_bytes());
    mac
}

fn hmac_sha256(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes keys of any length")
}

/// A parsed signature that has not been verified.
pub(super) struct ParsedSignature<'a> {
    header: &'a str,
    bytes: Vec<u8>,
    alg: String,
    /// The id of the key that the signature names.
    pub(super) kid: String,
}

impl<'a> ParsedSignature<'a> {
    /// Parses a signature; returns `None` for another form.
    pub(super) fn read(signature: &'a str) -> Option<Self> {
        if signature.len() > SIGNATURE_BYTES {
            return None;
        }
        let (header, bytes) = signature.split_once("..")?;
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        // An unknown member of the header may be critical, so it is rejected.
        // The derived reader takes an array too.
        text.trim_ascii_start().starts_with('{').then_some(())?;
        let Header { alg, kid, typ } = serde_json::from_str(&text).ok()?;
        (typ == SIGNATURE_TYPE).then_some(())?;
        Some(ParsedSignature { header, bytes: URL_SAFE_NO_PAD.decode(bytes).ok()?, alg, kid })
    }

    /// Returns true if the signature names the algorithm of `key`.
    pub(super) fn fits(&self, key: &Key) -> bool {
        self.alg == key.algorithm().as_str()
    }

    /// Returns true if `key` made the signature of `canonical`. The signature says which algorithm is computed, and the key
    /// does not: otherwise the time would reveal the ids of the keys that exist. Without a key of that algorithm, another
    /// one takes its place. The comparison takes constant time.
    pub(super) fn is_by(&self, key: Option<&Key>, canonical: &str) -> bool {
        const NO_SECRET: &[u8] = &[0; SECRET_BYTES];
        let (text, material) = (signed_text(self.header, canonical), key.map(|key| &key.material));
        let (is_equal, has_key) = match (Algorithm::named(&self.alg), material) {
            (Some(Algorithm::Ed25519), Some(KeyMaterial::Ed25519 { public, .. })) => {
                (ed25519::is_signed(public, text.as_bytes(), &self.bytes), true)
            }
            (Some(Algorithm::Ed25519), _) => {
                (ed25519::is_signed(&ed25519::DECOY, text.as_bytes(), &self.bytes), false)
            }
            (Some(Algorithm::Hs256), Some(KeyMaterial::Hs256(secret))) => {
                (mac(&text, secret).verify_slice(&self.bytes).is_ok(), true)
            }
            _ => (mac(&text, NO_SECRET).verify_slice(&self.bytes).is_ok(), false),
        };
        is_equal & has_key
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of MACs that this thread has computed.
        pub(in crate::dialogue) static MACS: Cell<u32> = const { Cell::new(0) };
    }

    fn hex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        text.as_bytes()
            .chunks(2)
            .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap())
            .collect()
    }

    /// RFC 4231, 4.2 to 4.8.
    #[test]
    fn example_macs_of_the_rfc() {
        let cases: [(&[u8], &[u8], &str); 7] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b 881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c7 5a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a7 2959098b3ef8c122d9635514ced565fe"),
            (
                &(1..=25).collect::<Vec<u8>>(),
                &[0xcd; 50],
                "82558a389a443c0ea4cc819899f2083a 85f0faa3e578f8077a2e3ff46729665b",
            ),
            // The expected value is truncated to its first half.
            (&[0x0c; 20], b"Test With Truncation", "a3b6167473100ee06e0c796c2955552b"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f 8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                &[0xaa; 131],
                b"This is a test using a larger than block-size key and a larger than block-size data. \
                  The key needs to be hashed before being used by the HMAC algorithm.",
                "9b09ffa71b942fcb27635fbcd5b0e944 bfdc63644f0713938a7f51535c3a35e2",
            ),
        ];
        for (secret, data, expected) in cases {
            let mut mac = hmac_sha256(secret);
            mac.update(data);
            assert!(mac.finalize().into_bytes().starts_with(&hex(expected)), "{expected}");
        }
    }

    /// RFC 7515, A.1.1: its header, payload and key, and its signature.
    #[test]
    fn the_signature_is_a_jws() {
        let secret = URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let key = Key::new("k", "agent://a", secret).unwrap();
        let payload = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
        let header = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
        let KeyMaterial::Hs256(secret) = &key.material else { panic!("another algorithm") };
        let mac = mac(&signed_text(header, payload), secret).finalize().into_bytes();
        assert_eq!(URL_SAFE_NO_PAD.encode(mac), "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    }

    #[test]
    fn the_header_has_exactly_the_known_members() {
        let read = |header: &str| {
            ParsedSignature::read(&format!("{}..AAAA", URL_SAFE_NO_PAD.encode(header)))
                .map(|claimed| claimed.kid)
        };
        assert_eq!(read(r#"{"typ":"dialogue","kid":"k","alg":"none"}"#).as_deref(), Some("k"));
        for header in [
            "",
            "{}",
            r#"{"alg":"HS256","kid":"k"}"#,
            r#"{"alg":"HS256","kid":"k","typ":"JWT"}"#,
            r#"{"alg":"HS256","kid":7,"typ":"dialogue"}"#,
            r#"["HS256","k","dialogue"]"#,
            r#" ["HS256","k","dialogue"]"#,
            r#"{"alg":"HS256","kid":"k","kid":"l","typ":"dialogue"}"#,
            r#"{"alg":"HS256","kid":"k","typ":"dialogue","crit":["b64"],"b64":false}"#,
        ] {
            assert_eq!(read(header), None, "{header}");
        }
        let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"dialogue","kid":"k","alg":"HS256"}"#);
        for signature in [
            String::new(),
            "..".to_owned(),
            format!("{header}.AAAA"),
            format!("{header}.e30.AAAA"),
            format!("{header}..AAAA="),
            format!("{header}..AA A"),
            format!("{header}..AB"),
            format!("{header}..{}", "A".repeat(SIGNATURE_BYTES)),
        ] {
            assert!(ParsedSignature::read(&signature).is_none(), "{signature}");
        }
    }
}
