//! The signature of deliveries.

use std::time::Duration;

use duologue_hub::{DELIVERY_ID, DELIVERY_SIGNATURE, DELIVERY_TIMESTAMP, WebhookError, WebhookSecret};

const BODY: &str = r#"{"taskId":"task-1","status":"completed","result":{"text":"héllo"}}"#;
const ID: &str = "0198c5f2-7c1a-7e2b-9d3f-000000000001";
const TIME: u64 = 1_767_225_600_000;
/// Computed by another program: Python's `hmac`.
const SIGNATURE: &str = "v1=cc25552b13ad96d02d28f9ecf9a0132dd42adc7b7c92069b0d099969b1c22054";
const TOLERANCE: Duration = Duration::from_secs(300);

fn secret() -> WebhookSecret {
    WebhookSecret::new((0..32).collect::<Vec<u8>>()).expect("a secret")
}

#[test]
fn the_documented_vector_is_signed_and_verified() {
    let headers = secret().sign(TIME, ID, BODY.as_bytes()).expect("signed");
    assert_eq!(headers[DELIVERY_TIMESTAMP], "1767225600000");
    assert_eq!(headers[DELIVERY_ID], ID);
    assert_eq!(headers[DELIVERY_SIGNATURE], SIGNATURE);
    let verified = secret().verify(&headers, BODY.as_bytes(), TIME, TOLERANCE).expect("verified");
    assert_eq!((verified.id.as_str(), verified.timestamp_ms), (ID, TIME));
}

#[test]
fn a_changed_delivery_is_rejected() {
    let headers = secret().sign(TIME, ID, BODY.as_bytes()).expect("signed");
    let verify = |headers: &_, body: &str| secret().verify(headers, body.as_bytes(), TIME, TOLERANCE);
    assert_eq!(verify(&headers, &BODY.replace("completed", "failed")), Err(WebhookError::Signature));
    assert_eq!(verify(&headers, &format!("{BODY}\n")), Err(WebhookError::Signature));
    for (name, value) in [
        (DELIVERY_TIMESTAMP, "1767225600001"),
        (DELIVERY_ID, "0198c5f2-7c1a-7e2b-9d3f-000000000002"),
        (DELIVERY_SIGNATURE, "v1="),
        (DELIVERY_SIGNATURE, SIGNATURE.trim_end_matches("54")),
        (DELIVERY_SIGNATURE, &SIGNATURE.replace("v1", "v2")),
        (DELIVERY_SIGNATURE, &SIGNATURE.replace("v1=", "")),
        (DELIVERY_SIGNATURE, &SIGNATURE.replace("cc", "cd")),
    ] {
        let mut changed = headers.clone();
        changed.insert(name, value.parse().expect("a value"));
        assert_eq!(verify(&changed, BODY), Err(WebhookError::Signature), "{value}");
    }
    let other = WebhookSecret::new([7; 32]).expect("a secret");
    assert_eq!(other.verify(&headers, BODY.as_bytes(), TIME, TOLERANCE), Err(WebhookError::Signature));
}

#[test]
fn malformed_headers_are_rejected() {
    let headers = secret().sign(TIME, ID, BODY.as_bytes()).expect("signed");
    let verify = |headers: &_| secret().verify(headers, BODY.as_bytes(), TIME, TOLERANCE);
    for name in [DELIVERY_TIMESTAMP, DELIVERY_ID, DELIVERY_SIGNATURE] {
        let mut missing = headers.clone();
        missing.remove(&name);
        assert_eq!(verify(&missing), Err(WebhookError::Header { name: name.clone() }));
        let mut repeated = headers.clone();
        repeated.append(name.clone(), headers[&name].clone());
        assert_eq!(verify(&repeated), Err(WebhookError::Header { name }));
    }
    for value in ["+1767225600000", "-1", "1e12", "", "99999999999999999999"] {
        let mut changed = headers.clone();
        changed.insert(DELIVERY_TIMESTAMP, value.parse().expect("a value"));
        assert!(verify(&changed).is_err(), "{value}");
    }
    // With a dot, the signed bytes could be split in two ways.
    for id in ["", "a.b", "a b", "ä", &"a".repeat(129)] {
        assert_eq!(secret().sign(TIME, id, b"{}").err(), Some(WebhookError::DeliveryId), "{id}");
    }
    let mut dotted = headers.clone();
    dotted.insert(DELIVERY_ID, "a.b".parse().expect("a value"));
    assert_eq!(verify(&dotted), Err(WebhookError::DeliveryId));
}

#[test]
fn an_old_delivery_and_one_of_the_future_are_rejected() {
    let headers = secret().sign(TIME, ID, BODY.as_bytes()).expect("signed");
    let verify = |now| secret().verify(&headers, BODY.as_bytes(), now, TOLERANCE);
    for now in [TIME - 300_000, TIME + 300_000] {
        assert!(verify(now).is_ok(), "{now}");
    }
    for now in [0, TIME - 300_001, TIME + 300_001, u64::MAX] {
        assert!(matches!(verify(now), Err(WebhookError::Timestamp { .. })), "{now}");
    }
}

#[test]
fn one_of_several_signatures_is_enough() {
    let mut headers = secret().sign(TIME, ID, BODY.as_bytes()).expect("signed");
    let wrong = format!("v1={}", "0".repeat(64));
    let mut set = |value: String| {
        headers.insert(DELIVERY_SIGNATURE, value.parse().expect("a value"));
        secret().verify(&headers, BODY.as_bytes(), TIME, TOLERANCE).is_ok()
    };
    assert!(set(format!("{wrong}, {SIGNATURE}")));
    assert!(set(format!("v2=x,{SIGNATURE}")));
    assert!(!set(format!("{wrong},{wrong}")));
    // The number of comparisons has a limit.
    assert!(!set(format!("{}{SIGNATURE}", format!("{wrong},").repeat(4))));
}

#[test]
fn a_short_secret_is_refused_and_none_is_shown() {
    assert_eq!(WebhookSecret::new([7; 31]).err(), Some(WebhookError::Secret { bytes: 31 }));
    assert_eq!(format!("{:?}", secret()), "WebhookSecret(..)");
}
