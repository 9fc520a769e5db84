//! The signature of a delivery.

use std::fmt::{self, Write as _};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The time of an attempt, in ms since 1970.
pub const DELIVERY_TIMESTAMP: HeaderName = HeaderName::from_static("x-acp-timestamp");
/// The id of a delivery.
pub const DELIVERY_ID: HeaderName = HeaderName::from_static("x-acp-delivery");
/// The signature of a delivery.
pub const DELIVERY_SIGNATURE: HeaderName = HeaderName::from_static("x-acp-signature");

/// The least bytes of a secret, which is the output length of HMAC-SHA256.
const LEAST_SECRET_BYTES: usize = 32;
/// The most characters of a delivery id.
const MOST_ID_CHARS: usize = 128;
/// The most signatures that are compared.
const MOST_SIGNATURES: usize = 4;
/// The version of the signed bytes.
const VERSION: &str = "v1=";

/// The secret with which deliveries to a principal are signed. It is never printed.
///
/// A delivery is a `POST` with three headers:
///
/// | header | value |
/// | --- | --- |
/// | `X-ACP-Timestamp` | the time of this attempt: milliseconds since 1970-01-01 in UTC, in decimal digits |
/// | `X-ACP-Delivery` | the id of the delivery, the same in all attempts: 1 to 128 of `A-Z`, `a-z`, `0-9`, `-` and `_` |
/// | `X-ACP-Signature` | `v1=` and the HMAC-SHA256 in 64 lower-case hexadecimal digits |
///
/// The HMAC is of these bytes, with the webhook secret as the key: the value of `X-ACP-Timestamp`, a dot, the value of
/// `X-ACP-Delivery`, a dot, and the body as it was received. The first two have no dot, so the bytes can be split in one way
/// only. A receiver checks the signature before it parses the body, compares in constant time, and rejects a timestamp that
/// is further from its clock than five minutes. It remembers the ids that it has processed, since a delivery whose
/// response is lost is sent again.
///
/// The signature header can have several signatures, separated by commas, while a secret is being replaced. One has to be right.
///
/// A test vector: the secret is the 32 bytes 0 to 31, and the body has 67 bytes in UTF-8, without a line feed.
///
/// ```text
/// X-ACP-Timestamp: 1767225600000
/// X-ACP-Delivery: 0198c5f2-7c1a-7e2b-9d3f-000000000001
/// X-ACP-Signature: v1=cc25552b13ad96d02d28f9ecf9a0132dd42adc7b7c92069b0d099969b1c22054
///
/// {"taskId":"task-1","status":"completed","result":{"text":"héllo"}}
/// ```
///
/// In Python:
///
/// ```text
/// signed = f"{timestamp}.{delivery}.".encode() + body
/// hmac.compare_digest(signature, "v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest())
/// ```
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WebhookSecret(..)")
    }
}

/// A failure to sign or to verify a delivery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The secret is too short.
    #[error("the webhook secret has {bytes} bytes, and needs at least {LEAST_SECRET_BYTES} random ones")]
    Secret {
        /// Its length.
        bytes: usize,
    },
    /// The id of a delivery is invalid.
    #[error("the delivery id is invalid; it has 1 to {MOST_ID_CHARS} letters, digits, `-` and `_`")]
    DeliveryId,
    /// A header is missing, repeated or malformed.
    #[error("the header {name} is missing, repeated or malformed")]
    Header {
        /// The header.
        name: HeaderName,
    },
    /// The delivery is too old, or from the future.
    #[error(
        "the timestamp is {distance:?} from this clock, and the limit is {tolerance:?}; set the clock, or reject a replay"
    )]
    Timestamp {
        /// The distance.
        distance: Duration,
        /// The limit.
        tolerance: Duration,
    },
    /// No signature is right.
    #[error("the signature is wrong; check the webhook secret, and verify the body before it is parsed")]
    Signature,
}

/// The facts of a delivery whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedDelivery {
    /// The id, the same in all attempts.
    pub id: String,
    /// The time of the attempt, in ms since 1970.
    pub timestamp_ms: u64,
}

impl WebhookSecret {
    /// Creates a secret from at least 32 bytes.
    ///
    /// # Errors
    ///
    /// [`WebhookError::Secret`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, WebhookError> {
        let bytes = Zeroizing::new(bytes.into());
        if bytes.len() < LEAST_SECRET_BYTES {
            return Err(WebhookError::Secret { bytes: bytes.len() });
        }
        Ok(WebhookSecret(bytes))
    }

    /// Returns the headers of one attempt.
    ///
    /// # Errors
    ///
    /// [`WebhookError::DeliveryId`].
    pub fn sign(&self, timestamp_ms: u64, id: &str, body: &[u8]) -> Result<HeaderMap, WebhookError> {
        if !is_id(id) {
            return Err(WebhookError::DeliveryId);
        }
        let timestamp = timestamp_ms.to_string();
        let mut signature = VERSION.to_owned();
        for byte in self.mac(&timestamp, id, body).finalize().into_bytes() {
            let _ = write!(signature, "{byte:02x}");
        }
        let mut headers = HeaderMap::new();
        for (name, value) in
            [(DELIVERY_TIMESTAMP, timestamp.as_str()), (DELIVERY_ID, id), (DELIVERY_SIGNATURE, &signature)]
        {
            let value = HeaderValue::from_str(value).map_err(|_| WebhookError::DeliveryId)?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// Verifies a delivery that was received at `now_ms`, in ms since 1970. Signatures are compared in constant time.
    ///
    /// A replay within the tolerance passes: remember the ids that you have processed for longer than that.
    ///
    /// # Errors
    ///
    /// [`WebhookError`] with the first check that fails.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now_ms: u64,
        tolerance: Duration,
    ) -> Result<VerifiedDelivery, WebhookError> {
        let timestamp = one(headers, DELIVERY_TIMESTAMP)?;
        let id = one(headers, DELIVERY_ID)?;
        let signatures = one(headers, DELIVERY_SIGNATURE)?;
        if !is_id(id) {
            return Err(WebhookError::DeliveryId);
        }
        let malformed = || WebhookError::Header { name: DELIVERY_TIMESTAMP };
        // `parse` would accept a sign.
        if !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let timestamp_ms: u64 = timestamp.parse().map_err(|_| malformed())?;
        let mac = self.mac(timestamp, id, body);
        let is_right = signatures.split(',').take(MOST_SIGNATURES).any(|signature| {
            let digits = signature.trim().strip_prefix(VERSION).and_then(from_hex);
            digits.is_some_and(|expected| mac.clone().verify_slice(&expected).is_ok())
        });
        if !is_right {
            return Err(WebhookError::Signature);
        }
        let distance = Duration::from_millis(now_ms.abs_diff(timestamp_ms));
        if distance > tolerance {
            return Err(WebhookError::Timestamp { distance, tolerance });
        }
        Ok(VerifiedDelivery { id: id.to_owned(), timestamp_ms })
    }

    fn mac(&self, timestamp: &str, id: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [timestamp.as_bytes(), b".", id.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

fn is_id(id: &str) -> bool {
    (1..=MOST_ID_CHARS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn one(headers: &HeaderMap, name: HeaderName) -> Result<&str, WebhookError> {
    let mut values = headers.get_all(&name).iter();
    match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(WebhookError::Header { name }),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}
