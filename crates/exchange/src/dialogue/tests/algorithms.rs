//! Tests of the verifier with keys of two algorithms.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_schema::Json;
use duologue_schema::dialogue::DialogueErrorCode;
use serde_json::{Value, json};

use super::verify::{BUYER, SECOND, SECRET, SELLER, forge, key, keys, message, seller, start, taken, value};
use crate::dialogue::canonical::canonical;
use crate::dialogue::ed25519;
use crate::dialogue::ed25519::tests::CHECKS;
use crate::dialogue::signature::tests::MACS;
use crate::dialogue::verify::{Verifier, VerifyOutcome};
use crate::dialogue::verify_error::VerifyError;
use crate::dialogue::{Key, KeyError, SignError, sign};

pub(super) const PRIVATE: [u8; 32] = [3; 32];

pub(super) fn private(id: &str) -> Key {
    Key::ed25519(id, BUYER, PRIVATE).unwrap()
}

/// The key that a recipient has.
pub(super) fn public(id: &str) -> Key {
    Key::ed25519_public(id, BUYER, private(id).public_key().unwrap()).unwrap()
}

/// Signs any value with any header and a private key.
pub(super) fn forge_ed25519(message: &Value, header: &Value, private: &[u8; 32]) -> Json {
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let payload = URL_SAFE_NO_PAD.encode(canonical(&message.to_string()).unwrap());
    let bytes = ed25519::sign(private, format!("{header}.{payload}").as_bytes());
    let mut message = message.clone();
    message["signature"] = format!("{header}..{}", URL_SAFE_NO_PAD.encode(bytes)).into();
    message.into()
}

pub(super) fn header(alg: &str, kid: &str) -> Value {
    json!({ "alg": alg, "kid": kid, "typ": "dialogue" })
}

#[test]
fn a_public_key_verifies_what_the_private_one_signs() {
    let seller = seller(&keys([public("e1")]));
    let json = sign(&message("m1"), &private("e1")).unwrap();
    assert_eq!(taken(seller.verify(&json, 0, start())).received.key_id.as_deref(), Some("e1"));
    assert!(matches!(seller.verify(&json, 0, start()), Ok(VerifyOutcome::Duplicate(_))));
    // The header is that of RFC 8037, in the form of other signatures.
    assert_eq!(json, forge_ed25519(&value(&message("m1")), &header("EdDSA", "e1"), &PRIVATE));

    let other = forge_ed25519(&value(&message("m2")), &header("EdDSA", "e1"), &[4; 32]);
    assert_eq!(seller.verify(&other, 0, start()), Err(VerifyError::Forged("e1".into())));
    let mut altered: Value = sign(&message("m2"), &private("e1")).unwrap().parse().unwrap();
    altered["interaction_step"] = json!(2);
    assert_eq!(seller.verify(&altered.into(), 0, start()), Err(VerifyError::Forged("e1".into())));
}

#[test]
fn a_public_key_does_not_sign() {
    assert_eq!(sign(&message("m1"), &public("e1")), Err(SignError::Public));
    let buyer = |all| Verifier::new(BUYER).since(SystemTime::UNIX_EPOCH).keys(keys(all));
    // The public key is newer.
    let newer = public("e2").not_before(start());
    assert_eq!(buyer(vec![newer]).sign(&message("m1"), start()), Err(SignError::NoKey));
    let signed =
        buyer(vec![public("e2").not_before(start()), private("e1")]).sign(&message("m1"), start()).unwrap();
    taken(seller(&keys([public("e1")])).verify(&signed, 0, start()));

    assert_eq!(Key::ed25519("e1", BUYER, [3; 31]).unwrap_err(), KeyError::Private);
    for wrong in [&[3; 31][..], &[0; 32]] {
        assert_eq!(Key::ed25519_public("e1", BUYER, wrong).unwrap_err(), KeyError::Public);
    }
}

/// A public key is known to everybody, so it must not count as a secret.
#[test]
fn a_key_of_one_algorithm_verifies_no_signature_of_the_other() {
    let seller = seller(&keys([key("k1"), public("e1")]));
    let (message, public) = (value(&message("m1")), *private("e1").public_key().unwrap());
    for secret in [public, PRIVATE, SECRET, [0; 32]] {
        let forged = forge(&message, &header("HS256", "e1"), &secret);
        assert_eq!(seller.verify(&forged, 0, start()), Err(VerifyError::Algorithm("e1".into())));
        // The header has the algorithm of the key, and the signature is of the other algorithm.
        let forged = forge(&message, &header("EdDSA", "e1"), &secret);
        assert_eq!(seller.verify(&forged, 0, start()), Err(VerifyError::Forged("e1".into())));
        let forged = forge_ed25519(&message, &header("EdDSA", "k1"), &secret);
        assert_eq!(seller.verify(&forged, 0, start()), Err(VerifyError::Algorithm("k1".into())));
        let forged = forge_ed25519(&message, &header("HS256", "k1"), &secret);
        assert_eq!(seller.verify(&forged, 0, start()), Err(VerifyError::Forged("k1".into())));
    }
    // Both verify their own.
    taken(seller.verify(&forge(&message, &header("HS256", "k1"), &SECRET), 0, start()));
    let again = forge_ed25519(&message, &header("EdDSA", "e1"), &PRIVATE);
    assert!(matches!(seller.verify(&again, 0, start()), Ok(VerifyOutcome::Duplicate(_))));
}

/// Otherwise the time tells a peer which key ids exist, and whose they are.
#[test]
fn every_signature_is_computed_once_by_the_algorithm_that_it_names() {
    let other = Key::new("other", SELLER, [9; 32]).unwrap();
    let bound = key("bound").with("agent://else.example").unwrap();
    let late = key("late").not_before(start() + 3600 * SECOND);
    let seller = seller(&keys([key("k1"), other, bound, late, public("e1")]));
    for kid in ["k1", "unknown", "other", "bound", "late", "e1"] {
        for (alg, expected) in [("HS256", (1, 0)), ("HS512", (1, 0)), ("EdDSA", (0, 1))] {
            let forged = forge(&value(&message("m1")), &header(alg, kid), &[3; 32]);
            let before = (MACS.get(), CHECKS.get());
            let error = seller.verify(&forged, 0, start()).unwrap_err();
            assert_eq!(error.code(), DialogueErrorCode::Unauthorized, "{kid}: {error}");
            assert_eq!((MACS.get() - before.0, CHECKS.get() - before.1), expected, "{kid} {alg}");
        }
    }
    // The keys that stand for an unknown one sign nothing.
    let message = value(&message("m1"));
    let forged = forge(&message, &header("HS256", "unknown"), &[0; 32]);
    assert!(matches!(seller.verify(&forged, 0, start()), Err(VerifyError::UnknownKey(_))));
    let forged = forge_ed25519(&message, &header("EdDSA", "unknown"), &ed25519::tests::decoy_private());
    assert!(matches!(seller.verify(&forged, 0, start()), Err(VerifyError::UnknownKey(_))));
}
